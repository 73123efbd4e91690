"""Dotted overrides, ``optim.lr=3e-4``, and how they are laid over a file's values."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from pliant.config.schema import Keys, allowed, lookup, section, show, takes_none
from pliant.config.yamlfile import Path, parse_yaml, read_text
from pliant.errors import ConfigError

Overrides = Sequence[str] | Mapping[str, Any]
"""``["optim.lr=3e-4", "@more.yaml"]`` from a command line, or ``{"optim.lr": 3e-4}`` from Python. Later ones win."""
FILE_MARK = "@"
"""Begins an override that is a file of settings: ``@best.yaml``."""


@dataclass(frozen=True)
class Override:
    """One override.

    Attributes:
        keys: where it goes.
        value: what it sets there.
        origin: how errors and origins call it.
        places: the same for what lies inside its value, by full path.
    """

    keys: Keys
    value: Any
    origin: str
    places: Mapping[Path, str] = field(default_factory=dict)


def parse_override(text: str) -> Override:
    """Parses ``key=value``; the value is YAML 1.2, so ``[1, 2]``, ``{GPU: 1}``, ``null`` and ``"text"`` work.

    Raises:
        ConfigError: ``config.override`` if it is not ``key=value`` or has no value,
            ``config.yaml`` if the value is not YAML.
    """
    key, equals, value = text.partition("=")
    origin = f"override {text}"
    if not equals or not all(key.strip().split(".")):
        raise ConfigError(
            "config.override", f"found {text!r}; an override is key=value, as in optim.lr=3e-4", location=origin
        )
    keys = tuple(key.strip().split("."))

    def place(line: int, column: int) -> str:
        before = sum(len(earlier) + 1 for earlier in value.split("\n")[: line - 1])
        return f"{origin} at character {len(key) + 1 + before + column}"

    try:
        document = parse_yaml(value, origin, root=keys, place=place)
    except ConfigError as error:
        hint = error.hint or f"quote it: {key}='\"…\"'"
        raise ConfigError(error.code, error.message, hint=hint, location=error.location) from None
    if document.value is None and value.strip() not in ("null", "~", "Null", "NULL"):
        raise ConfigError(
            "config.override", f"{key} has no value", hint="nothing is null, empty text is '\"\"'", location=origin
        )
    return Override(keys, document.value, origin, document.places)


def read_overrides(text: str) -> list[Override]:
    """The settings of a file, ``@best.yaml``: a YAML file as a pipeline has one, of which any part may be missing.

    Raises:
        ConfigError: as ``read_text`` and ``parse_yaml``, or it holds something else than sections and settings.
    """
    source = text.removeprefix(FILE_MARK)
    document = parse_yaml(read_text(FilePath(source).expanduser(), source), source)
    if document.value is not None and not isinstance(document.value, dict):
        raise ConfigError("config.yaml", f"holds {show(document.value)}; needed: a mapping", location=f"{source}:1:1")
    values = document.value or {}
    return [Override((key,), value, document.places[(key,)], document.places) for key, value in values.items()]


def as_overrides(overrides: Overrides) -> tuple[list[Override], list[ConfigError]]:
    """All overrides that can be read, and an error for each that cannot, or that names a key again."""
    read: list[Override] = []
    errors: list[ConfigError] = []
    if isinstance(overrides, Mapping):
        read = [Override(tuple(k.split(".")), v, f"override {k}={show(v)}") for k, v in overrides.items()]
    else:
        for text in overrides:
            try:
                read += read_overrides(text) if text.startswith(FILE_MARK) else [parse_override(text)]
            except ConfigError as error:
                errors.append(error)
    first: dict[Keys, Override] = {}
    for override in read:
        earlier = first.setdefault(override.keys, override)
        if earlier is not override:
            message = (
                f"{'.'.join(override.keys)} is given twice; the first is {earlier.origin.removeprefix('override ')}"
            )
            errors.append(
                ConfigError("config.duplicate-key", message, hint="keep one of them", location=override.origin)
            )
    return list(first.values()), errors


def lay_over(
    schema: type[BaseModel], values: Mapping[str, Any], overrides: Sequence[Override]
) -> tuple[dict[str, Any], dict[Path, str], list[ConfigError]]:
    """Lays overrides over values. Sections merge; a setting is replaced; an entry of a mapping setting is set.

    Returns:
        The values, the origin of each key that an override set, and an error for each override that has no place.
    """
    result: dict[str, Any] = copy.deepcopy(dict(values))
    origins: dict[Path, str] = {}
    errors: list[ConfigError] = []
    for override in overrides:
        target: Any = result
        for depth, key in enumerate(override.keys[:-1], 1):
            if target.get(key) is None:
                target[key] = _start(schema, override.keys[:depth])
            target = target[key]
            if not isinstance(target, dict) and _is_section(schema, override.keys[:depth]):
                break  # the file holds something else than a section there, which is an error of its own
            if not isinstance(target, dict):
                name = ".".join(override.keys[:depth])
                message = f"{name} is a setting, not a section; it has no {'.'.join(override.keys[depth:])}"
                errors.append(ConfigError("config.override", message, hint=f"write {name}=…", location=override.origin))
                break
        else:
            errors += _merge(schema, target, override, override.keys, override.value, origins)
    return result, origins, errors


def _start(schema: type[BaseModel], keys: Keys) -> Any:
    """What an absent key holds before something below it is set: a mapping setting starts from its default."""
    followed, field = lookup(schema, keys)
    if followed != keys or field is None or section(field) is not None:
        return {}  # a section, or nothing known, which is an error of its own
    default = field.get_default(call_default_factory=True, validated_data={})
    return {} if default is None or default is PydanticUndefined else copy.deepcopy(default)


def _merge(
    schema: type[BaseModel],
    target: dict[str, Any],
    override: Override,
    keys: Keys,
    value: Any,
    origins: dict[Path, str],
) -> list[ConfigError]:
    """Sets what an override says about ``keys``; returns what is wrong with it."""
    key, origin = keys[-1], override.places.get(keys, override.origin)
    if _is_section(schema, keys):
        if isinstance(value, dict):
            if not isinstance(target.get(key), dict):
                target[key] = {}
            merged = (_merge(schema, target[key], override, (*keys, str(k)), v, origins) for k, v in value.items())
            return [error for errors in merged for error in errors]
        _, found = lookup(schema, keys)
        if value is None and found is not None and not takes_none(found.annotation):
            message = f"{'.'.join(keys)} is null; allowed: {allowed(found)}"
            hint = "sections merge and are never replaced; name the settings to change"
            return [ConfigError("config.value", message, hint=hint, location=origin)]
    for path in [p for p in origins if p[: len(keys)] == keys]:
        del origins[path]
    target[key] = value
    origins |= {path: place for path, place in override.places.items() if path[: len(keys)] == keys}
    origins[keys] = origin
    return []


def _is_section(schema: type[BaseModel], keys: Keys) -> bool:
    followed, field = lookup(schema, keys)
    return followed == keys and field is not None and section(field) is not None
