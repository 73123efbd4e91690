"""A search space: its dimensions, when they count, and what must hold between them. Pure.

A point (``Params``) has a value for each dimension that counts with the others' values, and for no other. All points
are made here (drawn, perturbed, from a searcher's model), so that none ever lies outside of the space.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import Any

from pliant.settings import RunConfig
from pliant.tune.constraints import Constraint
from pliant.tune.domains import Dimension, Value
from pliant.tune.point import Coupling, settings_of
from pliant.tune.types import Params

TRIES = 1000
"""Draws that a constraint may refuse in a row. A space of which less than about one in a hundred points is allowed is
refused when it is loaded."""


@dataclass(frozen=True)
class Space:
    """What is searched.

    Attributes:
        dimensions: each after those that it depends on, otherwise in the order of the file.
        constraints: all of them hold for every point.
        coupling: how the learning rate follows the global batch.
    """

    dimensions: tuple[Dimension, ...]
    constraints: tuple[Constraint, ...] = ()
    coupling: Coupling = "none"

    @cached_property
    def by_name(self) -> Mapping[str, Dimension]:
        """The dimensions by name."""
        return {dimension.name: dimension for dimension in self.dimensions}

    def active(self, values: Mapping[str, Any]) -> tuple[Dimension, ...]:
        """The dimensions that count with these values, in order. What does not count in ``values`` changes nothing."""
        found: dict[str, Dimension] = {}
        for dimension in self.dimensions:
            if all(other in found and values[other] in wanted for other, wanted in dimension.when.items()):
                found[dimension.name] = dimension
        return tuple(found.values())

    def allowed(self, params: Params) -> bool:
        """Whether all constraints hold."""
        return all(constraint.holds(params) for constraint in self.constraints)

    def contains(self, params: Params) -> bool:
        """Whether it is a point of the space."""
        for name, value in params.items():
            if name not in self.by_name or not self.by_name[name].contains(value):
                return False
        try:
            names = {dimension.name for dimension in self.active(params)}
        except KeyError:  # one that counts is missing
            return False
        return names == set(params) and self.allowed(params)

    def draw(self, unit: Callable[[str], float]) -> Params:
        """A point, drawn.

        Args:
            unit: gives a number in [0, 1) for a dimension; called in order for each that counts, and for all of them
                again where a constraint refuses the point: it has to go on then.

        Raises:
            ValueError: constraints refuse point after point.
        """
        for _ in range(TRIES):
            params = self._walk(lambda dimension: dimension.value(unit(dimension.name)))
            if self.allowed(params):
                return params
        raise ValueError(f"no point among {TRIES} drawn ones meets the constraints")

    def to_unit(self, params: Params) -> dict[str, float]:
        """Places in [0, 1] of a point's values.

        Raises:
            ValueError: a value is outside of its domain.
        """
        return {name: self.by_name[name].unit(value) for name, value in params.items()}

    def from_unit(self, units: Mapping[str, float]) -> Params:
        """The point with these places; a place of what does not count is left out, a missing one is the middle.
        Constraints are not asked: ``allowed`` does that."""
        return self._walk(lambda dimension: dimension.value(units.get(dimension.name, 0.5)))

    def clamp(self, params: Mapping[str, Any]) -> Params:
        """The point of the space next to given values: numbers move into their domain, what is missing, or a choice
        that there is not, becomes the middle. Constraints are not asked."""
        return self._walk(lambda dimension: _inside(dimension, params.get(dimension.name)))

    def perturb(self, params: Params, factors: Mapping[str, float], units: Mapping[str, float] | None = None) -> Params:
        """A point of the space near another one, for a run that goes on with it.

        Args:
            params: a point, also one of the space before it was narrowed.
            factors: by dimension, what a number is multiplied by; above 1 means the next choice, below the one before.
            units: by dimension, places in [0, 1) of values that are drawn anew, also of those that count only now
                (default: the middle).

        Returns:
            The point with these changes to its mutable dimensions. Where constraints refuse it, changes are taken back,
            the last dimension's first, until they hold.
        """
        anew = units or {}
        changed = [d.name for d in self.dimensions if d.mutable and (d.name in factors or d.name in anew)]
        for kept in range(len(changed), -1, -1):
            changing = set(changed[:kept])

            def near(dimension: Dimension, changing: set[str] = changing) -> Value:
                name = dimension.name
                if name not in params:
                    return dimension.value(anew.get(name, 0.5))
                value: Value = _inside(dimension, params[name]) if dimension.mutable else params[name]
                if name not in changing:
                    return value
                return dimension.value(anew[name]) if name in anew else dimension.perturb(value, factors[name])

            point = self._walk(near)
            if self.allowed(point):
                return point
        return params

    def grid(self) -> Iterator[Params]:
        """Every point once, the last dimension fastest.

        Raises:
            ValueError: a dimension is a float.
        """
        seen: set[tuple[tuple[str, Any], ...]] = set()
        for values in product(*(dimension.values for dimension in self.dimensions)):
            whole = dict(zip(self.by_name, values, strict=True))
            params = self._walk(lambda dimension, whole=whole: whole[dimension.name])  # type: ignore[misc]
            key = tuple(params.items())
            if key not in seen and self.allowed(params):
                seen.add(key)
                yield params

    def contains_space(self, other: Space) -> bool:
        """Whether another space is this one, or a narrower one."""
        return not self.widened_by(other)

    def widened_by(self, other: Space) -> str:
        """What keeps another space from being a narrower one, for people; empty when it is one: the same dimensions and
        conditions, each domain inside of this one's, no constraint less."""
        mine, theirs = self.by_name, other.by_name
        changed = [f"{name} is not searched any more" for name in mine if name not in theirs]
        changed += [f"{name} was not searched" for name in theirs if name not in mine]
        for name in [name for name in mine if name in theirs]:
            if not mine[name].contains_domain(theirs[name]):
                changed.append(f"{name} goes beyond its domain")
            elif mine[name].when != theirs[name].when:
                changed.append(f"{name} has another condition")
        kept = {constraint.text for constraint in other.constraints}
        changed += [f"the constraint {c.text!r} is gone" for c in self.constraints if c.text not in kept]
        if self.coupling != other.coupling:
            changed.append(f"the learning rate followed the batch by {self.coupling}, now by {other.coupling}")
        return ", ".join(changed)

    def to_json(self) -> dict[str, Any]:
        """The space as JSON values."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Space:
        """The inverse of ``to_json``."""
        dimensions = [
            Dimension(**{**d, "choices": tuple(d["choices"]), "when": {n: tuple(v) for n, v in d["when"].items()}})
            for d in values["dimensions"]
        ]
        return cls(tuple(dimensions), tuple(Constraint(**c) for c in values["constraints"]), values["coupling"])

    def settings(self, params: Params, *, samples: int, base: RunConfig) -> dict[str, Any]:
        """The settings of a trial by dotted key, as overrides of the configuration that all trials share.

        Args:
            params: a point of the space.
            samples: the trial's whole length, in rows.
            base: the configuration; its learning rate and batch are what the coupling refers to.
        """
        return settings_of(params, samples=samples, base=base, coupling=self.coupling)

    def _walk(self, value: Callable[[Dimension], Value]) -> dict[str, Value]:
        params: dict[str, Value] = {}
        for dimension in self.dimensions:
            if all(other in params and params[other] in wanted for other, wanted in dimension.when.items()):
                params[dimension.name] = value(dimension)
        return params


def _inside(dimension: Dimension, value: Any) -> Value:
    """The value of a domain next to a given one; the middle where there is no telling."""
    if dimension.contains(value):
        return value  # type: ignore[no-any-return]
    texts = any(isinstance(choice, (str, bool)) for choice in dimension.choices)
    if texts or isinstance(value, bool) or not isinstance(value, (int, float)):
        return dimension.value(0.5)
    return dimension.clamp(value)
