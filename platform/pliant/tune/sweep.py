"""What a sweep does next: the legs of its trials. Pure but for the record that it is given.

```
searcher ─► next_leg() ─► Leg ─► executor or simulator ─► report(), lost(), ended(), left()
                                                                   │ what happened and what follows from it, to the log
                                                                   └─► continue | leave
```

Every method has recorded what happened, and what follows from it, before it returns: what it answers may be acted upon.

Which trial is next: those that may go on wait in a line. A new trial, and one that a decision lets go on, joins its
end; one that was lost or preempted goes to its front; one that runs keeps its place, so that after a kill and a replay
it is again before those that came after it. New trials begin only when nobody waits and a slot is free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from pliant.elastic.policy import best_size
from pliant.storage.layout import run_name
from pliant.tune.settings import SweepSettings
from pliant.tune.state import State
from pliant.tune.table import Status, Trial, Workers
from pliant.tune.types import (
    Change,
    Close,
    Decision,
    End,
    Entry,
    Halt,
    Loss,
    Mode,
    Params,
    Report,
    Resize,
    Scheduler,
    Searcher,
    Suggestion,
    loss_of,
    trial_id,
)

Answer = Literal["continue", "leave"]
"""What a leg is told at its report: go on, or end, its checkpoint being durable."""
Record = Callable[[Sequence[Entry]], None]
"""Makes entries durable, in order, before it returns."""


@dataclass(frozen=True)
class Leg:
    """The next stretch of a trial's work.

    Attributes:
        leg: its number within the trial, from 0, as far as the log knows: a start of the driver does not count.
        run: name below ``trials/`` of the run that it continues: ``t0007``, or of a later generation ``t0007.g1``.
        samples: of the trial's last report in this generation; where the generation began before that.
        begin: what the log knows. A run that has a checkpoint goes on from it whatever stands here. ``start``: nothing
            yet; ``clone``: from the donor's state; ``resume``: from its own checkpoint.
        donor_run, donor_samples: ``clone``: whose checkpoint at which samples; the run's name below ``trials/``.
    """

    trial: str
    number: int
    leg: int
    generation: int
    run: str
    params: Params
    workers: int
    samples: int
    begin: Literal["start", "resume", "clone"]
    donor: str | None = None
    donor_run: str | None = None
    donor_samples: int | None = None


@dataclass(frozen=True)
class Wait:
    """Nothing to begin now; ask again after the next report, loss or end. ``why`` is for people."""

    why: str


@dataclass(frozen=True)
class Finished:
    """Nothing runs and nothing will. ``done``; a budget is used up: ``limit``; ``user``: trials fail with one error."""

    reason: Literal["done", "limit", "user"]
    text: str


class Sweep(State):
    """A sweep that is driven.

    Args:
        settings, mode, scheduler, searcher, workers: as of ``State``.
        slots: trials that may run at once; None: the caller asks for a leg only when it has room.
        record: makes entries durable; None: nobody does.
    """

    def __init__(
        self,
        settings: SweepSettings,
        *,
        mode: Mode,
        scheduler: Scheduler,
        searcher: Searcher,
        workers: Workers = Workers(),  # noqa: B008  immutable
        slots: int | None = None,
        record: Record | None = None,
    ) -> None:
        super().__init__(settings, mode=mode, scheduler=scheduler, searcher=searcher, workers=workers)
        self.slots, self._record = slots, record
        self._new: list[Entry] = []  # not recorded yet
        self._legs: dict[str, Leg] = {}  # that run
        self._seats: dict[str, tuple[int, int]] = {}  # by trial of a leg, its place in the line when it was let run
        self._told: set[str] = set()  # trials whose legs were told to leave
        self._exhausted = False  # the searcher has nothing left

    @property
    def legs(self) -> Mapping[str, Leg]:
        """Legs that run, by trial."""
        return MappingProxyType(self._legs)

    def status(self, trial: Trial) -> Status:
        """How a trial stands."""
        return "running" if trial.end is None and trial.id in self._legs else super().status(trial)

    # ------------------------------------------------------------ what the executor asks and tells

    def begin(self, settings: SweepSettings | None = None, space: Mapping[str, Any] | None = None) -> None:
        """At each start of a driver, once the log is replayed: settles what a torn log lacks, takes changed settings
        and lifts a halt. An interrupted sweep that goes on unchanged has nothing to log here.

        Args:
            settings: of this start; None: as they are.
            space: the narrowed search space, as its file's content.
        """
        halted = self.halt is not None
        self._follow()
        new = (settings or self.settings).model_dump(mode="json")
        if not self.begun or halted or space is not None or new != self.settings.model_dump(mode="json"):
            self._add(Change(new, space))
            self._exhausted = False
        self._settle()

    def next_leg(self, free_workers: int | None = None) -> Leg | Wait | Finished:
        """What to begin in a free slot. To be asked only when there is one: suggestions depend on what was reported.

        Args:
            free_workers: that fit now: a trial that had grown begins with no more; None: as many as it has.
        """
        if self.halt is not None:
            text = self.halt.text
            return Wait(text) if self._legs else Finished("user" if self.halt.what == "failures" else "limit", text)
        if self.slots is not None and len(self._legs) >= self.slots:
            return Wait(f"all {self.slots} slots are taken")
        if free_workers is not None and free_workers < self.workers.usual:
            return Wait(f"a trial has {self.workers.usual} workers, and {free_workers} are free")
        if waiting := self._waiting():
            trial = self._trials[waiting[0]]
            if free_workers is not None and trial.workers > free_workers:
                self._add(Resize(trial.id, self._size(free_workers), "no more workers are free"))
                self._settle()
            return self._start(trial)
        if (suggestion := self._suggest()) is not None:
            self._add(suggestion)
            self._settle()
            return self._start(self._trials[suggestion.trial])
        if self._legs:
            return Wait("no trial can begin before others report")
        if paused := [trial for trial in self._trials.values() if trial.paused]:
            self._stuck(paused)
            return self.next_leg(free_workers)
        return Finished("done", f"all {len(self._trials)} trials have ended")

    def report(self, report: Report) -> Answer:
        """A trial has reported, its checkpoint at this place being durable. One that was logged before is not logged
        again; the answer is always that of the moment."""
        trial = self._trials[report.trial]
        if trial.live and report.generation == trial.generation and report.samples > trial.seen:
            self._add(report)
            self._follow()
            if trial.live and trial.workers > self.workers.usual and self._waiting():
                self._add(Resize(trial.id, self.workers.usual, "others wait for the workers"))
            self._settle()
        answer = self.answer(report.trial)
        if answer == "continue":
            self._seats[trial.id] = self._line[trial.id]
        return answer

    def answer(self, trial: str) -> Answer:
        """Whether a trial's leg may go on, as things stand. Asked also between reports: one that shall leave may be
        ended at once."""
        row, leg = self._trials[trial], self._legs.get(trial)
        fits = leg is None or (leg.generation, leg.workers) == (row.generation, row.workers)
        if row.live and fits and self.halt is None and not self._passed_over(trial):
            return "continue"
        self._told.add(trial)
        return "leave"

    def left(self, trial: str) -> None:
        """A leg has ended as it was told, and its slot is free."""
        self._legs.pop(trial, None)
        self._seats.pop(trial, None)
        self._told.discard(trial)

    def lost(self, loss: Loss) -> None:
        """A leg has ended without having been told to, and its slot is free. Whether the trial goes on stands in its
        row afterwards. What befalls a leg that was told to leave is no loss: its checkpoint is durable."""
        trial = self._trials[loss.trial]
        if trial.live and loss.trial not in self._told:
            self._add(loss)
            self._settle()
        self.left(loss.trial)

    def ended(self, end: End) -> None:
        """A trial has ended by itself, its slot is free: it diverged, say. In a population it may still clone another:
        to have diverged is its report at the next milestone."""
        trial = self._trials[end.trial]
        if trial.end is None:
            goal = self._next_milestone(trial)
            if end.how == "diverged" and self._scheduler.population is not None and goal < self.length:
                self._add(Report(trial.id, goal, None, {}, end.worker_seconds, trial.generation))
            else:
                self._add(end)
            self._settle()
        self.left(end.trial)

    def elapsed(self, seconds: float) -> None:
        """How long this start of the sweep has taken so far."""
        limit = self.settings.budget.time
        if limit is not None and seconds >= limit and self.halt is None:
            self._add(Halt("time", f"sweep.budget.time is used up: {seconds:,.0f} of {limit:,.0f} s"))
            self._settle()

    def grow(self, free_workers: int, *, restart_s: float = 0.0) -> list[Resize]:
        """Gives workers that nobody needs to the leading trials, from their next report on.

        Nothing is given while a trial waits or may begin, to a trial whose next report is its last, or where it would
        not save twice the time that a new leg takes to begin.

        Args:
            restart_s: that time, in seconds.
        """
        if self.halt is not None or self._waiting() or self._may_begin():
            return []
        running = [self._trials[t] for t in self._legs if self.answer(t) == "continue"]
        found = []
        for trial in sorted(running, key=lambda t: (loss_of(t.best.value if t.best else None, self.mode), t.number)):
            fitting = trial.workers + free_workers
            size = self._size(fitting)
            worth = trial.best is not None and self._next_milestone(trial) < self.length
            if size > trial.workers and worth and self._saved_s(trial, size) >= 2 * restart_s:
                free_workers -= size - trial.workers
                found.append(Resize(trial.id, size, f"it leads, and {fitting - trial.workers} workers are free"))
        for resize in found:
            self._add(resize)
        self._settle()
        return found

    def _saved_s(self, trial: Trial, workers: int) -> float:
        """Seconds that a trial would be done earlier with so many workers, as it has gone so far."""
        per_sample = trial.worker_seconds / max(trial.samples, 1)
        return per_sample * (self.length - trial.samples) * (1 / trial.workers - 1 / workers)

    def proposal(self, entry: Entry) -> Entry | None:
        """What this sweep would log where the log has this entry; None where only a fact can be next."""
        due = self.due()
        return self._suggest() if due is None and isinstance(entry, Suggestion) else due

    def follows(self, entry: Entry) -> bool:
        """Whether an entry is what follows from those before it, or a fact where one may come."""
        if (expected := self.proposal(entry)) is not None:
            return entry == expected
        return not isinstance(entry, Suggestion | Decision) and not (isinstance(entry, Halt) and entry.what != "time")

    # ------------------------------------------------------------ parts

    def _add(self, entry: Entry) -> None:
        self.apply(entry)
        self._new.append(entry)

    def _follow(self) -> None:
        while (entry := self.due()) is not None:
            self._add(entry)

    def _settle(self) -> None:
        """Logs what is new and all that follows from it."""
        self._follow()
        new, self._new = self._new, []
        if new and self._record is not None:
            self._record(new)

    def _waiting(self) -> list[str]:
        """Trials that may go on and have no leg, the next one first."""
        return sorted((trial for trial in self._line if trial not in self._legs), key=self._line.__getitem__)

    def _start(self, trial: Trial) -> Leg:
        here, generation = trial.generations[-1], trial.generation
        begin: Literal["start", "resume", "clone"] = "resume"
        if not trial.reported:
            begin = "clone" if generation else "resume" if trial.losses else "start"
        cloned = begin == "clone" and here.donor is not None
        leg = Leg(
            trial=trial.id,
            number=trial.number,
            leg=trial.leg,
            generation=generation,
            run=trial.run,
            params=trial.params,
            workers=trial.workers,
            samples=trial.seen,
            begin=begin,
            donor=here.donor if cloned else None,
            donor_run=run_name(here.donor, here.donor_generation) if cloned and here.donor else None,
            donor_samples=here.samples if cloned else None,
        )
        self._legs[trial.id], self._seats[trial.id] = leg, self._line[trial.id]
        return leg

    def _passed_over(self, trial: str) -> bool:
        """Whether a running trial was paused and let go on at once, behind others that wait: it joins them."""
        place = self._line[trial]
        if self._seats.get(trial, place) == place:
            return False
        return any(self._line[other] < place for other in self._waiting())

    def _may_begin(self) -> bool:
        """Whether a new trial may begin: the number of trials, the scheduler and the searcher allow it."""
        return len(self._trials) < self.allowed and not self._exhausted and self._scheduler.wants_more()

    def _suggest(self) -> Suggestion | None:
        if not self._may_begin():
            return None
        number = len(self._trials)
        proposal = self._searcher.suggest(number)
        if proposal is None:
            self._exhausted = True
            return None
        params, note = proposal
        return Suggestion(trial_id(number), number, dict(params), note)

    def _stuck(self, paused: Sequence[Trial]) -> None:
        """Nothing runs or can begin, and trials wait for the scheduler: it waits for trials that do not come."""
        if not self.closed:
            self._add(Close("nothing is left to try" if self._exhausted else "all trials have begun"))
        else:
            for trial in paused:
                self._add(End(trial.id, "stopped", trial.samples, "nothing is left that it could be compared with"))
        self._settle()

    def _size(self, fitting: int) -> int:
        """The most workers of use to a trial, of those that fit."""
        return best_size(self.workers.lanes, self.workers.usual, self.workers.most, fitting=fitting)

    def _next_milestone(self, trial: Trial) -> int:
        return next((m for m in self.milestones if m > trial.seen), self.length)
