"""A sweep on its way through its decision log: the state after each entry, and when it was so.

log `decisions` ─► State (tune/state.py): what is so ─► here: what a tracker's curves need besides, moment by moment
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pliant.storage.record import RunRecord
from pliant.storage.view import View
from pliant.track.curves import Curves, Moment
from pliant.tune.decisions import DECISIONS, DecisionReader, Logged
from pliant.tune.lineage import ancestry
from pliant.tune.onlooker import Onlooker
from pliant.tune.settings import POPULATION_BASED, SweepSettings
from pliant.tune.state import State
from pliant.tune.table import Trial, Workers
from pliant.tune.types import Change, Close, Decision, End, Halt, Loss, Report, Suggestion

_HOUR_S = 3600.0


@dataclass(frozen=True)
class Reported:
    """A trial just after one of its reports.

    Attributes:
        time: of the report, seconds since 1970.
        best: value of the trial so far; None before the first that is a number.
        worker_seconds: of the trial so far, lost work included.
    """

    samples: int
    time: float
    best: float | None
    worker_seconds: float


@dataclass
class TrialCourse:
    """A trial's way.

    Attributes:
        trial: as the log has it so far.
        began, ended: seconds since 1970; ``ended`` None while it has not.
        why: the text of the newest decision, loss or end that has one.
        entries: of the log that are about it.
    """

    trial: Trial
    began: float
    ended: float | None = None
    why: str = ""
    entries: int = 0
    reports: list[Reported] = field(default_factory=list)

    def take(self, logged: Logged) -> None:
        """Takes the next entry about it, which the state has taken."""
        self.entries += 1
        match logged.entry:
            case Report() as report:
                best = None if self.trial.best is None else self.trial.best.value
                self.reports.append(Reported(report.samples, logged.time, best, self.trial.worker_seconds))
            case Decision() as decision:
                self.why = decision.why
            case Loss() as loss:
                self.why = loss.text
            case End() as end:
                self.ended, self.why = logged.time, end.text or self.why

    def moments(self, metric: str, curves: Curves, after: int) -> Iterator[Moment]:
        """What its reports say, without the first ``after``: best value so far, and what it has cost."""
        for report in self.reports[after:]:
            best = {} if report.best is None else {f"best/{metric}": report.best}
            values = {**best, "worker_hours": report.worker_seconds / _HOUR_S}
            mark = float(round(report.time * 1000))
            moment = curves.moment("reports", report.samples, report.time, values, anchor="worker_hours", mark=mark)
            if moment is not None:
                yield moment


class SweepCourse:
    """A sweep's way, as far as it has been read. As a source, the sweep's own metrics: how it stood after each report
    and each end.

    Attributes:
        state: after the entries read so far; to be read only.
        trials: by id, in the order of suggestion.
        entries: read so far.
    """

    log = DECISIONS

    def __init__(self, record: RunRecord) -> None:
        identity, self._reader = record.identity, DecisionReader(record)
        self.metric = str(identity["metric"])
        onlooker = Onlooker((int(identity["length"]),))
        # The settings are those of the log's first entry as soon as that is read.
        self.state = State(
            SweepSettings(), mode=identity["mode"], scheduler=onlooker, searcher=onlooker, workers=Workers()
        )
        self.trials: dict[str, TrialCourse] = {}
        self.entries = 0
        self._ended = 0
        self._pending: list[Moment] = []

    @property
    def clones(self) -> bool:
        """Whether its trials clone each other's states."""
        return self.state.settings.scheduler.kind in POPULATION_BASED

    def moments(self, record: RunRecord, view: View, curves: Curves, last_step: float) -> Iterable[Moment]:
        for logged in self._reader.read(view):
            self._take(logged)
            if isinstance(logged.entry, Report | End):
                mark, values = float(round(logged.time * 1000)), self._values()
                moment = curves.moment(DECISIONS, self.entries, logged.time, values, anchor="samples", mark=mark)
                self._pending += [moment] if moment is not None else []
        return list(self._pending)

    def accept(self) -> None:
        self._pending.clear()

    def _take(self, logged: Logged) -> None:
        entry = logged.entry
        self.state.apply(entry)
        self.entries += 1
        self._ended += isinstance(entry, End)
        if isinstance(entry, Suggestion):
            self.trials[entry.trial] = TrialCourse(self.state.trials[entry.trial], logged.time)
        if not isinstance(entry, Close | Halt | Change):
            self.trials[entry.trial].take(logged)

    def _values(self) -> Mapping[str, float]:
        """How the whole sweep stands."""
        best = {} if self.state.best is None else {f"best/{self.metric}": self.state.best.value}
        return {
            **best,
            "samples": float(self.state.samples),
            "worker_hours": self.state.worker_seconds / _HOUR_S,
            "trials": float(len(self.trials)),
            "trials_ended": float(self._ended),
        }

    def lineage(self, trial: str, generation: int) -> list[dict[str, Any]]:
        """Whose training a generation goes on from, the eldest first, each with the samples at which it was left."""
        line = ancestry(self.state.trials, trial, generation)
        return [{"run": segment.run, "until": segment.until, "params": dict(segment.params)} for segment in line]
