"""Reading settings models: their sections, their leaves, and what each leaf allows, in words."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pliant import units
from pliant.config.base import Condition

Keys = tuple[str, ...]
"""The parts of a dotted key."""
M = TypeVar("M", bound=BaseModel)

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Any: "anything"}
_ON_RESUME = {
    "free": "a resume may change it",
    "curve": "a resume may change it, and the curve with it; the change is recorded",
    "frozen": "frozen for the life of a run",
}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below", "multiple_of": "a multiple of"}
_BOUNDS |= {"min_length": "of length at least", "max_length": "of length at most"}
_QUANTITIES = {units.parse_seconds: "a duration (30s, 10min, 2h)", units.parse_bytes: "a size (64MiB, 2GB)"}


@dataclass(frozen=True)
class Leaf:
    """One setting.

    Attributes:
        keys: its dotted key, in parts.
        field: pydantic's description of it.
    """

    keys: Keys
    field: FieldInfo

    @property
    def dotted(self) -> str:
        """``optim.lr``."""
        return ".".join(self.keys)

    @property
    def is_mapping(self) -> bool:
        """Whether it holds values by keys of the user's own: ``data.nulls.COLUMN``."""
        return get_origin(self.field.annotation) is dict

    @property
    def on_resume(self) -> str:
        """``free``, ``curve`` or ``frozen``; what declares nothing is frozen."""
        extra = self.field.json_schema_extra
        return str(extra.get("on_resume", "frozen")) if isinstance(extra, dict) else "frozen"

    @property
    def only_with(self) -> tuple[Condition, ...]:
        """What other settings must be for it to have an effect."""
        extra = self.field.json_schema_extra
        declared: Any = extra.get("only_with", ()) if isinstance(extra, dict) else ()
        return tuple(Condition(c["key"], tuple(c["values"]), c["negated"]) for c in declared)

    @property
    def default(self) -> Any:
        """Its default; ``PydanticUndefined`` for a required setting."""
        return self.field.get_default(call_default_factory=True, validated_data={})

    @property
    def effect(self) -> str:
        """With what other settings it has an effect, in words; empty where it always has."""
        return f"has an effect only with {' and '.join(map(str, self.only_with))}" if self.only_with else ""

    @property
    def resume(self) -> str:
        """What a resume may do with it, in words."""
        return _ON_RESUME[self.on_resume]

    def describe(self) -> str:
        """What is allowed, with the default: ``a number above 0, default 0.001``."""
        default = self.default
        known = default is not PydanticUndefined and default is not None
        return allowed(self.field) + (f", default {show(default)}" if known else "")


