"""Curves as SVG that stretches to any width: no script and nothing from elsewhere is needed to see them. Pure.

Labels are HTML beside the drawing, placed by percent, so that they keep their size on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pliant.report.collect import Collected
from pliant.report.envelope import Envelope, envelope, labels, log_ticks, short, ticks
from pliant.track.lives import Columns

WIDTH, HEIGHT = 1000, 300
PIECES = 700
"""Points of a curve at most: about one for each pixel that a figure is wide."""
_MOST_METRICS = 24
_MOST_MARKS = 200
_LABEL_GAP = 4.5
_STEPS_NAMED = 4
_NO_CURVE = frozenset(
    {"step", "epoch", "position", "samples", "tokens", "loss", "lr", "grad_norm", "weight", "world_size", "skipped"}
    | {"global_batch", "data_s", "step_s", "seconds", "time", "attempt"}
)
_LARGEST = 1e300
"""What lies beyond is drawn there: differences of larger numbers are infinite."""


@dataclass(frozen=True)
class Curve:
    """One series of a figure.

    Attributes:
        look: ``line``, or ``dots`` for what is measured now and then.
    """

    label: str
    points: Envelope
    look: str = "line"


@dataclass(frozen=True)
class Tick:
    """A label at a percentage of an axis's length."""

    at: float
    text: str


@dataclass(frozen=True)
class Scale:
    """A figure drawn with one kind of y axis: SVG path data by curve, and the labels of the axis.

    Attributes:
        lines, bands: path data of each curve; a band is the area between its smallest and largest values.
    """

    name: str
    ticks: Sequence[Tick]
    lines: Sequence[str]
    bands: Sequence[str]


@dataclass(frozen=True)
class Mark:
    """Where an attempt begins."""

    at: float
    text: str
    title: str
    labelled: bool


@dataclass(frozen=True)
class Figure:
    """All that a figure shows.

    Attributes:
        scales: linear, and logarithmic where that is possible.
        shown: name of the one that is shown at first.
        bad: path data of ticks where values are not finite.
        notes: what must be said about it.
        hover: what the pointer reads: numbers by curve and piece.
    """

    name: str
    title: str
    unit: str
    curves: Sequence[Curve]
    scales: Sequence[Scale]
    shown: str
    steps: Sequence[Tick]
    marks: Sequence[Mark]
    bad: str
    notes: Sequence[str]
    summary: str
    hover: dict[str, Any] = field(repr=False)


def figures(run: Collected) -> tuple[list[Figure], list[str]]:
    """The figures of a run that has taken a step, and what is left out of them."""
    if not len(steps_of(run.train)):
        return [], []
    train, evals = _curves(run.train), _curves(run.evaluations)
    own = [name for name in dict.fromkeys([*run.train, *run.evaluations]) if name not in _NO_CURVE]
    wanted: list[tuple[str, str, str, list[Curve]]] = []
    for name in ["loss", *own[:_MOST_METRICS]]:
        curves = [
            *(Curve("training", c) for c in [train(name)] if c is not None),
            *(Curve("validation", c, "dots") for c in [evals(name)] if c is not None),
        ]
        wanted.append((name, name, "", curves))
    counted, rate = _rate(run.train)
    wanted += [
        ("lr", "learning rate", "", [Curve("learning rate", c) for c in [train("lr")] if c is not None]),
        ("grad_norm", "gradient norm", "", [Curve("gradient norm", c) for c in [train("grad_norm")] if c is not None]),
        ("rate", f"{counted} per second", "within steps", [Curve(f"{counted} per second", rate)]),
    ]
    if len(np.unique(run.train["world_size"][1])) > 1:
        wanted.append(
            ("world_size", "workers", "", [Curve("workers", envelope(*run.train["world_size"], pieces=PIECES))])
        )
    left_out = [f"{len(own) - _MOST_METRICS} more metrics are not shown: {', '.join(own[_MOST_METRICS:])}"]
    span = _span(run)
    marks = _marks(run, span)
    found = [_figure(*one, span, marks) for one in wanted if one[3]]
    return found, left_out if len(own) > _MOST_METRICS else []


