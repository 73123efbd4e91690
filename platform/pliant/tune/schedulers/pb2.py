"""Population based bandits (Parker-Holder et al. 2020): PBT in which a Gaussian process chooses the numbers of a
clone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pliant.tune.draws import unit, units
from pliant.tune.schedulers.base import Member, Terms
from pliant.tune.schedulers.gaussian import best_candidate
from pliant.tune.schedulers.pbt import Pbt
from pliant.tune.types import Decision, Params, Report

CANDIDATES = 400
WINDOW = 80
"""The model learns from so many of the latest intervals."""
LEAST = 3
"""Intervals without which there is no model, and numbers are drawn anew."""


@dataclass(frozen=True, order=True)
class Interval:
    """What a trial gained between two milestones.

    Attributes:
        generation: number of the later one.
        number: of the trial.
        place: of its numbers, in the unit cube.
        gain: by how much the loss fell; minus infinity when there is none any more.
    """

    generation: int
    number: int
    place: tuple[float, ...]
    gain: float


class Pb2(Pbt):
    """Numbers that may change come from the model, choices are perturbed as in PBT."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._numbers = [d for d in terms.space.dimensions if d.mutable and d.kind != "choice"]
        self._before: dict[str, float] = {}
        self._intervals: list[Interval] = []

    def judge(self, member: Member, report: Report, crossed: range) -> Decision:
        if crossed:
            self._learn(member)
        return super().judge(member, report, crossed)

    def applying(self, member: Member, decision: Decision) -> None:
        if decision.action == "exploit" and decision.donor is not None:
            at = self.passed(decision.donor_samples or 0)
            self._before[member.id] = self.members[decision.donor].losses.get(at, math.inf)
        super().applying(member, decision)

    def changes(
        self, donor: Member, trial: str, generation: int, others: Sequence[Params]
    ) -> tuple[dict[str, float], dict[str, float]]:
        factors, places = super().changes(donor, trial, generation, others)
        names = [d.name for d in self._numbers]
        chosen = self._choose(trial, generation, others)
        places = {name: place for name, place in places.items() if name not in names}
        return factors, places | dict(zip(names, chosen, strict=True))

    def _learn(self, member: Member) -> None:
        loss = member.losses[member.reached]
        before = self._before.get(member.id, math.inf)
        self._before[member.id] = loss
        if math.isfinite(before):
            self._intervals.append(Interval(member.reached, member.number, self._place(member.params), before - loss))

    def _choose(self, trial: str, generation: int, others: Sequence[Params]) -> list[float]:
        """Places of the numbers, each in [0, 1)."""
        seed, names = self.terms.settings.seed, [d.name for d in self._numbers]
        known = sorted(self._intervals)[-WINDOW:]  # not in the order of arrival: sums would differ in their last bits
        if not names or len(known) < LEAST or not any(math.isfinite(i.gain) for i in known):
            return [unit(seed, "place", trial, generation, name) for name in names]
        drawn = units(seed, (CANDIDATES, len(names)), "candidates", trial, generation)
        worst = min(i.gain for i in known if math.isfinite(i.gain))
        best = best_candidate(
            x=np.array([i.place for i in known]),
            at=np.array([float(i.generation) for i in known]),
            y=np.array([max(i.gain, worst) for i in known]),
            pending=np.array([self._place(params) for params in others]).reshape(-1, len(names)),
            candidates=drawn,
            now=float(generation + 1),
        )
        return [float(place) for place in drawn[best]]

    def _place(self, params: Params) -> tuple[float, ...]:
        """Of the numbers in the unit cube; the middle for those that do not count. The space may have been narrowed."""
        inside = self.terms.space.clamp(params)
        return tuple(d.unit(inside[d.name]) if d.name in inside else 0.5 for d in self._numbers)