def fields(schema: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by the name that files use."""
    return {info.alias or name: info for name, info in schema.model_fields.items()}


def section(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a section (also an optional one), else None."""
    options = get_args(field.annotation) if _is_union(field.annotation) else (field.annotation,)
    models = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
    return models[0] if len(models) == 1 else None


def entries(field: FieldInfo) -> type[BaseModel] | None:
    """The model of what a list setting holds, where it holds sections."""
    arguments = get_args(field.annotation) if get_origin(field.annotation) in (list, tuple) else ()
    models = [a for a in arguments if isinstance(a, type) and issubclass(a, BaseModel)]
    return models[0] if models else None


def leaves(schema: type[BaseModel], prefix: Keys = ()) -> Iterator[Leaf]:
    """All settings of a model, in the order of declaration."""
    for name, field in fields(schema).items():
        inner = section(field)
        if inner is None:
            yield Leaf((*prefix, name), field)
        else:
            yield from leaves(inner, (*prefix, name))


def sections(schema: type[BaseModel], prefix: Keys = ()) -> Iterator[Keys]:
    """The dotted keys, in parts, of all sections of a model."""
    for name, field in fields(schema).items():
        if (inner := section(field)) is not None:
            yield (*prefix, name)
            yield from sections(inner, (*prefix, name))


def lookup(schema: type[BaseModel], keys: Sequence[str | int]) -> tuple[Keys, FieldInfo | None]:
    """Follows keys into a model as far as it goes.

    Returns:
        The keys that were followed, and the last one's field. They end at a leaf, before an unknown key, or where
        ``keys`` ends; the field is None only when nothing was followed.
    """
    followed: Keys = ()
    field: FieldInfo | None = None
    inner: type[BaseModel] | None = schema
    for key in keys:
        if inner is None or not isinstance(key, str) or key not in fields(inner):
            break
        field = fields(inner)[key]
        followed = (*followed, key)
        inner = section(field)
    return followed, field


def valid_part(schema: type[M], values: Mapping[str, Any]) -> M:
    """What can be said of a configuration that is not valid: each setting that is, unvalidated as a whole.

    A setting without a valid value and without a default is missing: reading it raises AttributeError.
    """
    valid: dict[str, Any] = {}
    for name, field in schema.model_fields.items():
        value = values.get(field.alias or name, PydanticUndefined)
        inner = section(field)
        if inner is not None and isinstance(value, Mapping):
            valid[name] = valid_part(inner, value)
        elif value is PydanticUndefined:
            if not field.is_required():
                valid[name] = field.get_default(call_default_factory=True, validated_data={})
        else:
            with suppress(ValidationError):
                kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
                valid[name] = TypeAdapter(kind, config=None if inner else schema.model_config).validate_python(value)
    return schema.model_construct(**valid)


def value_of(config: BaseModel, keys: Sequence[str]) -> Any:
    """The value of a setting or section; None where it, or a section around it, is absent."""
    value: Any = config
    for key in keys:
        if not isinstance(value, BaseModel):
            return None
        names = {info.alias or name: name for name, info in type(value).model_fields.items()}
        value = getattr(value, names[key], None) if key in names else None
    return value


def allowed(field: FieldInfo) -> str:
    """What a setting accepts, in words."""
    if (inner := section(field)) is not None:
        return f"a section with {', '.join(fields(inner))}"
    return _words(field.annotation, field.metadata)


def takes_booleans(annotation: Any) -> bool:
    """Whether true and false are meant by a type. pydantic reads them as 1 and 0 where numbers are wanted."""
    if annotation in (bool, Any):
        return True
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return any(isinstance(a, bool) for a in arguments)
    if origin is Annotated:
        return takes_booleans(arguments[0])
    return _is_union(annotation) and any(map(takes_booleans, arguments))


def quantity_pattern(field: FieldInfo) -> str | None:
    """What a duration or a size looks like as text; None for other settings."""
    marks = list(field.metadata)
    for option in get_args(field.annotation) if _is_union(field.annotation) else ():
        marks += get_args(option)[1:] if get_origin(option) is Annotated else ()
    return next((units.PATTERNS[mark.func] for mark in marks if _is_quantity(mark)), None)


def choices(annotation: Any) -> list[str]:
    """The texts that a type names one by one."""
    if get_origin(annotation) is Literal:
        return [argument for argument in get_args(annotation) if isinstance(argument, str)]
    return [text for argument in get_args(annotation) if _is_union(annotation) for text in choices(argument)]


def takes_none(annotation: Any) -> bool:
    """Whether null is meant by a type."""
    return annotation is Any or type(None) in get_args(annotation)


def show(value: Any, limit: int = 60) -> str:
    """A value as a message shows it, shortened."""
    if isinstance(value, BaseModel):
        value = value.model_dump(by_alias=True)
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{k}: {show(v)}" for k, v in value.items()) + "}"
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(map(show, value)) + "]"
    elif value is None or isinstance(value, bool):
        text = json.dumps(value)
    else:
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _words(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [m for mark in arguments[1:] for m in (mark.metadata if isinstance(mark, FieldInfo) else (mark,))]
        return _words(arguments[0], (*inner, *metadata))
    quantity = next((_QUANTITIES[m.func] for m in metadata if _is_quantity(m)), None)
    limits = [
        f"{_BOUNDS[n]} {v:g}" if isinstance(v, float) else f"{_BOUNDS[n]} {v}"
        for m in metadata
        for n, v in bounds_of(m)
    ]
    bounds = (" " + " and ".join(limits)) if limits else ""
    if quantity is not None:
        return quantity + bounds
    if _is_union(annotation):
        options = [_words(a) + bounds for a in arguments if a is not type(None)]
        return ", ".join(options) + (" or null" if type(None) in arguments else "")
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}" if len(arguments) > 1 else str(arguments[0])
    if origin in (tuple, list, set, frozenset):
        if origin is tuple and Ellipsis not in arguments:
            return f"a list of {len(arguments)}: {', '.join(map(_words, arguments))}{bounds}"
        return f"a list, each {_words(arguments[0])}{bounds}"
    if origin is dict:
        return f"a mapping, each value {_words(arguments[1])}{bounds}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a mapping with {', '.join(fields(annotation))}"
    return _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation))) + bounds


def _is_quantity(mark: Any) -> bool:
    return isinstance(mark, BeforeValidator) and mark.func in _QUANTITIES


def bounds_of(mark: Any) -> Iterator[tuple[str, Any]]:
    """Bounds of one metadata item; those that pydantic groups in one object included."""
    for name in _BOUNDS:
        value = getattr(mark, name, None)
        if value is not None:
            yield name, value


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)
