"""What all searchers share: points of an earlier sweep first, no point twice, and draws that depend on nothing else."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import count

from pliant.errors import ConfigError
from pliant.tune.draws import unit
from pliant.tune.searchers.evidence import Evidence
from pliant.tune.settings import SweepSettings
from pliant.tune.space import Space
from pliant.tune.types import End, Mode, Params, Report, Suggestion, loss_of

REDRAWS = 200
"""Draws in a row that may be points which were tried before. Then the rest of the space is listed, where it can be."""
LISTED = 100_000
"""A space of fewer points than this can be listed."""

Proposal = tuple[Params, str]


class BaseSearcher:
    """A searcher without an idea of its own: subclasses say what comes after the earlier sweep's points.

    Args:
        milestones: samples at which every trial reports (the scheduler's).
        earlier: points of an earlier sweep with their values. The best ``warm_start_trials`` of those that this space
            contains are tried first.
    """

    def __init__(
        self,
        settings: SweepSettings,
        space: Space,
        mode: Mode,
        milestones: Sequence[int],
        earlier: Sequence[tuple[Params, float | None]] = (),
    ) -> None:
        self.settings = settings.searcher
        self.seed = settings.seed
        self.space = space
        known = [(params, value) for params, value in earlier if space.contains(params)]
        self.evidence = Evidence(mode, milestones, known)
        self._first = _best(known, mode)[: self.settings.warm_start_trials]
        self._tried: set[Hashable] = set()

    def suggest(self, number: int) -> Proposal | None:
        """Point and note of trial ``number``; None when every point of the space was tried.

        Raises:
            ConfigError: constraints refuse point after point.
        """
        if number < len(self._first):
            return self._first[number], "from the earlier sweep"
        return self.propose(number)

    def propose(self, number: int) -> Proposal | None:
        """Point and note of a trial after the earlier sweep's points."""
        raise NotImplementedError

    def add(self, suggestion: Suggestion) -> None:
        self._tried.add(_key(suggestion.params))
        if self.space.contains(suggestion.params):  # it may have been narrowed since
            self.evidence.add(suggestion)

    def observe(self, report: Report) -> None:
        self.evidence.observe(report)

    def end(self, end: End) -> None:
        self.evidence.end(end)

    def is_new(self, params: Params) -> bool:
        """Whether no trial has had this point."""
        return _key(params) not in self._tried

    def new_points(self) -> Iterator[Params]:
        """All points that were not tried, in the grid's order.

        Raises:
            ValueError: a dimension is a float.
        """
        return filter(self.is_new, self.space.grid())

    def random(self, number: int) -> Proposal | None:
        """A point drawn for this trial; None when every point was tried."""
        for attempt in range(REDRAWS):
            params = self._draw(number, attempt)
            if self.is_new(params):
                return params, "random"
        if math.prod(dimension.size or LISTED for dimension in self.space.dimensions) >= LISTED:
            return params, "random"
        left = list(self.new_points())
        return (left[int(unit(self.seed, "rest", number) * len(left))], "random") if left else None

    def _draw(self, number: int, attempt: int) -> Params:
        calls = count()
        try:
            return self.space.draw(lambda name: unit(self.seed, "suggest", number, attempt, next(calls), name))
        except ValueError as problem:
            texts = ", ".join(f"{constraint.text!r}" for constraint in self.space.constraints)
            raise ConfigError(
                "space.constraints", str(problem), hint=f"widen the space, or loosen its constraints: {texts}"
            ) from None


def _best(known: Sequence[tuple[Params, float | None]], mode: Mode) -> list[Params]:
    """The points, the best first, each once; without those that have no finite value."""
    found: dict[Hashable, Params] = {}
    for params, value in sorted(known, key=lambda pair: loss_of(pair[1], mode)):
        if math.isfinite(loss_of(value, mode)):
            found.setdefault(_key(params), params)
    return list(found.values())


def _key(params: Params) -> Hashable:
    return frozenset((name, type(value) is bool, value) for name, value in params.items())
