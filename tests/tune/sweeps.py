"""Simulated sweeps for tests: the real state, schedulers and searchers, a made-up landscape, a log that may be cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pliant.tune.build import Search, build_sweep
from pliant.tune.decisions import replay
from pliant.tune.domains import Dimension
from pliant.tune.draws import unit
from pliant.tune.settings import SweepSettings
from pliant.tune.simulate import Simulation, Stretch, curves
from pliant.tune.space import Space
from pliant.tune.sweep import Answer, Leg, Record, Sweep
from pliant.tune.table import Workers
from pliant.tune.types import Decision, End, Entry, Loss, Params, Report, Suggestion

ROWS, EPOCHS = 100, 27
LENGTH = ROWS * EPOCHS
SPACE = Space(
    (
        Dimension("optim.lr", "float", 1e-4, 1e-1, log=True),
        Dimension("train.global_batch", "choice", choices=(32, 64, 128)),
        Dimension("model.width", "int", 16, 128, mutable=False),
    )
)

GRID = Space(
    (
        Dimension("optim.lr", "choice", choices=(0.001, 0.01)),
        Dimension("train.global_batch", "choice", choices=(32, 64)),
        Dimension("model.width", "choice", choices=(16, 32), mutable=False),
    )
)


class Killed(Exception):
    """The driver is gone."""


class Log:
    """What is durable. The driver dies at the begin of the first entry beyond ``most``."""

    def __init__(self, most: float = math.inf) -> None:
        self.entries: list[Entry] = []
        self.most = most

    def record(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if len(self.entries) >= self.most:
                raise Killed
            self.entries.append(entry)

    def of(self, kind: type[Any]) -> list[Any]:
        return [entry for entry in self.entries if isinstance(entry, kind)]


def settings(scheduler: str = "asha", *, searcher: str = "random", **own: Any) -> SweepSettings:
    """Settings of a sweep; ``scheduler__eta=2`` sets one of its scheduler, ``budget__…`` one of its budgets."""
    nested: dict[str, Any] = {"scheduler": {"kind": scheduler}, "searcher": {"kind": searcher}, "budget": {}}
    for name, value in own.items():
        section, _, key = name.partition("__")
        if key:
            nested[section][key] = value
        else:
            nested[name] = value
    if scheduler in ("pbt", "pb2"):
        nested["scheduler"].setdefault("population", nested.get("trials", 8))
    return SweepSettings.model_validate(nested)


def build(
    own: SweepSettings,
    *,
    record: Record | None = None,
    slots: int | None = None,
    workers: Workers = Workers(),  # noqa: B008
) -> Sweep:
    """A fresh sweep over ``SPACE``, or ``GRID``."""
    search = Search(own, GRID if own.searcher.kind == "grid" else SPACE, "loss", "min", LENGTH, ROWS, workers)
    return build_sweep(search, slots=slots, record=record)


def quality(params: Params) -> float:
    """Where a trial ends: smaller is better, NaN for a learning rate that is far too large."""
    lr = params["optim.lr"]
    return math.nan if lr > 0.06 else abs(math.log10(lr) + 2.5) + params["model.width"] / 1000


def landscape(params: Params, samples: int) -> tuple[float, float]:
    """Value and seconds at so many samples; each trial has its own speed and its own noise."""
    noise = 0.3 * unit(0, "noise", sorted(params.items()), samples) / (1 + samples / 100)
    speed = 0.5 + unit(0, "speed", sorted(params.items()))
    return quality(params) + 10 / (1 + samples / 100) + noise, samples * speed


def learn(state: Any, params: Params, begin: int, end: int) -> Stretch:
    """Training with a state: what was learned with which parameters is carried on, also into clones."""
    lr = params["optim.lr"]
    rate = 1 / (1 + abs(math.log10(lr) + 2.5))
    learned = (state or 0.0) + rate * (end - begin)
    return Stretch(learned, math.nan if lr > 0.06 else 10 - learned / 300, (end - begin) * (0.5 + rate))


def batch_of(params: Params) -> int:
    return int(params["train.global_batch"])


def simulation(*, slots: int = 1, stateful: bool = False, **own: Any) -> Simulation:
    """Machines; trials report a little above their milestones, by their own batch."""
    train = learn if stateful else curves(landscape)
    return Simulation(train, slots=slots, batch=batch_of, **own)


def uninterrupted(
    own: SweepSettings,
    machines: Simulation,
    workers: Workers = Workers(),  # noqa: B008
) -> tuple[Sweep, Log]:
    log = Log()
    sweep = build(own, record=log.record, workers=workers)
    sweep.begin()
    machines.run(sweep)
    return sweep, log


def interrupted(own: SweepSettings, machines: Simulation, every: int) -> tuple[Sweep, Log, int]:
    """The same sweep, its driver killed each time that so many entries have become durable; how often that was."""
    log, kills = Log(), 0
    while True:
        log.most = len(log.entries) + every
        sweep = build(own, record=log.record)
        replay(log.entries, sweep)
        try:
            sweep.begin()
            machines.run(sweep)
            return sweep, log, kills
        except Killed:
            kills += 1


def choices(log: Log) -> tuple[list[Suggestion], list[Decision], dict[str, str]]:
    """What must not depend on which trial is faster: suggestions, decisions on trials that waited for others, each in
    order, and how every trial ended."""
    waits: set[str] = set()
    decided = []
    for entry in log.of(Decision):
        if entry.trial in waits:
            decided.append(entry)
        (waits.add if entry.action == "pause" else waits.discard)(entry.trial)
    return log.of(Suggestion), decided, {end.trial: end.how for end in log.of(End)}


class Hand:
    """A sweep driven by hand."""

    def __init__(self, own: SweepSettings | None = None, log: Log | None = None, **given: Any) -> None:
        self.log = log or Log()
        self.sweep: Sweep = build(own or settings("none"), record=self.log.record, **given)
        replay(self.log.entries, self.sweep)

    def leg(self, free_workers: int | None = None) -> Leg:
        found = self.sweep.next_leg(free_workers)
        assert isinstance(found, Leg)
        return found

    def legs(self, number: int) -> list[str]:
        return [self.leg().trial for _ in range(number)]

    def report(self, trial: str, samples: int, value: float | None = 1.0, **own: Any) -> Answer:
        return self.sweep.report(Report(trial, samples, value, {"loss": value}, **own))

    def lose(self, trial: str, cause: Any = "preemption", text: str = "gone", signature: str = "") -> None:
        self.sweep.lost(Loss(trial, cause, text, signature))

    def status(self, trial: str) -> str:
        return self.sweep.status(self.sweep.trials[trial])


def started(own: SweepSettings | None = None, **given: Any) -> Hand:
    hand = Hand(own, **given)
    hand.sweep.begin()
    return hand
