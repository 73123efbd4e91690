"""Who went on from whose state in a population, and the settings that each had at which samples. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pliant.config.dump import value_text
from pliant.report.figures import HEIGHT, WIDTH, Tick
from pliant.report.sweep_axes import Axis, Scale
from pliant.report.sweep_figures import Drawing, Path, Plot, by_scale, look_of, milestone_marks
from pliant.report.sweep_rates import Rates
from pliant.tune.domains import Dimension
from pliant.tune.lineage import ancestry
from pliant.tune.point import BATCH, LR, PEAK
from pliant.tune.results import SweepResults
from pliant.tune.settings import POPULATION_BASED
from pliant.tune.table import Trial
from pliant.tune.types import Params

COLOURS = 10
"""Of lineages; the colours repeat."""
_ROW_PX = 24
_MOST_FIGURES = 6


@dataclass(frozen=True)
class Clone:
    """A trial that went on from another one's state.

    Attributes:
        generation: of the trial. donor: run of the state.
        samples: of the state. left: rows that the trial itself had seen.
        changes: ``optim.lr 0.01 → 0.008``, against the donor's settings.
        why: the decision's words.
    """

    trial: str
    generation: int
    donor: str
    samples: int
    left: int
    changes: str
    why: str


@dataclass(frozen=True)
class Lineage:
    """All of a population.

    Attributes:
        river: a row for each trial, coloured by whose state it once began with.
        rows: labels of the river's rows.
        courses: searched settings over samples, the learning rate and the batch first.
        clones: in the order of trials and generations.
    """

    river: Plot
    rows: Sequence[Tick]
    courses: Sequence[Plot]
    clones: Sequence[Clone]


def lineage(results: SweepResults, dimensions: Sequence[Dimension], rates: Rates) -> Lineage | None:
    """Of a population that has reported something; None of other sweeps.

    Args:
        rates: that were trained with, as far as they are recorded.
    """
    if results.settings.scheduler.kind not in POPULATION_BASED or not any(t.reports for t in results.trials):
        return None
    x = Scale(0.0, float(max(results.milestones[-1], *(t.samples for t in results.trials))))
    line = _best_line(results)
    clones = [clone for trial in results.trials for clone in _clones(trial, results)]
    return Lineage(
        river=_river(results, x, line),
        rows=[
            Tick(round(100 * (row + 0.5) / len(results.trials), 2), trial.id)
            for row, trial in enumerate(results.trials)
        ],
        courses=[
            *_trained(results, rates, x, line),
            *(_course(results, Axis(d), x, line) for d in _changing(results, dimensions)),
        ],
        clones=clones,
    )


def _best_line(results: SweepResults) -> dict[tuple[str, int], tuple[int, int]]:
    """The stretches of training that the best trial's state has come through: samples by trial and generation."""
    if (best := results.best) is None:
        return {}
    segments = ancestry(results.state.trials, best.trial, best.generation)
    return {(s.trial, s.generation): (s.samples, best.samples if s.until is None else s.until) for s in segments}


def _stretches(trial: Trial) -> list[tuple[int, int, int]]:
    """Generation, and the samples from which and to which it trained; those that have not reported yet are left out."""
    ends = {point.generation: point.samples for point in trial.reports}
    return [(number, begun.samples, ends[number]) for number, begun in enumerate(trial.generations) if number in ends]


def _river(results: SweepResults, x: Scale, line: dict[tuple[str, int], tuple[int, int]]) -> Plot:
    trials = results.state.trials
    rows = {trial.id: round(HEIGHT * (row + 0.5) / len(trials), 1) for row, trial in enumerate(results.trials)}
    links, bars, bold = [], [], []
    for trial in results.trials:
        y = rows[trial.id]
        for number, begin, end in _stretches(trial):
            founder = trials[ancestry(trials, trial.id, number)[0].trial]
            bars.append(Path(f"bar f{founder.number % COLOURS}", f"M{_x(x, begin)} {y}H{_x(x, end)}", trial.number))
            if (donor := trial.generations[number].donor) is not None:
                link = f"M{_x(x, begin)} {rows[donor]}V{y}"
                if (trial.id, number) in line:
                    bold.append(link)
                else:
                    links.append(Path("link", link, trial.number))
        bold += [f"M{_x(x, a)} {y}H{_x(x, b)}" for (name, _), (a, b) in line.items() if name == trial.id and b > a]
    founders = {ancestry(trials, t.id)[0].trial for t in results.trials}
    return Plot(
        name="lineage",
        title="lineage",
        unit="a row for each trial by rows seen; its colour is the trial whose state it once began with",
        drawings=[Drawing("linear", [], [*links, *bars, *([Path("line", "".join(bold))] if bold else [])])],
        shown="linear",
        x=x.ticks(),
        marks=milestone_marks(results, x),
        keys=[("line", "how the best came about"), ("link", "goes on from another one's state")],
        notes=[f"{len(founders)} of {len(trials)} first trials live on in the states of all"],
        summary=f"{len(trials)} trials, {sum(t.generation for t in results.trials)} clones",
        height=_ROW_PX * len(trials),
    )


