"""Dotted overrides, ``optim.lr=3e-4``, and how they are laid over a file's values."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from pliant.config.schema import Keys, lookup, section, show
from pliant.config.yamlfile import Path, parse_yaml
from pliant.errors import ConfigError

Overrides = Sequence[str] | Mapping[str, Any]
"""``["optim.lr=3e-4"]`` from a command line, or ``{"optim.lr": 3e-4}`` from Python."""


@dataclass(frozen=True)
class Override:
    """One override: where it goes, its value, and how errors and origins call it."""

    keys: Keys
    value: Any
    origin: str


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
    try:
        document = parse_yaml(value, origin)
    except ConfigError as error:
        raise ConfigError(error.code, error.message, hint=f"quote it: {key}='\"…\"'", location=origin) from None
    if document.value is None and value.strip() not in ("null", "~", "Null", "NULL"):
        raise ConfigError(
            "config.override", f"{key} has no value", hint=f"write {key}=null or {key}='\"\"'", location=origin
        )
    return Override(tuple(key.strip().split(".")), document.value, origin)


def as_overrides(overrides: Overrides) -> tuple[list[Override], list[ConfigError]]:
    """All overrides that can be read, and an error for each that cannot, or that names a key again."""
    read: list[Override] = []
    errors: list[ConfigError] = []
    if isinstance(overrides, Mapping):
        read = [Override(tuple(k.split(".")), v, f"override {k}={show(v)}") for k, v in overrides.items()]
    else:
        for text in overrides:
            try:
                read.append(parse_override(text))
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
            _merge(schema, target, override.keys, override.value, origins, override.origin)
    return result, origins, errors


def _start(schema: type[BaseModel], keys: Keys) -> Any:
    """What an absent key holds before something below it is set: a mapping setting starts from its default."""
    followed, field = lookup(schema, keys)
    if followed != keys or field is None or section(field) is not None:
        return {}  # a section, or nothing known, which is an error of its own
    default = field.get_default(call_default_factory=True, validated_data={})
    return {} if default is None or default is PydanticUndefined else copy.deepcopy(default)


def _merge(
    schema: type[BaseModel], target: dict[str, Any], keys: Keys, value: Any, origins: dict[Path, str], origin: str
) -> None:
    key = keys[-1]
    if _is_section(schema, keys) and isinstance(value, dict):
        if not isinstance(target.get(key), dict):
            target[key] = {}
        for name, item in value.items():
            _merge(schema, target[key], (*keys, name), item, origins, origin)
        return
    for path in [p for p in origins if p[: len(keys)] == keys]:
        del origins[path]
    target[key] = value
    origins[keys] = origin


def _is_section(schema: type[BaseModel], keys: Keys) -> bool:
    followed, field = lookup(schema, keys)
    return followed == keys and field is not None and section(field) is not None