def steps_of(columns: Columns) -> np.ndarray:
    """The steps of a log."""
    return columns["step"][0] if "step" in columns else np.zeros(0, dtype=np.int64)


def _curves(columns: Columns) -> Callable[[str], Envelope | None]:
    return lambda name: envelope(*columns[name], pieces=PIECES) if name in columns else None


def _rate(train: Columns) -> tuple[str, Envelope]:
    """What was counted (tokens where the pipeline counts them, else rows), and how many of them a second of step."""
    counted = "tokens" if "tokens" in train and train["tokens"][1][-1] > 0 else "samples"
    steps, total = train[counted]
    taken = np.diff(steps, prepend=0) * (train["data_s"][1] + train["step_s"][1])
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.diff(total, prepend=0.0) / taken
    return "tokens" if counted == "tokens" else "rows", envelope(steps, rate, pieces=PIECES)


def _span(run: Collected) -> tuple[float, float]:
    steps = np.concatenate([steps_of(run.train)[[0, -1]], steps_of(run.evaluations)])
    first, last = float(steps.min()), float(steps.max())
    return (first, last) if last > first else (first - 0.5, last + 0.5)


def _marks(run: Collected, span: tuple[float, float]) -> list[Mark]:
    marks: list[Mark] = []
    labelled = -math.inf
    for card in [card for card in run.attempts if card.first is not None][:_MOST_MARKS]:
        at = _percent(float(card.first or 0), span)
        fits = at - labelled >= _LABEL_GAP
        labelled = at if fits else labelled
        workers = f", {card.world_size} workers" if card.world_size else ""
        marks.append(Mark(at, str(card.number), f"attempt {card.number} from step {card.first:,}{workers}", fits))
    return marks


def _figure(
    name: str, title: str, unit: str, curves: list[Curve], span: tuple[float, float], marks: Sequence[Mark]
) -> Figure:
    finite = np.concatenate([side[np.isfinite(side)] for c in curves for side in (c.points.low, c.points.high)])
    scales, shown = [], "linear"
    if finite.size:
        low, high = float(finite.min()), float(finite.max())
        positive = low > 0 and high / low > 3 and name != "world_size"
        scales = [_scale("linear", curves, span, low, high), *([_log(curves, span, low, high)] if positive else [])]
        typical = float(np.median(np.concatenate([c.points.mean[np.isfinite(c.points.mean)] for c in curves])))
        if positive and high > 100 * typical:  # on a linear axis all but a few values would lie on the ground
            shown = "log"
    return Figure(
        name=name,
        title=title,
        unit=unit,
        curves=curves,
        scales=scales,
        shown=shown,
        steps=[
            Tick(_percent(t, span), f"{t:,.0f}" if t < 1e6 else short(t)) for t in ticks(*span, about=5) if t == int(t)
        ],
        marks=marks,
        bad="".join(f"M{_x(s, span)} 0v{HEIGHT}" for c in curves for s in c.points.first[c.points.bad > 0]),
        notes=list(_notes(curves)),
        summary=_summary(title, curves),
        hover={
            "span": span,
            "curves": [
                {"label": c.label, "look": c.look, **{k: _plain(getattr(c.points, k)) for k in _HOVER}} for c in curves
            ],
        },
    )


_HOVER = ("first", "last", "low", "mean", "high", "bad")


def _notes(curves: Sequence[Curve]) -> Iterator[str]:
    for curve in curves:
        points = curve.points
        which = f"{curve.label}: " if len(curves) > 1 else ""
        if points.thinned:
            yield f"{which}{int(points.count.sum()):,} values in {len(points):,} points, the band is their spread"
        if bad := int(points.bad.sum()):
            where = ", ".join(f"{int(s):,}" for s in points.bad_steps[:_STEPS_NAMED])
            more = ", …" if bad > _STEPS_NAMED else ""
            yield f"{which}{bad:,} not finite, marked in red: step {where}{more}"


