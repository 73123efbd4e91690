"""Schedulers: which trials go on. Pure; one file and one line here for each kind."""

from __future__ import annotations

from collections.abc import Callable

from pliant.errors import ConfigError
from pliant.tune.schedulers.asha import Asha
from pliant.tune.schedulers.base import Terms
from pliant.tune.schedulers.halving import halving, hyperband
from pliant.tune.schedulers.median import Median
from pliant.tune.schedulers.none import Everything
from pliant.tune.schedulers.pb2 import Pb2
from pliant.tune.schedulers.pbt import Pbt
from pliant.tune.settings import POPULATION_BASED, SweepSettings
from pliant.tune.space import Space
from pliant.tune.types import Mode, Scheduler

KINDS: dict[str, Callable[[Terms], Scheduler]] = {
    "none": Everything,
    "asha": Asha,
    "halving": halving,
    "hyperband": hyperband,
    "median": Median,
    "pbt": Pbt,
    "pb2": Pb2,
}


def make_scheduler(settings: SweepSettings, *, length: int, rows: int, mode: Mode, space: Space) -> Scheduler:
    """A fresh scheduler of the kind ``settings.scheduler.kind``. What has happened already it is told afterwards.

    Args:
        length: samples of a trial in all, at least 1.
        rows: samples of an epoch, at least 1.

    Raises:
        ConfigError: a rung, a generation or a bracket lies beyond a trial's length, or there are fewer trials than a
            population needs.
    """
    kind, population = settings.scheduler.kind, settings.scheduler.population
    if kind in POPULATION_BASED and settings.trials < population:
        raise ConfigError(
            "config.scheduler",
            f"it is {settings.trials}; {kind} needs sweep.scheduler.population {population} or more",
            hint=f"use sweep.trials={population}, or a smaller population",
            location="sweep.trials",
        )
    return KINDS[kind](Terms(settings, length, rows, mode, space))
