"""Whether two runs have the same curve: step by step, bit by bit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_OF_A_START = frozenset({"time", "data_s", "step_s", "attempt", "world_size"})
"""When, how fast and by which workers a step was made; anything else is what was computed."""


@dataclass(frozen=True)
class Comparison:
    """What two runs' metrics have in common.

    Attributes:
        steps: that both have.
        same: of those, equal in every figure that both recorded.
        first_difference: the first other step, or None.
        differences: its figures that differ, by name: the one's and the other's.
        only_one, only_other: steps that the other does not have.
        digests: of the steps that both have, those at which both recorded the parameters' digest.
    """

    steps: int
    same: int
    first_difference: int | None
    differences: Mapping[str, tuple[Any, Any]]
    only_one: int
    only_other: int
    digests: int


def compare(one: Iterable[Mapping[str, Any]], other: Iterable[Mapping[str, Any]]) -> Comparison:
    """Compares entries of ``metrics`` by step; floats must be the same bits."""
    ours, theirs = ({int(entry["step"]): entry for entry in side} for side in (one, other))
    common = sorted(ours.keys() & theirs.keys())
    different = {step: found for step in common if (found := _differences(ours[step], theirs[step]))}
    first = min(different, default=None)
    return Comparison(
        steps=len(common),
        same=len(common) - len(different),
        first_difference=first,
        differences={} if first is None else different[first],
        only_one=len(ours) - len(common),
        only_other=len(theirs) - len(common),
        digests=sum("digest" in ours[step] and "digest" in theirs[step] for step in common),
    )


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = [name for name in one if name in other and name not in _OF_A_START]
    return {name: (one[name], other[name]) for name in names if not _equal(one[name], other[name])}


def _equal(one: Any, other: Any) -> bool:
    """The same bits, as far as JSON has them: NaN equals NaN, and 0.0 is not −0.0."""
    return repr(one) == repr(other)
