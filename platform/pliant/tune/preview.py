"""What a sweep will come to, before anything starts. Pure: the sweep itself, its scheduler included, on made-up curves.

How many trials reach which rung follows from the scheduler alone where it compares all trials of a rung together
(``halving``, ``hyperband``) or keeps all of them (``none``, ``pbt``, ``pb2``). Where it compares one with those before
it (``asha``, ``median``) it depends on luck: the figures are means over trials in random orders.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pliant.tune.build import Search, build_sweep
from pliant.tune.draws import unit
from pliant.tune.settings import HALVING, POPULATION_BASED, BudgetSettings, SearcherSettings
from pliant.tune.simulate import Simulation, curves
from pliant.tune.types import Mode, Params

_DEPENDS_ON_LUCK = ("asha", "median")
_HOUR_S = 3600.0
_DECAY = 3.0
"""Made-up curves have come down to e to the power of minus this at a trial's end."""
_MOST_COURSES, _MOST_TRIALS = 20, 2000
"""Made-up courses whose mean is taken, and trials in all of them together."""
_SLOTS = 8
"""Trials at once where ``sweep.slots`` does not say how many."""


@dataclass(frozen=True)
class Stage:
    """A way between two reports, for all trials that go it.

    Attributes:
        at: what is at its end: ``rung 1 of 3``, ``generation 2 of 9``, ``report 1 of 4``, ``end``.
        samples: of a trial there, in all.
        trials: that get there.
        rows: that all of them train on the way.
    """

    at: str
    samples: int
    trials: int
    rows: int


@dataclass(frozen=True)
class Preview:
    """What a sweep will come to.

    Attributes:
        trials: in all.
        length: samples of a trial that is trained to its end.
        exact: whether the numbers of trials are certain, errors and losses aside.
        rows: trained by all trials.
        to_the_end: rows if all trials were trained to their end.
        worker_hours, cost: where seconds per row, and a price, are known.
    """

    trials: int
    length: int
    exact: bool
    stages: tuple[Stage, ...]
    rows: int
    to_the_end: int
    worker_hours: float | None
    cost: float | None


def preview(search: Search, *, worker_seconds_per_row: float | None = None) -> Preview:
    """What a new sweep will come to. Its budgets do not end it here, and nothing fails.

    Args:
        worker_seconds_per_row: that a trial needs for a row, times its workers.
    """
    settings, kind = search.settings, search.settings.scheduler.kind
    searcher = settings.searcher if settings.searcher.kind == "grid" else SearcherSettings()
    free = settings.model_copy(update={"searcher": searcher, "budget": BudgetSettings()})
    plain = replace(search, settings=free, earlier=())
    exact = kind not in _DEPENDS_ON_LUCK
    courses = [_course(plain, 0)]
    if not exact:
        more = min(_MOST_TRIALS // max(courses[0].begun, 1), _MOST_COURSES)
        courses += [_course(plain, number) for number in range(1, more)]
    milestones = courses[0].milestones
    stages = tuple(
        Stage(
            at=_at(kind, number, len(milestones)),
            samples=milestone,
            trials=round(sum(course.there[number] for course in courses) / len(courses)),
            rows=round(sum(course.rows[number] for course in courses) / len(courses)),
        )
        for number, milestone in enumerate(milestones)
    )
    rows = sum(stage.rows for stage in stages)
    hours = None if worker_seconds_per_row is None else rows * worker_seconds_per_row / _HOUR_S
    price = settings.budget.price_per_worker_hour
    return Preview(
        trials=courses[0].begun,
        length=search.length,
        exact=exact,
        stages=stages,
        rows=rows,
        to_the_end=courses[0].begun * search.length,
        worker_hours=hours,
        cost=None if hours is None or price is None else hours * price,
    )


@dataclass(frozen=True)
class _Course:
    """One made-up course of a sweep: by number of a milestone, trials that get there and rows on the way."""

    begun: int
    milestones: Sequence[int]
    there: Sequence[int]
    rows: Sequence[int]


def _course(search: Search, number: int) -> _Course:
    sweep = build_sweep(search)
    curve = curves(_made_up(search.mode, search.length, number))
    simulation = Simulation(curve, slots=search.settings.slots or _SLOTS)
    sweep.begin()
    simulation.run(sweep)
    milestones = sweep.milestones
    rows, there = [0] * len(milestones), [set[str]() for _ in milestones]
    before = 0
    for moment in simulation.history:
        stage = max(bisect_right(milestones, moment.at) - 1, 0)
        rows[stage] += moment.samples - before
        there[stage].add(moment.trial)
        before = moment.samples
    return _Course(len(sweep.trials), milestones, [len(trials) for trials in there], rows)


def _made_up(mode: Mode, length: int, number: int) -> Callable[[Params, int], tuple[float, float]]:
    """Curves that all fall alike, to an end that is drawn for each point; a second a row."""

    def value(params: Params, samples: int) -> tuple[float, float]:
        loss = unit(number, "preview", sorted(params.items())) + math.exp(-_DECAY * samples / length)
        return (loss if mode == "min" else -loss), float(samples)

    return value


def _at(kind: str, number: int, milestones: int) -> str:
    if kind in POPULATION_BASED:
        return f"generation {number + 1} of {milestones}"
    if number == milestones - 1:
        return "end"
    return f"{'rung' if kind in HALVING else 'report'} {number + 1} of {milestones - 1}"
