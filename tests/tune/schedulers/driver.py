"""A sweep without machines: slots, trials that advance in any order, and all that a scheduler is promised about it.

Whatever happens is written down (``log``), and every step checks what holds for all schedulers: each report of a
running trial gets exactly one decision, only paused trials are resumed, nobody is left paused, ``decide`` changes
nothing.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pliant.tune.domains import Dimension
from pliant.tune.draws import unit
from pliant.tune.schedulers import make_scheduler
from pliant.tune.settings import SchedulerSettings, SweepSettings
from pliant.tune.space import Space
from pliant.tune.types import Close, Decision, End, How, Mode, Params, Report, Scheduler, Suggestion, finite, trial_id

SPACE = Space(
    (
        Dimension("optim.lr", "float", 1e-4, 1e-1, log=True),
        Dimension("train.global_batch", "choice", choices=(32, 64, 128)),
        Dimension("optim.weight_decay", "float", 0.0, 0.5),
        Dimension("model.width", "int", 16, 128, mutable=False),
        Dimension("schedule.kind", "choice", choices=("cosine", "wsd")),
        Dimension("schedule.decay", "float", 0.1, 0.5, when={"schedule.kind": ("wsd",)}),
    )
)
Entry = Suggestion | Report | Decision | Close | End


def settings(kind: str, *, trials: int = 27, slots: int = 4, seed: int = 0, **scheduler: Any) -> SweepSettings:
    own = SchedulerSettings.model_validate({"kind": kind, **scheduler})
    return SweepSettings(trials=trials, slots=slots, seed=seed, scheduler=own)


def make(own: SweepSettings, *, length: int = 2700, mode: Mode = "min", space: Space = SPACE) -> Scheduler:
    """A scheduler for trials of 27 epochs of 100 rows, or of another length."""
    return make_scheduler(own, length=length, rows=100, mode=mode, space=space)


@dataclass
class Trial:
    """``state`` is what ``train`` makes of it: by samples, at each report."""

    params: Params
    samples: int = 0
    status: Literal["running", "paused", "over"] = "running"
    generation: int = 0
    values: list[float | None] = field(default_factory=list)
    states: dict[int, Any] = field(default_factory=dict)


Train = Callable[[Any, Params, int, int], tuple[Any, float | None]]
"""From state (None at the start), point, samples before and now: state and value."""


def accumulate(state: Any, params: Params, before: int, now: int) -> tuple[Any, float | None]:
    """Falls the faster the nearer lr is to 0.01 and weight decay to 0.1; what lr 0.05 and more yields is no number."""
    if params["optim.lr"] > 0.05:
        return state, float("nan")
    rate = 1 / (1 + abs(params["optim.lr"] - 0.01) * 100 + abs(params["optim.weight_decay"] - 0.1))
    state = (0.0 if state is None else state) + rate * (now - before)
    return state, 10.0 - state / 1000


class Sweep:
    """Runs trials against a scheduler, as a fold over the log's entries.

    Args:
        scheduler: a fresh one.
        own: the sweep's settings; ``slots`` is how many trials run at once.
        order: seed of which of the running trials comes next; None: that with the fewest samples.
        train: what a trial does.
        batch: rows of a step by number of the trial; reports lie at its multiples.
        dies: by number of the trial and of its reports so far, how it ends instead of reporting again.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        own: SweepSettings,
        *,
        order: int | None = 0,
        train: Train = accumulate,
        batch: Callable[[int], int] = lambda number: 10,
        dies: Mapping[tuple[int, int], How] | None = None,
        space: Space = SPACE,
    ) -> None:
        self.scheduler, self.own, self.train, self.batch, self.space = scheduler, own, train, batch, space
        self.dies = dies or {}
        self.random = random.Random(order) if order is not None else None
        self.trials: dict[str, Trial] = {}
        self.queue: list[str] = []
        self.ends: dict[str, End] = {}
        self.log: list[Entry] = []
        self.closed = False
        self.replaced = 0

    def run(self, most: int = 100_000) -> Sweep:
        """To the end, or until the log has so many entries."""
        self.follow()
        while len(self.log) < most:
            if running := self.fill():
                self.apply(self.advance(self.next(running)))
            elif "paused" in [trial.status for trial in self.trials.values()] and not self.closed:
                self.apply(Close("nothing else is left"))
            else:
                stuck = [t for t, trial in self.trials.items() if trial.status != "over"]
                assert not stuck, f"left for ever: {stuck}"
                break
            self.follow()
        return self

    def replay(self, log: Sequence[Entry], *, ask: bool = True) -> Sweep:
        """What the log says happens again. ``ask``: the scheduler is asked in between as well, which must not
        matter."""
        for entry in log:
            if ask:
                self.scheduler.decide()
            self.apply(entry)
        return self

    def fill(self) -> list[str]:
        """Trials that run, new ones included."""
        running = [t for t, trial in self.trials.items() if trial.status == "running" and t not in self.queue]
        while len(running) < (self.own.slots or 1):
            if self.queue:
                running.append(self.queue.pop(0))
            elif self.allowed() and self.scheduler.wants_more():
                number = len(self.trials)
                point = self.drawn(number)
                self.apply(Suggestion(trial_id(number), number, point))
                self.follow()
                running.append(trial_id(number))
            else:
                break
        return running

    def drawn(self, number: int) -> Params:
        return self.space.draw(lambda name: unit(self.own.seed, "point", number, name))

    def next(self, running: Sequence[str]) -> str:
        if self.random is not None:
            return self.random.choice(running)
        return min(running, key=lambda name: self.trials[name].samples)

    def allowed(self) -> bool:
        """Those that ended without a value are replaced, once."""
        wanted = self.scheduler.population or self.own.trials
        return len(self.trials) < wanted + min(wanted, self.replaced)

    def advance(self, name: str) -> Report | End:
        """What happens to a running trial next."""
        trial, number = self.trials[name], int(name[1:])
        how = self.dies.get((number, len(trial.values)))
        if how is not None:
            return End(name, how, trial.samples)
        stones, rows = self.scheduler.milestones, self.batch(number)
        now = -(-stones[bisect_right(stones, trial.samples)] // rows) * rows
        _, value = self.train(trial.states.get(trial.samples), trial.params, trial.samples, now)
        return Report(name, now, finite(value), {}, generation=trial.generation)

    def follow(self) -> None:
        """Applies what follows from what happened: decisions, then ends."""
        while True:
            due = self.scheduler.decide()
            assert due == self.scheduler.decide(), "asking changes nothing"
            if due:
                self.apply(due[0])
                assert self.scheduler.decide()[: len(due) - 1] == due[1:], "what is due stays due, in its order"
            elif self.ends:
                self.apply(next(iter(self.ends.values())))
            else:
                return

    def apply(self, entry: Entry) -> None:
        """Takes an entry of the log."""
        self.log.append(entry)
        self.tell(entry)
        if isinstance(entry, Suggestion):
            self.trials[entry.trial] = Trial(entry.params)
        elif isinstance(entry, Close):
            self.closed = True
        elif isinstance(entry, Report):
            self._report(self.trials[entry.trial], entry)
        elif isinstance(entry, Decision):
            self._carry_out(self.trials[entry.trial], entry)
        else:
            self.ends.pop(entry.trial, None)
            trial = self.trials[entry.trial]
            trial.status = "over"
            if entry.how in ("diverged", "out-of-memory") and not any(value is not None for value in trial.values):
                self.replaced += 1

    def tell(self, entry: Entry) -> None:
        """The scheduler alone hears of it."""
        if isinstance(entry, Suggestion):
            self.scheduler.add(entry)
        elif isinstance(entry, Report):
            self.scheduler.observe(entry)
        elif isinstance(entry, Decision):
            self.scheduler.apply(entry)
        elif isinstance(entry, Close):
            self.scheduler.close()
        else:
            self.scheduler.end(entry)

    def _report(self, trial: Trial, report: Report) -> None:
        self.queue = [name for name in self.queue if name != report.trial]
        before = trial.states.get(trial.samples)
        trial.states[report.samples], _ = self.train(before, trial.params, trial.samples, report.samples)
        trial.samples = report.samples
        trial.values.append(report.value)
        if report.samples >= self.scheduler.milestones[-1]:
            self.ends[report.trial] = End(report.trial, "completed", report.samples)
        due = [decision for decision in self.scheduler.decide() if decision.trial == report.trial]
        assert [d.action for d in due][:1] in (["continue"], ["stop"], ["pause"], ["exploit"])
        assert all(d.samples == report.samples for d in due)

    def _carry_out(self, trial: Trial, decision: Decision) -> None:
        allowed = {"continue": ("running",), "pause": ("running",), "resume": ("paused",)}
        assert trial.status in allowed.get(decision.action, ("running", "paused")), decision
        if decision.action == "pause":
            trial.status = "paused"
        elif decision.action == "stop":
            how: How = "diverged" if trial.values[-1:] == [None] else "stopped"
            self.ends.setdefault(decision.trial, End(decision.trial, how, trial.samples))
        elif decision.action == "resume":
            trial.status = "running"
            self.queue.append(decision.trial)
        elif decision.action == "exploit":
            assert decision.donor is not None
            assert decision.donor_samples is not None
            assert decision.params is not None
            assert decision.donor != decision.trial
            assert self.space.contains(decision.params)
            state = self.trials[decision.donor].states[decision.donor_samples]
            trial.samples, trial.params, trial.status = decision.donor_samples, decision.params, "running"
            trial.states = {trial.samples: state}
            trial.generation += 1
            self.queue.append(decision.trial)

    def together(self) -> list[Decision]:
        """Decisions on paused trials, in order."""
        paused, found = set[str](), []
        for decision in self.decisions():
            if decision.trial in paused:
                found.append(decision)
            (paused.add if decision.action == "pause" else paused.discard)(decision.trial)
        return found

    def decisions(self) -> list[Decision]:
        return [entry for entry in self.log if isinstance(entry, Decision)]
