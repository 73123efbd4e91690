"""The published shape of PBT: the toy quadratic of Jaderberg et al. 2017, figure 2.

Two workers climb a surrogate of 1.2 − θ0² − θ1² whose two terms are weighted by hyperparameters; each begins with one
term alone. A generation is 4 of 200 steps; what counts is the mean over 20 seeds of the best value at the end.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from pliant.tune.domains import Dimension
from pliant.tune.schedulers.base import Member
from pliant.tune.schedulers.pbt import Pbt
from pliant.tune.space import Space
from pliant.tune.types import Decision, Entry, Params
from tests.tune.schedulers.driver import Sweep, make, settings

SEEDS, STEPS, EVERY, RATE = range(20), 200, 4, 0.01
SPACE = Space((Dimension("h0", "float", 0.0, 1.0), Dimension("h1", "float", 0.0, 1.0)))
State = tuple[float, float] | None


def climb(state: State, params: Params, before: int, now: int) -> tuple[State, float]:
    """Steps of gradient ascent on the surrogate; the value is that of the true function."""
    a, b = state or (0.9, 0.9)
    for _ in range(now - before):
        a, b = a - RATE * 2 * params["h0"] * a, b - RATE * 2 * params["h1"] * b
    return (a, b), 1.2 - a * a - b * b


class Pbt2(Sweep):
    """Trial 0 begins with the first term alone, trial 1 with the second."""

    def __init__(self, seed: int) -> None:
        own = settings("pbt", trials=2, seed=seed, every_epochs=EVERY / 100, population=2, quantile=0.5)
        scheduler = make(own, length=STEPS, mode="max", space=SPACE)
        super().__init__(scheduler, own, train=climb, batch=lambda number: 1, space=SPACE)

    def drawn(self, number: int) -> Params:
        return {"h0": 1.0 - number, "h1": float(number)}


class ExploitOnly(Pbt2):
    """A clone has its donor's weights, and keeps its own hyperparameters."""

    def apply(self, entry: Entry) -> None:
        if isinstance(entry, Decision) and entry.action == "exploit":
            entry = replace(entry, params=self.trials[entry.trial].params)
        super().apply(entry)


def best(sweep: Sweep) -> float:
    return max(trial.values[-1] or 0.0 for trial in sweep.run().trials.values())


def without_clones(seed: int, *, explore: bool) -> float:
    """Both workers alone, perturbed at each generation as PBT perturbs, or not at all: a grid of two points."""
    own = settings("pbt", seed=seed)
    pbt, found = make(own, space=SPACE), []
    assert isinstance(pbt, Pbt)
    for number in range(2):
        member, state, value = Member(f"t000{number}", number, {"h0": 1.0 - number, "h1": float(number)}), None, 0.0
        for generation in range(1, STEPS // EVERY + 1):
            state, value = climb(state, member.params, 0, EVERY)
            if explore:
                member.params = SPACE.perturb(member.params, *pbt.changes(member, member.id, generation, []))
        found.append(value)
    return max(found)


def test_pbt_is_better_than_either_half_of_it_and_those_than_a_grid() -> None:
    pbt = fmean(best(Pbt2(seed)) for seed in SEEDS)
    exploit = fmean(best(ExploitOnly(seed)) for seed in SEEDS)
    explore = fmean(without_clones(seed, explore=True) for seed in SEEDS)
    grid = without_clones(0, explore=False)
    assert pbt > exploit > explore > grid
    assert pbt >= 1.18
    assert exploit == pytest.approx(1.172, abs=0.001)
    assert grid == pytest.approx(0.390, abs=0.001)
