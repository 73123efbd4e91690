"""What a sweep's log says: its trials, the line of those that go on, its budgets, and what follows from all that. Pure.

A fold over the log's entries: ``apply`` takes one after the other, ``due`` names the next one where it follows from
those before. So a sweep whose driver was killed at any entry is the same sweep once they are applied.

What does not count against ``sweep.trials``, and is replaced: a trial that ran out of memory or diverged before it had
reported a value, as many as ``sweep.trials``; and those whose common error stopped the sweep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from pliant.tune.settings import SweepSettings
from pliant.tune.table import Best, Generation, Point, Setback, Status, Trial, Workers
from pliant.tune.types import (
    Change,
    Close,
    Decision,
    End,
    Entry,
    Halt,
    Loss,
    Mode,
    Report,
    Resize,
    Scheduler,
    Searcher,
    Suggestion,
    loss_of,
)

_HOUR_S = 3600.0


class State:
    """A sweep as of some entry of its log.

    Args:
        settings: at its first start; later ones stand in the log.
        mode: whether smaller values of the metric are better.
        scheduler, searcher: fresh ones, to which the entries are passed on.
        workers: sizes of a trial.

    Attributes:
        begun: its log has an entry. closed: no trial more begins, as things stand.
        halt: why it stopped before it was done; None while it goes on.
        best: so far. since_best: ends of trials since it was reported, or since the last start that changed something.
        decisions: their number.
        worker_seconds: of all trials, lost work included.
        samples: rows seen up to the reports of all trials, lost work not counted, of a clone those since it began.
    """

    def __init__(
        self, settings: SweepSettings, *, mode: Mode, scheduler: Scheduler, searcher: Searcher, workers: Workers
    ) -> None:
        self.settings, self.mode, self.workers = settings, mode, workers
        self._scheduler, self._searcher = scheduler, searcher
        self._trials: dict[str, Trial] = {}
        self._line: dict[str, tuple[int, int]] = {}  # place of each live trial; lost ones have 0 in front
        self._places = 0
        self._ends: dict[str, End] = {}  # that follow, and do not stand in the log yet
        self._same: list[End] = []  # the latest ends in a row by the same error
        self._replaced: set[str] = set()
        self.begun = False
        self.closed = False
        self.halt: Halt | None = None
        self.best: Best | None = None
        self.decisions = 0
        self.worker_seconds = 0.0
        self.samples = 0
        self.since_best = 0

    @property
    def trials(self) -> Mapping[str, Trial]:
        """All trials by id, in the order of suggestion."""
        return MappingProxyType(self._trials)

    @property
    def milestones(self) -> Sequence[int]:
        """Samples at which every trial reports, ascending."""
        return self._scheduler.milestones

    @property
    def length(self) -> int:
        """Samples of a trial that is trained to its end."""
        return self.milestones[-1]

    def status(self, trial: Trial) -> Status:
        """How a trial stands."""
        if trial.end is not None:
            return trial.end.how
        if self.halt is not None:
            return "limit"
        return "paused" if trial.paused else "waiting"

    @property
    def allowed(self) -> int:
        """Trials that may begin in all, replacements included."""
        wanted = self._scheduler.population or self.settings.trials
        return wanted + min(len(self._replaced), wanted)

    # ------------------------------------------------------------ what follows

    def due(self) -> Entry | None:
        """The entry that follows from those so far; None when only a new fact can be next."""
        if decisions := self._scheduler.decide():
            return decisions[0]
        if self._ends:
            return next(iter(self._ends.values()))
        return self._due_halt() if self.halt is None else None

    def _due_halt(self) -> Halt | None:
        budget, same = self.settings.budget, self._same
        if len(same) >= self.settings.max_identical_failures:
            who = (
                "a trial ended with an error" if len(same) == 1 else f"{len(same)} trials in a row ended with one error"
            )
            return Halt("failures", f"{who}:\n{same[-1].text}")
        hours = self.worker_seconds / _HOUR_S
        if budget.worker_hours is not None and hours >= budget.worker_hours:
            text = f"sweep.budget.worker_hours is used up: {hours:.3g} of {budget.worker_hours:g}"
            return Halt("worker-hours", text)
        if budget.plateau_trials is not None and self.since_best >= budget.plateau_trials:
            who = "a trial" if self.since_best == 1 else f"{self.since_best} trials in a row"
            return Halt("plateau", f"{who} ended without a better best value")
        return None

    def _verdict(self, trial: Trial, loss: Loss) -> End | None:
        """How a trial ends by a loss; None when it goes on."""

        def end(how: Literal["failed", "out-of-memory"], text: str, signature: str = loss.signature) -> End:
            return End(trial.id, how, trial.samples, text, signature)

        if loss.cause == "out-of-memory":
            return end("out-of-memory", loss.text)
        if loss.cause == "user":
            here = (loss.signature, trial.generation, trial.seen)
            before = [(s.loss.signature, s.generation, s.samples) for s in trial.losses[:-1] if s.loss.cause == "user"]
            if not trial.reports or here in before:
                return end("failed", loss.text)
        if trial.failures > self.settings.max_failures:
            times = "once" if trial.failures == 1 else f"{trial.failures} times"
            again = f"it failed {times}, sweep.max_failures is {self.settings.max_failures}; the last: "
            return end("failed", again + loss.text, loss.signature if loss.cause == "user" else "")
        return None

    # ------------------------------------------------------------ entries

    def apply(self, entry: Entry) -> None:
        """Takes an entry of the log, as it stands there."""
        match entry:
            case Suggestion():
                self._apply_suggestion(entry)
            case Report():
                self._apply_report(entry)
            case Decision():
                self._apply_decision(entry)
            case Loss():
                self._apply_loss(entry)
            case End():
                self._apply_end(entry)
            case Resize():
                self._trials[entry.trial].workers = entry.workers
            case Close():
                self.closed = True
                self._scheduler.close()
            case Halt():
                self.halt = entry
                if entry.what == "failures":
                    self._replaced |= {end.trial for end in self._same}
            case Change():
                self.settings = SweepSettings.model_validate(entry.settings)
                self.begun, self.halt, self.closed = True, None, False
                self.since_best, self._same = 0, []

    def _apply_suggestion(self, suggestion: Suggestion) -> None:
        trial = Trial(suggestion, self.workers.usual, [Generation(suggestion.params)])
        self._trials[suggestion.trial] = trial
        self._join(suggestion.trial)
        self._scheduler.add(suggestion)
        self._searcher.add(suggestion)

    def _apply_report(self, report: Report) -> None:
        trial = self._trials[report.trial]
        point = Point(report.samples, report.value, report.metrics, report.generation)
        trial.reports.append(point)
        self.samples += report.samples - trial.seen
        trial.seen = report.samples
        self._spend(trial, report.worker_seconds)
        if trial.improves(point, self.mode):
            trial.best = point
        if point.value is not None and self._beats(point.value):
            self.best = Best(trial.id, point.generation, point.samples, point.value, trial.params)
            self.since_best = 0
        if report.value is None and (self._scheduler.population is None or report.samples >= self.length):
            text = f"no finite value at {report.samples:,} samples"
            self._ends[trial.id] = End(trial.id, "diverged", report.samples, text)
        elif report.samples >= self.length:
            self._ends[trial.id] = End(trial.id, "completed", report.samples)
        self._scheduler.observe(report)
        self._searcher.observe(report)

    def _apply_decision(self, decision: Decision) -> None:
        trial = self._trials[decision.trial]
        trial.decisions.append(decision)
        self.decisions += 1
        self._scheduler.apply(decision)
        match decision.action:
            case "stop":
                how: Literal["diverged", "stopped"] = "stopped"
                if trial.last is not None and trial.last.value is None:
                    how = "diverged"
                self._ends.setdefault(trial.id, End(trial.id, how, trial.samples, decision.why))
            case "pause":
                trial.paused = True
                self._line.pop(trial.id, None)
            case "resume":
                self._go_on(trial)
            case "exploit":
                donor, samples = self._trials[decision.donor or ""], decision.donor_samples or 0
                generation = next((p.generation for p in reversed(donor.reports) if p.samples == samples), 0)
                params = trial.params if decision.params is None else decision.params
                trial.generations.append(Generation(params, samples, donor.id, generation))
                trial.seen = samples
                self._go_on(trial)

    def _apply_loss(self, loss: Loss) -> None:
        trial = self._trials[loss.trial]
        trial.losses.append(Setback(loss, trial.generation, trial.seen))
        trial.leg += 1
        trial.failures += loss.cause in ("infrastructure", "user")
        self._spend(trial, loss.worker_seconds)
        if loss.cause != "stopped":
            self._join(trial.id, front=True)
        if (end := self._verdict(trial, loss)) is not None:
            self._ends[trial.id] = end

    def _apply_end(self, end: End) -> None:
        trial = self._trials[end.trial]
        trial.end, trial.paused = end, False
        self._ends.pop(end.trial, None)
        self._line.pop(end.trial, None)
        self._spend(trial, end.worker_seconds)
        self.since_best += self.best is None or self.best.trial != trial.id
        if end.how in ("out-of-memory", "diverged") and trial.best is None:
            self._replaced.add(end.trial)
        # While nothing has ever reported a value, running out of memory is an error like any other.
        counts = (end.how == "failed" and end.signature) or (end.how == "out-of-memory" and self.best is None)
        row = self._same if self._same and _error(self._same[-1]) == _error(end) else []
        self._same = [*row, end] if counts else []
        self._scheduler.end(end)
        self._searcher.end(end)

    def _join(self, trial: str, *, front: bool = False) -> None:
        self._places += 1
        self._line[trial] = (0 if front else 1, self._places)

    def _go_on(self, trial: Trial) -> None:
        trial.paused = False
        trial.leg += 1
        self._join(trial.id)

    def _spend(self, trial: Trial, worker_seconds: float) -> None:
        trial.worker_seconds += worker_seconds
        self.worker_seconds += worker_seconds

    def _beats(self, value: float) -> bool:
        return self.best is None or loss_of(value, self.mode) < loss_of(self.best.value, self.mode)


def _error(end: End) -> tuple[str, str]:
    return end.how, end.signature
