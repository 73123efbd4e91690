"""Curves of a sweep: the value of every trial, and the best so far. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pliant.report.envelope import short
from pliant.report.figures import HEIGHT, WIDTH, Mark, Tick
from pliant.report.sweep_axes import Scale, scale_of
from pliant.tune.results import SweepResults
from pliant.tune.settings import HALVING, POPULATION_BASED
from pliant.tune.table import Point, Trial
from pliant.tune.types import End, Loss, Mode, Report, loss_of

_HOUR_S = 3600.0
_MOST_POINTS = 24_000
"""Of all curves of a figure together: a report stays small however often trials report."""
_LEAST_POINTS = 12
_TOP_PX = 14
_LABEL_GAP = 5.0
_LOG_FROM = 3.0
_LOG_FIRST_FROM = 30.0

LOOKS = {
    "completed": "completed",
    "stopped": "stopped",
    "failed": "failed",
    "out-of-memory": "failed",
    "diverged": "failed",
}
"""How a trial is drawn, by its status; all others are ``open``."""


@dataclass(frozen=True)
class Path:
    """SVG path data, and whose it is: the number of a trial, or None for what is nobody's."""

    look: str
    data: str
    trial: int | None = None


@dataclass(frozen=True)
class Drawing:
    """A plot by one kind of y axis."""

    name: str
    ticks: Sequence[Tick]
    paths: Sequence[Path]


@dataclass(frozen=True)
class Plot:
    """A figure of a sweep.

    Attributes:
        drawings: the same with several y axes. shown: name of the one that is shown at first.
        x: labels of the x axis. marks: dashed lines. keys: look and meaning of curves.
        height: of the drawing, in pixels of the screen; None: as all figures.
    """

    name: str
    title: str
    unit: str
    drawings: Sequence[Drawing]
    shown: str
    x: Sequence[Tick]
    summary: str
    marks: Sequence[Mark] = ()
    keys: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    height: int | None = field(default=None)


def look_of(results: SweepResults, trial: Trial) -> str:
    """How a trial is drawn: ``best``, or by its status."""
    if results.best is not None and results.best.trial == trial.id:
        return "best"
    return LOOKS.get(results.status(trial), "open")


