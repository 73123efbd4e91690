"""The dimensions of a search space: what one searched setting may be. Pure.

Every dimension maps the unit interval onto its domain and back, so that whoever draws, models or mutates points needs
no knowledge of kinds. Floats lie on a fine grid (a millionth of the range, or six significant digits): they can be read
by people, and ``value(unit(v)) == v`` holds exactly for every ``v`` that ``clamp`` leaves as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Value = float | int | str | bool
Kind = Literal["float", "int", "choice"]
_DIGITS = 6
"""Significant digits of logarithmic floats; decimals of the others, relative to their range."""
_MOST_DIGITS = 12
"""Significant digits of a float at most, so that the grid is never as fine as the type's own."""


@dataclass(frozen=True)
class Dimension:
    """One searched setting.

    Attributes:
        name: the setting's dotted key, or ``schedule.peak`` (the learning rate at the top of the schedule) and
            ``schedule.warmup_ratio`` (the warm-up's share of the whole).
        kind: ``float`` and ``int`` have bounds, ``choice`` has choices.
        low, high: both inclusive; 0 for a choice.
        log: whether it is searched by its logarithm; then ``low`` is above 0.
        step: ``int``: values are ``low``, ``low + step`` … ``high``.
        choices: in the order of the file, all different.
        mutable: whether it may change in the middle of a run.
        when: by name of another dimension, the values of it with which this one counts; all of them must hold.
    """

    name: str
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: int = 1
    choices: tuple[Value, ...] = ()
    mutable: bool = True
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    @property
    def size(self) -> int | None:
        """How many values there are; None for floats."""
        if self.kind == "choice":
            return len(self.choices)
        return int(self.high - self.low) // self.step + 1 if self.kind == "int" else None

    @property
    def values(self) -> tuple[Value, ...]:
        """All values of a choice, or of whole numbers, in order.

        Raises:
            ValueError: it is a float.
        """
        if self.kind == "float":
            raise ValueError(f"{self.name} is a float")
        if self.kind == "choice":
            return self.choices
        return tuple(range(int(self.low), int(self.high) + 1, self.step))

    @property
    def ordered(self) -> tuple[Value, ...]:
        """The choices as neighbours follow each other: numbers by size, others as the file lists them."""
        numbers = [c for c in self.choices if not isinstance(c, (str, bool))]
        return tuple(sorted(numbers)) if len(numbers) == len(self.choices) else self.choices

    def value(self, unit: float) -> Value:
        """The value at a place in [0, 1): equal lengths are equally likely draws."""
        if self.kind == "choice":
            return self.choices[min(int(unit * len(self.choices)), len(self.choices) - 1)]
        if unit in (0, 1):
            return self.clamp(self.high if unit else self.low)
        low, high = self._ends()
        place = low + unit * (high - low)
        return self.clamp(math.exp(place) if self.log else place)

    def unit(self, value: Value) -> float:
        """The place of a value in [0, 1]: the middle of those that give it, for choices and whole numbers.

        Raises:
            ValueError: it is not in the domain.
        """
        if not self.contains(value):
            raise ValueError(f"{self.name} {value!r} is outside of its domain")
        if self.kind == "choice":
            return (self.choices.index(value) + 0.5) / len(self.choices)
        if self.kind == "float" and value in (self.low, self.high):
            return float(value != self.low)
        low, high = self._ends()
        number = float(value)
        return min(1.0, max(0.0, ((math.log(number) if self.log else number) - low) / (high - low)))

    def contains(self, value: object) -> bool:
        """Whether a value is in the domain, and of its type."""
        if self.kind == "choice":
            return any(value == c and isinstance(value, bool) == isinstance(c, bool) for c in self.choices)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not self.low <= value <= self.high:
            return False
        return self.kind == "float" or (isinstance(value, int) and (value - int(self.low)) % self.step == 0)

    def clamp(self, value: float) -> Value:
        """The number of the domain next to a number; of a choice among numbers the nearest one.

        Raises:
            ValueError: a choice of other things than numbers.
        """
        if self.kind == "choice":
            numbers = [c for c in self.ordered if not isinstance(c, (str, bool))]
            if not numbers:
                raise ValueError(f"{self.name} is a choice of {self.choices}")
            return min(numbers, key=lambda c: abs(c - value))
        if self.kind == "int":
            low, most = int(self.low), int(self.high - self.low) // self.step
            steps = (min(max(value, self.low), self.high) - self.low) / self.step
            return low + min(most, math.floor(steps + 0.5)) * self.step
        inside = min(max(value, self.low), self.high)
        if self.log:
            rounded = float(f"{inside:.{_DIGITS}g}")
        else:
            fine = _DIGITS - math.floor(math.log10(self.high - self.low))
            most = _MOST_DIGITS - math.ceil(math.log10(max(abs(self.low), abs(self.high))))
            rounded = round(inside, min(fine, most))
        return min(max(rounded, self.low), self.high) + 0.0  # no negative zero

    def perturb(self, value: Value, factor: float) -> Value:
        """A neighbour: a number times the factor, at least one step away; the next choice for a factor above 1, the one
        before for one below. Stays at the ends of its domain."""
        up = factor > 1
        if self.kind == "choice":
            order = self.ordered
            return order[min(max(order.index(value) + (1 if up else -1), 0), len(order) - 1)]
        number = float(value)
        if self.kind == "int":
            wanted = self.clamp(number * factor)
            nearest = number + (self.step if up else -self.step)
            return self.clamp(nearest) if wanted == value else wanted
        return self.clamp(number * factor)

    def contains_domain(self, other: Dimension) -> bool:
        """Whether every value of another dimension is one of this one."""
        if other.kind == "float":
            return self.kind == "float" and self.low <= other.low and other.high <= self.high
        if self.kind == "int" and other.kind == "int":
            aligned = other.step % self.step == 0 or other.size == 1
            return aligned and self.contains(int(other.low)) and self.contains(other.values[-1])
        return all(self.contains(value) for value in other.values)

    def _ends(self) -> tuple[float, float]:
        """The ends of what the unit interval maps onto; whole numbers get half a step on each side."""
        half = self.step / 2 if self.kind == "int" else 0.0
        low, high = self.low - half, self.high + half
        return (math.log(max(low, self.low / 2)), math.log(high)) if self.log else (low, high)
