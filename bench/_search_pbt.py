"""The quadratic on which population based training was shown first (Jaderberg et al. 2017, section 4.1 and figure 2).

Two workers maximize 1.2 - θ₀² - θ₁² from θ = (0.9, 0.9), each by gradient steps on 1.2 - h₀θ₀² - h₁θ₁², with
h = (1, 0) and (0, 1) to begin with: alone neither can. Every 4 of 200 steps the worse of them clones the better one's θ
and goes on with the better one's h, changed. Beside it stands each half of that by itself: clones of θ that keep their
own h, and changed h without a clone of θ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from pliant.tune.domains import Dimension
from pliant.tune.schedulers.base import Terms
from pliant.tune.schedulers.none import Everything
from pliant.tune.schedulers.pbt import Pbt
from pliant.tune.searchers import make_searcher
from pliant.tune.settings import SchedulerSettings, SearcherSettings, SweepSettings
from pliant.tune.simulate import Simulation, Stretch
from pliant.tune.space import Space
from pliant.tune.sweep import Sweep
from pliant.tune.types import Decision, Params, Scheduler

Kind = Literal["pbt", "exploit only", "explore only", "grid"]
KINDS: tuple[Kind, ...] = ("pbt", "exploit only", "explore only", "grid")
"""From the best to the worst, as published."""
STEPS, EVERY, RATE, BEGIN = 200, 4, 0.01, (0.9, 0.9)
RESAMPLE = 0.15
"""How often an h is drawn anew; the paper does not say it of this figure. At Pliant's default, 0.25, two numbers are
drawn so often that new ones alone are enough: PBT 1.199, explore only 1.182, exploit only 1.172."""
POINTS = ({"h0": 1.0, "h1": 0.0}, {"h0": 0.0, "h1": 1.0})


def train(theta: tuple[float, float] | None, h: Params, begin: int, end: int) -> Stretch:
    """Gradient steps; a sample is a step."""
    x, y = theta or BEGIN
    for _ in range(begin, end):
        x, y = x - RATE * 2 * h["h0"] * x, y - RATE * 2 * h["h1"] * y
    return Stretch((x, y), 1.2 - x * x - y * y, float(end - begin))


class ExploitOnly(Pbt):
    """A clone keeps its own parameters."""

    def decide(self) -> list[Decision]:
        return [
            replace(due, params=self.members[due.trial].params) if due.action == "exploit" else due
            for due in super().decide()
        ]


class ExploreOnly(Pbt):
    """Whoever would clone takes the new parameters, and goes on from its own state."""

    def decide(self) -> list[Decision]:
        return [
            replace(due, donor=due.trial, donor_samples=due.samples) if due.action == "exploit" else due
            for due in super().decide()
        ]


SCHEDULERS: dict[Kind, Callable[[Terms], Scheduler]] = {
    "pbt": Pbt,
    "exploit only": ExploitOnly,
    "explore only": ExploreOnly,
    "grid": Everything,
}


def best(kind: Kind, seed: int) -> float:
    """The best value of a population at its end."""
    space = Space(tuple(Dimension(name, "float", 0.0, 1.0) for name in POINTS[0]))
    population = SchedulerSettings(kind="pbt", population=2, quantile=0.5, every_epochs=EVERY, resample=RESAMPLE)
    settings = SweepSettings(
        seed=seed,
        trials=2,
        scheduler=SchedulerSettings(every_epochs=EVERY) if kind == "grid" else population,
        searcher=SearcherSettings(warm_start="the two points", warm_start_trials=2),
    )
    scheduler = SCHEDULERS[kind](Terms(settings, length=STEPS, rows=1, mode="max", space=space))
    searcher = make_searcher(
        settings, space, "max", milestones=scheduler.milestones, earlier=[(point, 0.0) for point in POINTS]
    )
    sweep = Sweep(settings, mode="max", scheduler=scheduler, searcher=searcher)
    Simulation(train, slots=2).run(sweep)
    return max(trial.last.value for trial in sweep.trials.values() if trial.last and trial.last.value is not None)
