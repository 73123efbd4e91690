"""Trials as lines across parallel axes, one for each searched setting, the last for the value. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.report.figures import HEIGHT, WIDTH, Tick
from pliant.report.sweep_axes import Axis, Scale, scale_of
from pliant.report.sweep_figures import Path, look_of
from pliant.tune.domains import Dimension
from pliant.tune.results import SweepResults
from pliant.tune.table import Trial
from pliant.tune.types import loss_of

CLASSES = 5
"""Shades of trials with a value, from the best fifth to the worst."""
_NOWHERE = 1.08
"""Where a line crosses an axis on which it has no value: below its end."""
_LOG_FROM = 30.0


@dataclass(frozen=True)
class Upright:
    """An axis at a percentage of the figure's width; ``gaps``: not every trial has a value on it."""

    at: float
    name: str
    more: str
    ticks: Sequence[Tick]
    gaps: bool


@dataclass(frozen=True)
class Parallel:
    """The figure.

    Attributes:
        nowhere: percentage from the top of those without a value on an axis.
    """

    axes: Sequence[Upright]
    paths: Sequence[Path]
    nowhere: float
    summary: str


def parallel(results: SweepResults, dimensions: Sequence[Dimension]) -> Parallel | None:
    """The figure of a sweep that has begun a trial, of the present point of each; None without one."""
    trials = results.trials
    if not trials or not dimensions:
        return None
    axes = [Axis(dimension) for dimension in dimensions]
    values = {trial.number: trial.best.value for trial in trials if trial.best is not None}
    known = [value for value in values.values() if value is not None]
    better_low = results.state.mode == "min"
    log = bool(known) and better_low and min(known) > 0 and max(known) / min(known) > _LOG_FROM
    scale = scale_of(known, log=log, room=0.0 if len(set(known)) > 1 else 0.1) or Scale(0.0, 1.0)
    gaps: set[int] = set()

    def path(trial: Trial, look: str) -> Path:
        params = trial.generations[trial.best.generation].params if trial.best is not None else trial.params
        places = [1 - axis.place(params[axis.name]) if axis.name in params else _NOWHERE for axis in axes]
        value = values.get(trial.number)
        places.append(_NOWHERE if value is None else _value_place(scale, value, better_low))
        gaps.update(k for k, place in enumerate(places) if place == _NOWHERE)
        step = WIDTH / len(axes)
        points = [f"{round(k * step, 1)} {round(HEIGHT * y, 1)}" for k, y in enumerate(places)]
        return Path(look, "M" + "L".join(points), trial.number)

    paths = [path(trial, look) for trial, look in _ranked(results)]
    uprights = [
        Upright(round(100 * k / len(axes), 2), axis.name, _more(axis.dimension), _from_top(axis.ticks()), k in gaps)
        for k, axis in enumerate(axes)
    ]
    ticks = scale.ticks() if known else []
    if not better_low:
        ticks = _from_top(ticks)
    more = ("log, " if log else "") + ("smaller" if better_low else "larger") + " is better"
    uprights.append(Upright(100.0, results.metric, more, ticks, len(axes) in gaps))
    names = ", ".join(axis.name for axis in axes)
    summary = f"{len(trials)} trials by {names} and {results.metric}"
    return Parallel(uprights, paths, round(100 * _NOWHERE, 1), summary)


def _value_place(scale: Scale, value: float, better_low: bool) -> float:
    """From the top, where the best is."""
    return scale.place(value) if better_low else 1 - scale.place(value)


def _from_top(ticks: Sequence[Tick]) -> list[Tick]:
    return [Tick(round(100 - tick.at, 2), tick.text) for tick in ticks]


def _more(dimension: Dimension) -> str:
    return {"float": "log" if dimension.log else "", "int": "log" if dimension.log else "", "choice": "choice"}[
        dimension.kind
    ]


def _ranked(results: SweepResults) -> list[tuple[Trial, str]]:
    """Trials with their looks, the best last: what is drawn later lies above."""
    mode = results.state.mode
    known = [trial for trial in results.trials if trial.best is not None]
    known.sort(key=lambda trial: loss_of(trial.best.value if trial.best else None, mode), reverse=True)
    found = [(trial, "none") for trial in results.trials if trial.best is None]
    for place, trial in enumerate(known):
        fifth = CLASSES - 1 - CLASSES * place // len(known)
        found.append((trial, "best" if look_of(results, trial) == "best" else f"q{fifth}"))
    return sorted(found, key=lambda one: one[1] == "best")
