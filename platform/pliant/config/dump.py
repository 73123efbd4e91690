"""Settings as canonical YAML, and their digest. The same settings give the same bytes, whatever they were read from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel

from pliant.config.yamlfile import scalar

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*(://[A-Za-z0-9_./+-]*)?")


def config_to_dict(config: BaseModel) -> dict[str, Any]:
    """All settings, defaults included, as plain values under the names that files use."""
    return config.model_dump(mode="json", by_alias=True)


def config_to_yaml(config: BaseModel, origins: Mapping[str, str] | None = None) -> str:
    """All settings as YAML; reading it gives the same settings, every float bit for bit.

    Args:
        config: the settings.
        origins: by dotted key; where given, each line ends with a comment that says where its value came from.
    """
    return "\n".join(_lines(config, "", origins or {})) + "\n"


def config_digest(config: BaseModel) -> str:
    """blake2b, 32 hex digits, over the canonical YAML."""
    return blake2b(config_to_yaml(config).encode(), digest_size=16).hexdigest()


def _lines(config: BaseModel, prefix: str, origins: Mapping[str, str]) -> Iterator[str]:
    indent = "  " * prefix.count(".")
    for name, info in type(config).model_fields.items():
        key, value = info.alias or name, getattr(config, name)
        if isinstance(value, BaseModel) and type(value).model_fields:
            yield f"{indent}{key}:"
            yield from _lines(value, f"{prefix}{key}.", origins)
        else:
            line = f"{indent}{key}: {value_text(value)}"
            origin = origins.get(f"{prefix}{key}")
            yield f"{line}  # {origin}" if origin else line


def value_text(value: Any) -> str:
    """One value in flow style."""
    if isinstance(value, BaseModel):  # a section without settings, or a model inside a list
        value = value.model_dump(by_alias=True)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(str(k))}: {value_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return _text(str(value))


def _text(text: str) -> str:
    plain = _PLAIN.fullmatch(text) is not None and isinstance(scalar(text), str)
    if plain:
        return text
    quoted = json.dumps(text, ensure_ascii=False)  # escapes as YAML does, but leaves what YAML does not take as it is
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
