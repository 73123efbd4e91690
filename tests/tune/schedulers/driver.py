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


def settings(kind: str, *, trials: int = 27, seed: int = 0, **scheduler: Any) -> SweepSettings:
    return SweepSettings(trials=trials, seed=seed, scheduler=SchedulerSettings(kind=kind, **scheduler))


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
    """Runs trials against a scheduler.

    Args:
        scheduler: a fresh one.
        own: the sweep's settings; ``slots`` is how many trials run at once, 4 where it is None.
        order: seed of which of the running trials comes next.
        train: what a trial does.
        batch: rows of a step by number of the trial; reports lie at its multiples.
        dies: by trial and number of its leg's reports so far, how it ends instead of reporting.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        own: SweepSettings,
        *,
        order: int = 0,
        train: Train = accumulate,
        batch: Callable[[int], int] = lambda number: 10,
        dies: Mapping[tuple[int, int], How] | None = None,
        space: Space = SPACE,
    ) -> None:
        self.scheduler, self.own, self.train, self.batch, self.space = scheduler, own, train, batch, space
        self.dies = dies or {}
        self.random = random.Random(order)
        self.trials: dict[str, Trial] = {}
        self.queue: list[str] = []
        self.log: list[Entry] = []
        self.closed = False
        self.replaced = 0

    def run(self, most: int = 100_000) -> Sweep:
        """To the end, or until the log has so many entries."""
        self.decide()
        while len(self.log) < most:
            if running := self.fill():
                self.advance(self.random.choice(running))
            elif "paused" in [trial.status for trial in self.trials.values()] and not self.closed:
                self.close()
                self.decide()
            else:
                stuck = [t for t, trial in self.trials.items() if trial.status != "over"]
                assert not stuck, f"left for ever: {stuck}"
                break
        return self

    def replay(self, log: Sequence[Entry], *, ask: bool = True) -> Sweep:
        """What the log says happens again. ``ask``: the scheduler is asked in between as well, which must not
        matter."""
        for entry in log:
            if ask:
                self.scheduler.decide()
            if isinstance(entry, Suggestion):
                self.begin(entry)
            elif isinstance(entry, Report):
                trial = self.trials[entry.trial]
                trial.states[entry.samples], _ = self.train(
                    trial.states.get(trial.samples), trial.params, trial.samples, entry.samples
                )
                trial.samples = entry.samples
                trial.values.append(entry.value)
                self.log.append(entry)
                self.scheduler.observe(entry)
            elif isinstance(entry, Decision):
                self.carry_out(entry)
            elif isinstance(entry, Close):
                self.close()
            else:
                self.finish(entry)
        return self

    def fill(self) -> list[str]:
        running = [t for t, trial in self.trials.items() if trial.status == "running" and t not in self.queue]
        while len(running) < (self.own.slots or 4):
            if self.queue:
                running.append(self.queue.pop(0))
            elif self.allowed() and self.scheduler.wants_more():
                number = len(self.trials)
                self.begin(Suggestion(trial_id(number), number, self.drawn(number)))
                running.append(trial_id(number))
            else:
                break
        return running

    def allowed(self) -> bool:
        """Those that ended without a value are replaced, once."""
        wanted = self.scheduler.population or self.own.trials
        return len(self.trials) < wanted + min(wanted, self.replaced)

    def close(self) -> None:
        self.closed = True
        self.log.append(Close("nothing else is left"))
        self.scheduler.close()

    def drawn(self, number: int) -> Params:
        return self.space.draw(lambda name: unit(self.own.seed, "point", number, name))

    def begin(self, suggestion: Suggestion) -> None:
        self.log.append(suggestion)
        self.trials[suggestion.trial] = Trial(suggestion.params)
        self.scheduler.add(suggestion)

    def advance(self, name: str) -> None:
        trial, number = self.trials[name], int(name[1:])
        how = self.dies.get((number, len(trial.states)))
        if how is not None:
            self.finish(End(name, how, trial.samples))
            self.decide()
            return
        stones, rows = self.scheduler.milestones, self.batch(number)
        after = stones[bisect_right(stones, trial.samples)]
        now = -(-after // rows) * rows
        state, value = self.train(trial.states.get(trial.samples), trial.params, trial.samples, now)
        trial.states[now], trial.samples = state, now
        trial.values.append(finite(value))
        report = Report(name, now, finite(value), {}, generation=trial.generation)
        self.log.append(report)
        self.scheduler.observe(report)
        due = self.decide()
        assert [d.action for d in due if d.trial == name][:1] in (["continue"], ["stop"], ["pause"], ["exploit"])
        assert all(d.samples == now for d in due if d.trial == name)
        if now >= stones[-1] and trial.status == "running":
            self.finish(End(name, "completed", now))
            self.decide()

    def decide(self) -> list[Decision]:
        due = self.scheduler.decide()
        assert due == self.scheduler.decide(), "asking changes nothing"
        for decision in due:
            left = self.scheduler.decide()
            assert left[0] == decision, "what is due stays due, in its order"
            self.carry_out(decision)
        assert self.scheduler.decide() == []
        return due

    def carry_out(self, decision: Decision) -> None:
        trial = self.trials[decision.trial]
        allowed = {"continue": ("running",), "pause": ("running",), "resume": ("paused",)}
        assert trial.status in allowed.get(decision.action, ("running", "paused")), decision
        self.log.append(decision)
        self.scheduler.apply(decision)
        if decision.action == "pause":
            trial.status = "paused"
        elif decision.action == "resume":
            trial.status = "running"
            self.queue.append(decision.trial)
        elif decision.action == "exploit":
            assert decision.donor is not None
            assert decision.donor_samples is not None
            assert decision.params is not None
            assert decision.donor != decision.trial
            assert self.space.contains(decision.params)
            donor = self.trials[decision.donor]
            trial.states[decision.donor_samples] = donor.states[decision.donor_samples]
            trial.samples, trial.params, trial.status = decision.donor_samples, decision.params, "running"
            trial.generation += 1
            self.queue.append(decision.trial)
        if decision.action == "stop":
            how: How = "diverged" if trial.values[-1:] == [None] else "stopped"
            self.finish(End(decision.trial, how, trial.samples))

    def finish(self, end: End) -> None:
        self.log.append(end)
        trial = self.trials[end.trial]
        trial.status = "over"
        if end.how in ("diverged", "out-of-memory") and not any(value is not None for value in trial.values):
            self.replaced += 1
        self.scheduler.end(end)

    def decisions(self) -> list[Decision]:
        return [entry for entry in self.log if isinstance(entry, Decision)]
