"""JSON schema of space files, for editors: which settings may be searched, and what each domain may hold. Pure.

Draft 7, like that of settings files. Reversed bounds, conditions and constraints are not in it: they are checked when a
sweep is loaded.
"""

from __future__ import annotations

from typing import Any

from pliant.config.jsonschema import DRAFT, json_schema
from pliant.settings import RunConfig
from pliant.tune.domainfile import COUPLINGS
from pliant.tune.point import BATCH, LR, PEAK, WARMUP_RATIO
from pliant.tune.searchable import SCHEDULE, Searchable, searchables
from pliant.tune.settings import SpaceFile


def space_schema(schema: type[RunConfig], *, open_model: bool = False) -> dict[str, Any]:
    """The schema of the search spaces of a pipeline.

    Args:
        schema: its configuration.
        open_model: whether any setting of the model may be named.
    """
    settings = json_schema(schema)
    file = json_schema(SpaceFile)
    found = {name: s for name, s in searchables(schema).items() if s.kind is not None}
    domains = {name: _entry(target, _setting(settings, name)) for name, target in found.items()}
    inner = {n.partition(".")[2]: d for n, d in domains.items() if n.startswith(f"{SCHEDULE}.")}
    space: dict[str, Any] = {n: d for n, d in domains.items() if not n.startswith(f"{SCHEDULE}.")}
    space[SCHEDULE] = {"type": "object", "properties": inner, "additionalProperties": False}
    any_of_model = {"patternProperties": {"^model\\.": {"type": ["array", "object"]}}} if open_model else {}
    parts = {name: {"description": node["description"]} for name, node in file["properties"].items()}
    parts["pipeline"]["type"] = "string"
    parts["sweep"] = file["properties"]["sweep"]
    parts["settings"]["type"] = "object"
    parts["space"] |= {
        "type": "object",
        "minProperties": 1,
        "properties": space,
        **any_of_model,
        "additionalProperties": False,
    }
    parts["constraints"] |= {"type": "array", "items": {"type": "string"}}
    return {
        "$schema": DRAFT,
        "title": "A search space of a Pliant pipeline",
        "type": "object",
        "properties": parts,
        "required": ["space"],
        "additionalProperties": False,
        **({"definitions": file["definitions"]} if "definitions" in file else {}),
    }


def _setting(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema of the setting that a dimension is about."""
    if name == WARMUP_RATIO:
        return {"type": "number", "minimum": 0, "maximum": 1, "description": "The warm-up's share of the whole."}
    node = settings
    for key in (LR if name == PEAK else name).split("."):
        node = node["properties"][key]
    return node


def _entry(target: Searchable, setting: dict[str, Any]) -> dict[str, Any]:
    value = {key: node for key, node in setting.items() if key not in ("description", "default", "on_resume")}
    choices = {"type": "array", "items": value, "minItems": 1, "uniqueItems": True}
    kinds: dict[str, Any] = {"choice": choices}
    options: dict[str, Any] = {"when": {"type": "object"}, "mutate": {"type": "boolean"}}
    if target.kind in ("number", "whole"):
        pair = {"type": "array", "items": value, "minItems": 2, "maxItems": 2}
        kinds |= (
            {"int": pair} if target.kind == "whole" else {"float": pair, "log": {"anyOf": [pair, {"type": "boolean"}]}}
        )
    if target.kind == "whole":
        options |= {"log": {"type": "boolean"}, "step": {"type": "integer", "minimum": 1}}
    if target.name == BATCH:
        options["lr"] = {"enum": list(COUPLINGS)}
    domain = {
        "type": "object",
        "properties": kinds | options,
        "additionalProperties": False,
        "anyOf": [{"required": [kind]} for kind in kinds],
    }
    return {"description": setting.get("description", ""), "anyOf": [choices, domain]}
