"""What was observed of the trials, as a model wants it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from pliant.tune.types import End, Mode, Params, Report, Suggestion, loss_of

LOST = ("failed", "diverged", "out-of-memory")
"""Ends after which a point counts as worse than all others: the next trial there would most likely end alike."""


@dataclass(frozen=True)
class Observation:
    """A point of the space and how good it is.

    Attributes:
        level: milestones that the trial had passed. More of them means better: schedulers stop the worse ones.
        loss: smaller is better; infinite for the worst of all.
    """

    params: Params
    level: int
    loss: float

    @property
    def rank(self) -> tuple[float, float]:
        """Sorts points, the best first; what has no finite loss comes last whatever it had passed."""
        return (-self.level if math.isfinite(self.loss) else 1, self.loss)


@dataclass
class _Trial:
    number: int
    params: Params
    losses: dict[int, float] = field(default_factory=dict)
    lost: bool = False


class Evidence:
    """Collects facts. What it says does not depend on the order in which different trials reported. Trials that were
    not added are passed over.

    Args:
        milestones: samples at which every trial reports, ascending. A trial reports a little above them, by its own
            batch; so trials are compared at the same milestone, not at the same samples.
        earlier: points of an earlier sweep with their values; they count as trained to the end.
    """

    def __init__(self, mode: Mode, milestones: Sequence[int], earlier: Sequence[tuple[Params, float | None]]) -> None:
        self.mode = mode
        self.milestones = tuple(milestones)
        self._earlier = [Observation(params, len(self.milestones), loss_of(value, mode)) for params, value in earlier]
        self._trials: dict[str, _Trial] = {}

    def add(self, suggestion: Suggestion) -> None:
        self._trials[suggestion.trial] = _Trial(suggestion.number, suggestion.params)

    def observe(self, report: Report) -> None:
        if (trial := self._trials.get(report.trial)) is not None:
            trial.losses[bisect_right(self.milestones, report.samples)] = loss_of(report.value, self.mode)

    def end(self, end: End) -> None:
        if end.how in LOST and end.trial in self._trials:
            self._trials[end.trial].lost = True

    def newest(self) -> list[Observation]:
        """Every trial of which something is known, at the last milestone that it has passed; in order of suggestion."""
        points = list(self._earlier)
        for trial in self._sorted():
            if trial.lost:
                points.append(Observation(trial.params, 0, math.inf))
            elif trial.losses:
                level = max(trial.losses)
                points.append(Observation(trial.params, level, trial.losses[level]))
        return points

    def at_highest(self, enough: int) -> list[Observation]:
        """All trials at one milestone: the highest that at least ``enough`` have passed; empty when none is. A lost
        trial counts at each of them."""
        for level in range(len(self.milestones), 0, -1):
            points = self._at(level)
            if len(points) >= enough:
                return points
        return []

    def _at(self, level: int) -> list[Observation]:
        points = [point for point in self._earlier if point.level == level]
        for trial in self._sorted():
            passed = [beyond for beyond in trial.losses if beyond >= level]
            if trial.lost:
                points.append(Observation(trial.params, level, math.inf))
            elif passed:
                points.append(Observation(trial.params, level, trial.losses[min(passed)]))
        return points

    def _sorted(self) -> list[_Trial]:
        return sorted(self._trials.values(), key=lambda trial: trial.number)
