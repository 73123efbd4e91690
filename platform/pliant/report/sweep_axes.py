"""Axes of a sweep's figures: numbers by their size or logarithm, choices one beside the other. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from pliant.config.dump import value_text
from pliant.report.envelope import labels, log_ticks, short, ticks
from pliant.report.figures import Tick
from pliant.tune.domainfile import Problems, read_entry
from pliant.tune.domains import Dimension, Value
from pliant.tune.searchable import SCHEDULE, Searchable

_ROOM = 0.05


@dataclass(frozen=True)
class Scale:
    """Numbers from ``low`` to ``high``, by their logarithm where ``log`` (then ``low`` is above 0)."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where a number lies: 0 at ``low``, 1 at ``high``, what is beyond at the end next to it."""
        inside = min(max(value, self.low), self.high)
        if self.low == self.high:
            return 0.5
        if self.log:
            return math.log(inside / self.low) / math.log(self.high / self.low)
        return (inside - self.low) / (self.high - self.low)

    def ticks(self, about: int = 5) -> list[Tick]:
        """Labels at percentages from ``low``."""
        if self.low == self.high:
            return [Tick(50.0, short(self.low))]
        values = log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high, about=about)
        if self.log and len(values) < 2:
            values = [self.low, self.high]
        texts = [short(v) for v in values] if self.log else labels(values)
        return [Tick(round(100 * self.place(v), 2), text) for v, text in zip(values, texts, strict=True)]


def scale_of(values: Iterable[float], *, log: bool = False, room: float = _ROOM) -> Scale | None:
    """A scale on which all of these finite numbers have their place, with some room around; None without any."""
    known = list(values)
    if not known:
        return None
    low, high = min(known), max(known)
    if log:
        factor = (high / low) ** room if high > low else 2.0
        return Scale(low / factor, high * factor, log=True)
    apart = high - low > 1e-12 * max(abs(low), abs(high))
    margin = (high - low) * room if apart else abs(high) * 0.1 or 1.0
    bottom = 0.0 if 0 <= low <= margin else low - margin
    return Scale(bottom, high + (margin if room or not apart else 0.0))


@dataclass(frozen=True)
class Axis:
    """A dimension of the search space, drawn."""

    dimension: Dimension

    @property
    def name(self) -> str:
        """Of the dimension."""
        return self.dimension.name

    def place(self, value: Value) -> float:
        """Where a value lies, from 0 to 1; 0.5 for a choice that there is not."""
        if self.dimension.kind != "choice":
            return self._scale.place(float(value))
        order = self.dimension.ordered
        return (order.index(value) + 0.5) / len(order) if value in order else 0.5

    def ticks(self) -> list[Tick]:
        """Labels at percentages from its low end."""
        if self.dimension.kind != "choice":
            return self._scale.ticks()
        return [Tick(round(100 * self.place(c), 2), value_text(c)) for c in self.dimension.ordered]

    @property
    def _scale(self) -> Scale:
        return Scale(self.dimension.low, self.dimension.high, self.dimension.log)


def dimensions_of(content: Mapping[str, Any] | None, points: Sequence[Mapping[str, Any]]) -> tuple[Dimension, ...]:
    """What was searched, in the order of the space's file.

    Args:
        content: of the file, as a sweep's first start has recorded it. Nothing is known of the pipeline here, so types
            are those of the file; they were checked when the sweep began.
        points: of all trials: dimensions of which the file says nothing that is understood are those of these values.
    """
    seen: dict[str, list[Any]] = {}
    for point in points:
        for name, value in point.items():
            seen.setdefault(name, []).append(value)
    found: dict[str, Dimension] = {}
    for name, value in _flat((content or {}).get("space")):
        if (dimension := _read(name, value)) is not None:
            found[name] = dimension
    for name, values in seen.items():
        if name not in found:
            found[name] = _seen(name, values)
    return tuple(found.values())


def _flat(space: Any) -> Iterator[tuple[str, Any]]:
    for key, value in space.items() if isinstance(space, Mapping) else ():
        if key == SCHEDULE and isinstance(value, Mapping):
            yield from ((f"{SCHEDULE}.{name}", inner) for name, inner in value.items())
        else:
            yield str(key), value


def _read(name: str, value: Any) -> Dimension | None:
    ranges = value if isinstance(value, Mapping) else {}
    annotation: Any = bool | int | float | str
    target = Searchable(name, FieldInfo(annotation=annotation), "choice", True)
    if "int" in ranges:
        target = Searchable(name, FieldInfo(annotation=int), "whole", True)
    elif "choice" not in ranges and ("float" in ranges or "log" in ranges):
        target = Searchable(name, FieldInfo(annotation=float), "number", True)
    entry = read_entry(target, value, ("space", name), Problems("", {}))
    return None if entry is None else entry.dimension


def _seen(name: str, values: Sequence[Any]) -> Dimension:
    """The smallest domain that has these values."""
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v) for v in values):
        return Dimension(name, "float", float(min(values)), float(max(values)))
    return Dimension(name, "choice", choices=tuple(dict.fromkeys(values)))
