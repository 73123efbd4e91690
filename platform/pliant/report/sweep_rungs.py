"""How many trials reached each place where trials are compared, and how many of them went on. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from pliant.tune.results import SweepResults
from pliant.tune.settings import HALVING, POPULATION_BASED
from pliant.tune.table import Trial
from pliant.tune.types import loss_of


@dataclass(frozen=True)
class Rung:
    """Trials at a milestone.

    Attributes:
        name: ``rung 1``, ``report 3``; ``the end`` for a trial's length.
        samples: of the milestone. epochs: the same in passes over the dataset.
        reached: trials that have reported there; all others are parts of it.
        went_on: to the next milestone, or are on their way; at the end: are done. waits: the scheduler has not decided.
        stopped: by a decision. lost: without a finite value there, failed or out of memory afterwards.
        best: value there; None without any.
    """

    name: str
    samples: int
    epochs: float
    reached: int
    went_on: int
    waits: int
    stopped: int
    lost: int
    best: float | None


def rungs(results: SweepResults) -> list[Rung]:
    """The milestones of a sweep in which not all trials go the whole way; none for a population, whose trials all do,
    and before the first report."""
    kind = results.settings.scheduler.kind
    milestones = results.milestones
    if kind in POPULATION_BASED or len(milestones) < 2 or not any(trial.reports for trial in results.trials):
        return []
    what = "rung" if kind in HALVING else "report"
    found = []
    for number, samples in enumerate(milestones, 1):
        last = number == len(milestones)
        name = "the end" if last else f"{what} {number}"
        found.append(_rung(results, number, name, samples))
    return found


def _rung(results: SweepResults, number: int, name: str, samples: int) -> Rung:
    fates = {"went on": 0, "waits": 0, "stopped": 0, "lost": 0}
    values = []
    for trial in results.trials:
        at = [p for p in trial.reports if bisect_right(results.milestones, p.samples) == number]
        if at:
            fates[_fate(trial, at[0].samples, at[0].value)] += 1
            values += [at[0].value] if at[0].value is not None else []
    return Rung(
        name=name,
        samples=samples,
        epochs=samples / int(results.record.identity["rows"]),
        reached=sum(fates.values()),
        went_on=fates["went on"],
        waits=fates["waits"],
        stopped=fates["stopped"],
        lost=fates["lost"],
        best=min(values, key=lambda value: loss_of(value, results.state.mode), default=None),
    )


def _fate(trial: Trial, samples: int, value: float | None) -> str:
    """What became of a trial after a report."""
    if trial.samples > samples:
        return "went on"
    if value is None:
        return "lost"
    if trial.end is not None:
        return {"completed": "went on", "stopped": "stopped"}.get(trial.end.how, "lost")
    return "waits" if trial.paused else "went on"
