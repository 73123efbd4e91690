"""JSON schema of a settings model, for editors: completion, hover texts and checks of single values while one types.

Draft 7, which editors know best, and without references between sections. Rules between settings are not in it:
``pliant config check`` knows them.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from pliant.config.schema import Leaf, bounds_of, fields, quantity_pattern, section

_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
DRAFT = "http://json-schema.org/draft-07/schema#"


def json_schema(model: type[BaseModel], *, open_sections: tuple[str, ...] = ()) -> dict[str, Any]:
    """The schema of files that a model is loaded from.

    Args:
        model: the whole configuration.
        open_sections: top-level sections that may hold more than the model knows.
    """
    definitions: dict[str, Any] = {}
    whole = _section(model, (), definitions)
    for name in open_sections:
        whole["properties"][name]["additionalProperties"] = True
    named = {"definitions": definitions} if definitions else {}
    return {"$schema": DRAFT, "title": "Settings of a Pliant pipeline", **whole, "type": "object", **named}


def _section(model: type[BaseModel], prefix: tuple[str, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    own = model.model_json_schema(ref_template="#/definitions/{model}")
    properties = {}
    for name, field in fields(model).items():
        inner = section(field)
        if inner is not None:
            properties[name] = _section(inner, (*prefix, name), definitions)
        else:
            properties[name] = _leaf(Leaf((*prefix, name), field), own["properties"][name])
    kept = {k: v for k, v in own.get("$defs", {}).items() if f"#/definitions/{k}" in str(properties)}
    definitions.update((k, _draft7(v)) for k, v in kept.items())
    return {
        "type": ["object", "null"],  # a section that holds nothing but comments
        "description": _plain(model.__doc__ or ""),
        "properties": properties,
        "additionalProperties": False,
        **({"required": own["required"]} if own.get("required") else {}),
    }


def _leaf(leaf: Leaf, own: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = _draft7({k: v for k, v in own.items() if k not in ("title", "description", "only_with")})
    if (pattern := quantity_pattern(leaf.field)) is not None:
        outside: dict[str, Any] = {k: kept.pop(k) for k in ("default", "on_resume") if k in kept}
        options = kept.get("anyOf", [kept])
        number = {"type": "number"} | {
            _BOUNDS[n]: v for m in leaf.field.metadata for n, v in bounds_of(m) if n in _BOUNDS
        }
        others = [option for option in options if option.get("type") not in ("number", "integer")]
        kept = {"anyOf": [number, {"type": "string", "pattern": pattern}, *others], **outside}
    about = [_plain(leaf.field.description or ""), leaf.describe(), leaf.effect, leaf.resume]
    return {"description": "\n".join(filter(None, about)), **kept}


def _draft7(node: Any) -> Any:
    """Tuples as draft 7 writes them."""
    if isinstance(node, list):
        return [_draft7(item) for item in node]
    if not isinstance(node, dict):
        return node
    result = {key: _draft7(value) for key, value in node.items()}
    if "prefixItems" in result:
        result["items"] = result.pop("prefixItems")
    return result


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "").split())