def curves(results: SweepResults) -> Plot | None:
    """The value of each trial over its samples; None before the first report."""
    trials = [trial for trial in results.trials if trial.reports]
    if not trials:
        return None
    x = Scale(0.0, float(max(results.milestones[-1], *(p.samples for t in trials for p in t.reports))))
    most = max(_LEAST_POINTS, _MOST_POINTS // len(trials))
    drawn = sorted(trials, key=lambda trial: _ORDER[look_of(results, trial)])
    bad = [(p, t) for t in trials for p in t.reports if p.value is None]

    def paths(y: Callable[[float], float]) -> list[Path]:
        found = [path for t in drawn for path in _curve(results, t, x, y, most)]
        marks = "".join(f"M{_x(x, p.samples)} 0v{_TOP_PX}" for p, _ in bad)
        return [*found, *([Path("bad", marks)] if marks else [])]

    values = [p.value for t in trials for p in t.reports if p.value is not None]
    drawings, shown = by_scale(values, results.state.mode, paths)
    looks = {look_of(results, trial) for trial in trials}
    notes = [f"{_counted(len(bad), 'report')} without a finite value, marked in red at the top"] if bad else []
    return Plot(
        name="values",
        title=results.metric,
        unit=f"of each trial by rows seen, {'smaller' if results.state.mode == 'min' else 'larger'} is better",
        drawings=drawings,
        shown=shown,
        x=x.ticks(),
        marks=milestone_marks(results, x),
        keys=[(look, words) for look, words in _WORDS.items() if look in looks],
        notes=notes,
        summary=f"{results.metric} of {len(trials)} trials, from {short(min(values))} to {short(max(values))}"
        if values
        else f"{results.metric}: no finite value",
    )


_ORDER = {"failed": 0, "stopped": 1, "open": 2, "completed": 3, "best": 4}
_WORDS = {
    "best": "the best",
    "completed": "trained to the end",
    "open": "may go on",
    "stopped": "stopped",
    "failed": "diverged or failed",
}


def best_so_far(results: SweepResults) -> list[Plot]:
    """The best value over the trials, and over what they have cost; none before the first value."""
    if results.best is None:
        return []
    return [_by_trial(results), *_by_hours(results)]


def _by_trial(results: SweepResults) -> Plot:
    mode, trials = results.state.mode, [t for t in results.trials if t.best is not None]
    x = Scale(0.5, len(results.trials) + 0.5)
    best = _improvements([(t.number + 1.0, t.best.value, t) for t in trials if t.best is not None], mode)

    def paths(y: Callable[[float], float]) -> list[Path]:
        dots = [
            Path(f"dots {look_of(results, t)}", f"M{_x(x, t.number + 1)} {y(t.best.value)}h0", t.number)
            for t in sorted(trials, key=lambda trial: _ORDER[look_of(results, trial)])
            if t.best is not None and t.best.value is not None
        ]
        return [Path("steps", _steps(best, x, y)), *dots]

    values = [t.best.value for t in trials if t.best is not None and t.best.value is not None]
    drawings, shown = by_scale(values, mode, paths)
    whole = [tick for tick in x.ticks() if tick.text.replace("k", "").isdigit()]
    return Plot(
        name="best-by-trial",
        title=f"best {results.metric} so far",
        unit="by trial, in the order of suggestion; a dot is a trial's own best",
        drawings=drawings,
        shown=shown,
        x=whole,
        summary=f"best {results.metric} after {len(results.trials)} trials: {short(best[-1][1])}",
        notes=_without_value(results),
    )


def _without_value(results: SweepResults) -> list[str]:
    missing = sum(trial.best is None for trial in results.trials)
    return [f"without a value: {_counted(missing, 'trial')}"] if missing else []


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _by_hours(results: SweepResults) -> list[Plot]:
    spent_s, reported = 0.0, []
    by_id = results.state.trials
    for entry in (logged.entry for logged in results.log):
        if isinstance(entry, (Report, Loss, End)):
            spent_s += entry.worker_seconds
        if isinstance(entry, Report):
            reported.append((spent_s / _HOUR_S, entry.value, by_id[entry.trial]))
    best = _improvements(reported, results.state.mode)
    if not spent_s or not best:
        return []
    x = Scale(0.0, spent_s / _HOUR_S)

    def paths(y: Callable[[float], float]) -> list[Path]:
        dots = [
            Path(f"dots {look_of(results, trial)}", f"M{_x(x, at)} {y(value)}h0", trial.number)
            for at, value, trial in best
        ]
        return [Path("steps", _steps([*best, (x.high, best[-1][1], best[-1][2])], x, y)), *dots]

    drawings, shown = by_scale([value for _, value, _ in best], results.state.mode, paths)
    return [
        Plot(
            name="best-by-hours",
            title=f"best {results.metric} so far",
            unit="by worker-hours of all trials together; a dot is the trial that did it",
            drawings=drawings,
            shown=shown,
            x=x.ticks(),
            summary=f"best {results.metric} by worker-hours: {short(best[-1][1])} after {short(best[-1][0])}",
        )
    ]


def _improvements(values: Iterable[tuple[float, float | None, Trial]], mode: Mode) -> list[tuple[float, float, Trial]]:
    """Those that are better than all before them."""
    found: list[tuple[float, float, Trial]] = []
    for at, value, trial in values:
        if value is not None and (not found or loss_of(value, mode) < loss_of(found[-1][1], mode)):
            found.append((at, value, trial))
    return found


def _steps(best: Sequence[tuple[float, float, Trial]], x: Scale, y: Callable[[float], float]) -> str:
    first, *rest = best
    end = "" if best[-1][0] >= x.high else f"H{WIDTH}"
    return f"M{_x(x, first[0])} {y(first[1])}" + "".join(f"H{_x(x, at)}V{y(value)}" for at, value, _ in rest) + end


def _curve(results: SweepResults, trial: Trial, x: Scale, y: Callable[[float], float], most: int) -> list[Path]:
    """A line with a piece for each generation, a clone's from its donor's report on; and dots for lone values."""
    lines, dots = "", ""
    for generation, group in groupby(trial.reports, key=lambda point: point.generation):
        points = [(p.samples, p.value) for p in [*_donors(results, trial, generation), *_thin(list(group), most)]]
        for finite, stretch in groupby(points, key=lambda point: point[1] is not None):
            places = [f"{_x(x, samples)} {y(value)}" for samples, value in stretch if value is not None]
            if finite and len(places) == 1:
                dots += f"M{places[0]}h0"
            elif finite:
                lines += "M" + "L".join(places)
    look = look_of(results, trial)
    return [Path(kind, data, trial.number) for kind, data in ((look, lines), (f"dots {look}", dots)) if data]


def _donors(results: SweepResults, trial: Trial, number: int) -> list[Point]:
    """The report of another trial that a generation went on from."""
    begun = trial.generations[number]
    if begun.donor is None:
        return []
    donor = results.state.trials[begun.donor]
    return [p for p in donor.reports if (p.samples, p.generation) == (begun.samples, begun.donor_generation)][:1]


def _thin(points: list[Point], most: int) -> list[Point]:
    """At most about so many of them, the first and the last among them."""
    step = math.ceil(len(points) / most)
    return points if step <= 1 else [*points[:-1:step], points[-1]]


def by_scale(
    values: Sequence[float], mode: Mode, paths: Callable[[Callable[[float], float]], list[Path]]
) -> tuple[list[Drawing], str]:
    """The same paths by a linear axis, and by a logarithmic one where that shows more; and the one to begin with.

    Args:
        values: that the axis has to hold, all finite.
        paths: draws them by a function from a value to its place from the top, in units of the drawing.
    """
    if not values:
        return [Drawing("linear", [], paths(lambda value: 0.0))], "linear"
    scales = [("linear", scale_of(values))]
    low, high = min(values), max(values)
    if low > 0 and high / low > _LOG_FROM:
        scales.append(("log", scale_of(values, log=True)))
    drawings = [
        Drawing(
            name,
            [Tick(round(100 - tick.at, 2), tick.text) for tick in scale.ticks()],
            paths(lambda value, scale=scale: round(HEIGHT * (1 - scale.place(value)), 1)),  # type: ignore[misc]
        )
        for name, scale in scales
        if scale is not None
    ]
    wide = len(scales) > 1 and mode == "min" and high / low > _LOG_FIRST_FROM
    return drawings, "log" if wide else "linear"


def milestone_marks(results: SweepResults, x: Scale) -> list[Mark]:
    """Where trials of halving schedulers and populations are compared."""
    kind = results.settings.scheduler.kind
    if kind not in HALVING and kind not in POPULATION_BASED:
        return []
    what = "rung" if kind in HALVING else "generation"
    marks: list[Mark] = []
    labelled = -math.inf
    for number, samples in enumerate(results.milestones[:-1], 1):
        at = round(100 * x.place(samples), 2)
        fits = at - labelled >= _LABEL_GAP
        labelled = at if fits else labelled
        marks.append(Mark(at, str(number), f"{what} {number}: {samples:,} rows", fits))
    return marks


def _x(scale: Scale, value: float) -> float:
    return round(WIDTH * scale.place(value), 1)