def _summary(title: str, curves: Sequence[Curve]) -> str:
    """The figure in words, for those who cannot see it."""
    texts = []
    for curve in curves:
        known = np.flatnonzero(np.isfinite(curve.points.mean))
        if known.size:
            first, last = curve.points.mean[known[0]], curve.points.mean[known[-1]]
            low, high = np.nanmin(curve.points.low), np.nanmax(curve.points.high)
            texts.append(f"{curve.label} from {first:.4g} to {last:.4g}, smallest {low:.4g}, largest {high:.4g}")
    return f"{title}: {'; '.join(texts) or 'no finite value'}"


def _scale(name: str, curves: Sequence[Curve], span: tuple[float, float], low: float, high: float) -> Scale:
    low, high = max(low, -_LARGEST), min(high, _LARGEST)
    apart = high - low > 1e-12 * max(abs(low), abs(high))
    room = (high - low) * 0.05 if apart else abs(high) * 0.1 or 1.0
    bottom, top = 0.0 if 0 <= low <= room else low - room, high + room
    values = ticks(bottom, top, about=5)
    places = [Tick(100 - _percent(v, (bottom, top)), text) for v, text in zip(values, labels(values), strict=True)]

    def y(value: float) -> float:
        return round(HEIGHT * (1 - (min(max(value, bottom), top) - bottom) / (top - bottom)), 1)

    return Scale(name, places, *_paths(curves, span, y))


def _log(curves: Sequence[Curve], span: tuple[float, float], low: float, high: float) -> Scale:
    bottom, top = low / (high / low) ** 0.05, high * (high / low) ** 0.05

    def part(value: float) -> float:
        return math.log(value / bottom) / math.log(top / bottom)

    places = [Tick(round(100 * (1 - part(t)), 2), short(t)) for t in log_ticks(bottom, top)]
    return Scale("log", places, *_paths(curves, span, lambda value: round(HEIGHT * (1 - part(value)), 1)))


def _paths(
    curves: Sequence[Curve], span: tuple[float, float], y: Callable[[float], float]
) -> tuple[list[str], list[str]]:
    lines, bands = [], []
    for curve in curves:
        pieces = [
            (_x((a + b) / 2, span), y(low), y(mean), y(high)) if math.isfinite(mean) else None
            for a, b, low, mean, high in zip(
                *(getattr(curve.points, k).tolist() for k in ("first", "last", "low", "mean", "high")), strict=True
            )
        ]
        stretches = list(_stretches(pieces))
        if curve.look == "dots":
            lines.append("".join(f"M{x} {m}h0" for x, _, m, _ in filter(None, pieces)))
        else:
            lines.append(
                "".join("M" + "L".join(f"{x} {m}" for x, _, m, _ in s) + "h0" * (len(s) == 1) for s in stretches)
            )
        bands.append(
            "".join(
                "M" + "L".join([*(f"{x} {h}" for x, _, _, h in s), *(f"{x} {w}" for x, w, _, _ in reversed(s))]) + "Z"
                for s in stretches
            )
            if curve.points.thinned
            else ""
        )
    return lines, bands


def _stretches(pieces: Sequence[tuple[float, ...] | None]) -> Iterator[list[tuple[float, ...]]]:
    """Runs of pieces that have a value: a curve is interrupted where it has none."""
    stretch: list[tuple[float, ...]] = []
    for piece in [*pieces, None]:
        if piece is not None:
            stretch.append(piece)
        elif stretch:
            yield stretch
            stretch = []


def _percent(value: float, span: tuple[float, float]) -> float:
    return round(100 * (value - span[0]) / (span[1] - span[0]), 2)


def _x(step: float, span: tuple[float, float]) -> float:
    return round(WIDTH * (step - span[0]) / (span[1] - span[0]), 1)


def _plain(values: np.ndarray) -> list[Any]:
    """As JSON has them: integers, five digits, null for what is not finite."""
    if values.dtype.kind == "i":
        return [int(v) for v in values]
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values]
