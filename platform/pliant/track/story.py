"""A sweep as a tracker shall have it: a fold over the entries of its decision log, as they stand there.

suggestion, report, decision, loss, end, settings ──► trials with their generations, reports, ends; the best; moments

The log alone decides what is so; what follows from what is the business of those who write it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pliant.storage.layout import run_name
from pliant.storage.logs import read_log_after
from pliant.storage.record import RunRecord
from pliant.storage.view import View
from pliant.track.curves import Curves, Moment

DECISIONS = "decisions"
_CLONING = ("pbt", "pb2")
"""Schedulers whose trials go on from other trials' states."""
_HOUR_S = 3600.0


@dataclass(frozen=True)
class Generation:
    """A trial between two clones of others.

    Attributes:
        samples: at which it began: 0, or the donor's.
        donor, donor_generation: whose state it began with; None for the first.
        why: it was cloned.
    """

    params: Mapping[str, Any]
    samples: int = 0
    donor: str | None = None
    donor_generation: int = 0
    why: str = ""


@dataclass(frozen=True)
class Reported:
    """A report of a trial.

    Attributes:
        best: value of the trial so far; None before the first that is a number.
        worker_seconds: of the trial so far, lost work included.
    """

    samples: int
    generation: int
    time: float
    value: float | None
    best: float | None
    worker_seconds: float


@dataclass
class TrialStory:
    """A trial.

    Attributes:
        began, ended: seconds since 1970; ``ended`` None while it has not.
        how: it ended: ``completed``, ``stopped``, ``failed`` …
        why: it is as it is: the text of its end, or of the newest decision about it.
        paused: it waits for the scheduler.
        seen: samples that its present generation has reached.
        entries: of the log that are about it.
    """

    trial: str
    number: int
    note: str
    began: float
    generations: list[Generation]
    reports: list[Reported] = field(default_factory=list)
    how: str | None = None
    why: str = ""
    ended: float | None = None
    paused: bool = False
    seen: int = 0
    entries: int = 0
    losses: int = 0
    worker_seconds: float = 0.0
    best: float | None = None

    @property
    def generation(self) -> int:
        """How often it has cloned another trial's state."""
        return len(self.generations) - 1


@dataclass(frozen=True)
class BestReport:
    """The first report with the best value."""

    trial: str
    generation: int
    samples: int
    value: float


class SweepStory:
    """What the log has said so far.

    Args:
        metric: the sweep's. mode: ``min`` or ``max``.

    Attributes:
        trials: by id, in the order of suggestion.
        entries: of the log, so far.
        clones: whether its trials clone each other's states.
    """

    def __init__(self, metric: str, mode: str) -> None:
        self.metric, self._sign = metric, 1.0 if mode == "min" else -1.0
        self.trials: dict[str, TrialStory] = {}
        self.best: BestReport | None = None
        self.entries = 0
        self.clones = False
        self._worker_seconds = 0.0
        self._samples = 0
        self._ended = 0

    def take(self, entry: Mapping[str, Any]) -> None:
        """Takes the next entry."""
        self.entries += 1
        kind, spent = entry["kind"], float(entry.get("worker_seconds") or 0.0)
        self._worker_seconds += spent
        if kind == "settings":
            self.clones = entry["settings"]["scheduler"]["kind"] in _CLONING
            return
        if kind == "suggestion":
            first = Generation(entry["params"])
            self.trials[entry["trial"]] = TrialStory(
                entry["trial"], int(entry["number"]), entry.get("note", ""), float(entry["time"]), [first]
            )
        trial = self.trials.get(entry.get("trial", ""))
        if trial is None:
            return
        trial.entries += 1
        trial.worker_seconds += spent
        if kind == "report":
            self._report(trial, entry)
        elif kind == "decision":
            self._decision(trial, entry)
        elif kind == "loss":
            trial.losses += 1
            trial.why = entry["text"]
        elif kind == "end":
            trial.how, trial.ended, trial.paused = entry["how"], float(entry["time"]), False
            trial.why = entry["text"] or trial.why
            self._ended += 1

    def _report(self, trial: TrialStory, entry: Mapping[str, Any]) -> None:
        samples, value = int(entry["samples"]), entry["value"]
        self._samples += samples - trial.seen
        trial.seen = samples
        if value is not None and self._better(value, trial.best):
            trial.best = value
        if value is not None and self._better(value, self.best.value if self.best else None):
            self.best = BestReport(trial.trial, trial.generation, samples, value)
        trial.reports.append(
            Reported(samples, trial.generation, float(entry["time"]), value, trial.best, trial.worker_seconds)
        )

    def _decision(self, trial: TrialStory, entry: Mapping[str, Any]) -> None:
        trial.why, trial.paused = entry["why"], entry["action"] == "pause"
        if entry["action"] == "exploit":
            donor, samples = self.trials[entry["donor"]], int(entry["donor_samples"])
            of = next((r.generation for r in reversed(donor.reports) if r.samples == samples), 0)
            params = entry["params"] or trial.generations[-1].params
            trial.generations.append(Generation(params, samples, donor.trial, of, entry["why"]))
            trial.seen = samples

    def _better(self, value: float, than: float | None) -> bool:
        return than is None or self._sign * value < self._sign * than

    def values(self) -> dict[str, float]:
        """How the whole sweep stands."""
        best = {} if self.best is None else {f"best/{self.metric}": self.best.value}
        return {
            **best,
            "samples": float(self._samples),
            "worker_hours": self._worker_seconds / _HOUR_S,
            "trials": float(len(self.trials)),
            "trials_ended": float(self._ended),
        }

    def ancestry(self, trial: str, generation: int) -> list[dict[str, Any]]:
        """Whose training a generation goes on from, the eldest first, each with the samples at which it was left."""
        line: list[dict[str, Any]] = []
        until: int | None = None
        while True:
            here = self.trials[trial].generations[generation]
            line.insert(0, {"run": run_name(trial, generation), "until": until, "params": dict(here.params)})
            if here.donor is None:
                return line
            trial, generation, until = here.donor, here.donor_generation, here.samples


class Decisions:
    """The decision log as a source of the sweep's own metrics: how it stood after each report and each end.

    Args:
        story: is told of every entry, once.
    """

    log = DECISIONS

    def __init__(self, story: SweepStory) -> None:
        self._story = story
        self._read: dict[int, int] = {}
        self._pending: list[Moment] = []

    def moments(self, record: RunRecord, view: View, curves: Curves, last_step: float) -> Iterable[Moment]:
        for attempt, seq, entry in read_log_after(record.store, view, DECISIONS, self._read):
            self._story.take(entry)
            self._read[attempt] = seq
            if entry["kind"] in ("report", "end"):
                time, step = float(entry["time"]), self._story.entries
                mark = float(round(time * 1000))
                moment = curves.moment(DECISIONS, step, time, self._story.values(), anchor="samples", mark=mark)
                self._pending += [moment] if moment is not None else []
        return list(self._pending)

    def accept(self) -> None:
        self._pending.clear()


def reported(trial: TrialStory, metric: str, curves: Curves, after: int) -> Iterator[Moment]:
    """What a trial's reports say: best value so far, and what it has cost."""
    for report in trial.reports[after:]:
        best = {} if report.best is None else {f"best/{metric}": report.best}
        values = {**best, "worker_hours": report.worker_seconds / _HOUR_S}
        mark = float(round(report.time * 1000))
        moment = curves.moment("reports", report.samples, report.time, values, anchor="worker_hours", mark=mark)
        if moment is not None:
            yield moment
