"""Where two configurations differ, setting by setting, with both origins. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from pliant.config.dump import config_to_dict
from pliant.config.schema import Keys, Leaf, leaves


@dataclass(frozen=True)
class Side:
    """One side's value and where it came from; both None where the side has no such setting."""

    value: Any
    origin: str | None


@dataclass(frozen=True)
class Difference:
    """A setting that differs, and what a resume may do with it."""

    key: str
    on_resume: str
    a: Side
    b: Side


def diff_settings(
    a: BaseModel, b: BaseModel, origins_a: Mapping[str, str], origins_b: Mapping[str, str]
) -> list[Difference]:
    """All settings that differ, or that one side alone has, in the order of declaration.

    Args:
        a, b: the configurations; their models may differ, as two pipelines' do.
        origins_a, origins_b: by dotted key.
    """
    values_a, values_b = config_to_dict(a), config_to_dict(b)
    known: dict[Keys, Leaf] = {leaf.keys: leaf for config in (a, b) for leaf in leaves(type(config))}
    found = []
    for keys, leaf in known.items():
        sides = Side(*_at(values_a, origins_a, keys)), Side(*_at(values_b, origins_b, keys))
        if sides[0].value != sides[1].value or (sides[0].origin is None) != (sides[1].origin is None):
            found.append(Difference(leaf.dotted, leaf.on_resume, *sides))
    return found


def _at(values: Mapping[str, Any], origins: Mapping[str, str], keys: Keys) -> tuple[Any, str | None]:
    value: Any = values
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return None, None
        value = value[key]
    return value, origins.get(".".join(keys))