def _trained(
    results: SweepResults, rates: Rates, x: Scale, line: Mapping[tuple[str, int], tuple[int, int]]
) -> list[Plot]:
    """The learning rate of each step, schedules and all, where runs have recorded it."""
    values = [float(v) for _, lr in rates.values() for v in lr if math.isfinite(v) and v > 0]
    if not values:
        return []
    stretches = {(t.id, n): (a, b) for t in results.trials for n, a, b in _stretches(t)}

    def paths(y: Callable[[float], float]) -> list[Path]:
        def piece(run: tuple[str, int], begin: int, end: int) -> str:
            if run not in rates:
                return ""
            places = [
                f"{_x(x, at)} {y(lr)}"
                for at, lr in zip(*(side.tolist() for side in rates[run]), strict=True)
                if begin < at <= end and math.isfinite(lr)
            ]
            return "M" + "L".join(places) if places else ""

        found = []
        for trial in results.trials:
            runs = [(trial.id, n) for n in range(len(trial.generations)) if (trial.id, n) in stretches]
            look = look_of(results, trial)
            text = "".join(piece(run, *stretches[run]) for run in runs)
            found.append(Path("member" if look == "best" else look, text, trial.number))
        found.append(Path("line", "".join(piece(run, *span) for run, span in line.items())))
        return [path for path in found if path.data]

    drawings, _ = by_scale(values, results.state.mode, paths)
    return [
        Plot(
            name="learning-rate",
            title="learning rate",
            unit="of each step by rows seen, as it was trained with",
            drawings=drawings,
            shown=drawings[0].name,
            x=x.ticks(),
            marks=milestone_marks(results, x),
            keys=[("line", "course of the best")],
            summary="learning rate of each trial by rows seen",
        )
    ]


def _changing(results: SweepResults, dimensions: Sequence[Dimension]) -> list[Dimension]:
    """What may have been changed in mid-run: learning rate and batch first; then what differs within a trial."""

    def differs(dimension: Dimension) -> bool:
        return any(len({g.params.get(dimension.name) for g in t.generations}) > 1 for t in results.trials)

    first = [d for d in dimensions if d.name in (PEAK, LR)] + [d for d in dimensions if d.name == BATCH]
    return [*first, *(d for d in dimensions if d not in first and differs(d))][:_MOST_FIGURES]


def _course(results: SweepResults, axis: Axis, x: Scale, line: dict[tuple[str, int], tuple[int, int]]) -> Plot:
    def y(params: Params) -> float:
        return round(HEIGHT * (0.96 - 0.92 * axis.place(params[axis.name])), 1)

    paths = []
    for trial in sorted(results.trials, key=lambda t: look_of(results, t) == "best"):
        look = look_of(results, trial)
        pieces = _pieces([(trial, n, a, b) for n, a, b in _stretches(trial)], axis.name, x, y)
        paths.append(Path("member" if look == "best" else look, pieces, trial.number))
    trials = results.state.trials
    best = _pieces([(trials[name], n, a, b) for (name, n), (a, b) in line.items()], axis.name, x, y)
    ticks = [Tick(round(100 - (4 + 0.92 * t.at), 2), t.text) for t in axis.ticks()]
    return Plot(
        name=f"course-{axis.name}",
        title=axis.name,
        unit=("log, " if axis.dimension.log else "") + "by rows seen",
        drawings=[Drawing("linear", ticks, [*(p for p in paths if p.data), *([Path("line", best)] if best else [])])],
        shown="linear",
        x=x.ticks(),
        marks=milestone_marks(results, x),
        keys=[("line", "course of the best")],
        summary=f"{axis.name} of each trial by rows seen",
    )


def _pieces(stretches: Sequence[tuple[Trial, int, int, int]], name: str, x: Scale, y: Callable[[Params], float]) -> str:
    """Steps from stretch to stretch; a piece of its own where one does not begin where the last one ended."""
    text, end = "", None
    for trial, number, begin, until in stretches:
        params = trial.generations[number].params
        if name in params and until > begin:
            text += f"V{y(params)}" if end == begin else f"M{_x(x, begin)} {y(params)}"
            text += f"H{_x(x, until)}"
            end = until
    return text


def _clones(trial: Trial, results: SweepResults) -> list[Clone]:
    exploits = iter([d for d in trial.decisions if d.action == "exploit"])
    found = []
    for number, begun in enumerate(trial.generations[1:], 1):
        decision = next(exploits)
        donor = results.state.trials[begun.donor or ""]
        before = donor.generations[begun.donor_generation].params
        found.append(
            Clone(
                trial=trial.id,
                generation=number,
                donor=donor.id,
                samples=begun.samples,
                left=decision.samples,
                changes=_changes(before, begun.params) or "nothing",
                why=decision.why,
            )
        )
    return found


def _changes(before: Params, after: Params) -> str:
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {_text(before.get(name))} → {_text(after.get(name))}" for name in names)


def _text(value: object) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else value_text(value)


def _x(scale: Scale, value: float) -> float:
    return round(WIDTH * scale.place(value), 1)
