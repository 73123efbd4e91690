"""A group that is asked to leave: together, at once, with a committed checkpoint, wherever its ranks are just then.

The test takes the controller's part: it calls into the gates of real worker processes, as the controller does by actor
calls. What was broken off is made good by the next group, and the numbers do not change.
"""

from __future__ import annotations

import importlib
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch.distributed as dist

from pliant.elastic import gate
from pliant.elastic.gate import LeftError
from pliant.elastic.watchdog import Watchdog
from tests.train.runs import STEPS, Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STEP = "pliant.train.step:Step.run"
EVALUATION = "pliant.train.evaluate:Counts.add"
FEED = "pliant.train.feed:BatchFeed._load"


@dataclass(frozen=True)
class Controlled:
    """Around a worker's work: answers the controller's calls, and waits at a place until it was asked to leave.

    Attributes:
        folder: of the sockets that the workers answer on.
        target: ``module:Class.method``; waits before its n-th call in this process.
        rank: of the only worker that waits; None for all.
        until: what ends the waiting: the gate is ``held``, or ``leaving``.
    """

    folder: str
    target: str
    call: int
    rank: int | None = None
    until: str = "held"

    @contextmanager
    def __call__(self) -> Iterator[None]:
        module, _, path = self.target.partition(":")
        owner_name, _, method = path.partition(".")
        owner = getattr(importlib.import_module(module), owner_name)
        original, calls, mine = getattr(owner, method), 0, self.rank in (None, dist.get_rank())
        listener = Listener(f"{self.folder}/{dist.get_rank()}", "AF_UNIX")
        threading.Thread(target=_answer, args=(listener,), daemon=True).start()

        def waited(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == self.call and mine:
                Path(f"{self.folder}/waits-{dist.get_rank()}").touch()
                here = gate._here
                while not (here.leaving if self.until == "leaving" else here._held):
                    time.sleep(0.01)
            return original(*args, **kwargs)

        with mock.patch.object(owner, method, waited):
            try:
                yield
            except LeftError:
                return


def _answer(listener: Listener) -> None:
    with listener.accept() as connection:
        while True:
            name, args = connection.recv()
            connection.send(getattr(gate, name)(*args))


def leave(run: Run, workers: int, target: str, call: int, *changes: str, **where: Any) -> list[int]:
    """Runs a group until it waits there, and asks it to leave; the tick of each rank when it was asked."""
    with tempfile.TemporaryDirectory() as folder:
        fault = Controlled(folder, target, call, **where)
        group = run.group(workers, *changes, fault=fault)
        ranks = range(workers) if fault.rank is None else [fault.rank]
        while not all(Path(f"{folder}/waits-{rank}").exists() for rank in ranks):
            if not group.running:
                group.results()
            time.sleep(0.02)
        hands = [Client(f"{folder}/{rank}", "AF_UNIX") for rank in range(workers)]

        def ask(name: str, *args: Any) -> list[Any]:
            for hand in hands:
                hand.send((name, args))
            return [hand.recv() for hand in hands]

        while None in (ticks := ask("hold")):  # a loop that has not begun
            time.sleep(0.02)
        ask("stop_at", max(ticks), "preemption")
        group.results()
        return ticks


def numbers(run: Run) -> tuple[Any, ...]:
    strip = ("seconds", "time", "attempt")
    return run.curve(), run.rows(), [{k: v for k, v in e.items() if k not in strip} for e in run.log("evaluations")]


@dataclass(frozen=True)
class Place:
    """Where a group is when it is asked to leave.

    Attributes:
        steps: which may be the last that is done when it has left: batches are loaded ahead of the step.
    """

    workers: int
    target: str
    call: int
    steps: tuple[int, ...]
    where: dict[str, Any] = field(default_factory=dict)


# One group after the other. An evaluation of 22 micro-batches is due every 7 steps, and made good when it was missed.
PLACES = {
    "before the first step": Place(2, FEED, 1, (0,), {"until": "leaving"}),
    "in the first step": Place(2, STEP, 1, (1,)),
    "one rank waits for data, the other is in the step": Place(2, FEED, 2, (2, 3), {"rank": 1}),
    "all wait for data": Place(2, FEED, 2, (2, 3, 4), {"until": "leaving"}),
    "in a step": Place(2, STEP, 2, (4, 5, 6)),
    "in an evaluation": Place(2, EVALUATION, 5, (7,)),
    "one rank is a batch of the evaluation behind": Place(2, EVALUATION, 11 + 5, (14,), {"rank": 0}),
    "in the evaluation after the last step": Place(1, EVALUATION, 22 + 5, (STEPS,)),
}


def test_groups_leave_with_a_committed_checkpoint_wherever_they_are(tmp_path: Path, dataset: str, whole: Run) -> None:
    run = Run.begin(str(tmp_path), dataset, "checkpoint.every_steps=100")
    for count, (name, place) in enumerate(PLACES.items(), 1):
        ticks = leave(run, place.workers, place.target, place.call, **place.where)
        assert max(ticks) - min(ticks) <= 1, name
        step = max([0, *(entry["step"] for entry in run.log("metrics"))])
        assert step in place.steps, name
        assert max([0, *(ref.step for ref in run.record.view().checkpoints())]) == step, name
        assert run.record.stop_of(2 * count)["reason"] == "preemption", name  # type: ignore[index]
        assert not run.notes("ended"), name
    run.attempt(3)
    assert run.record.stop_of(2 * len(PLACES) + 2)["reason"] == "done"  # type: ignore[index]
    assert numbers(run) == numbers(whole)


def test_the_last_checkpoint_may_take_longer_than_a_step_ever_did(tmp_path: Path, dataset: str) -> None:
    run = Run.begin(str(tmp_path), dataset)
    with tempfile.TemporaryDirectory() as folder:
        group = run.group(1, fault=Controlled(folder, "pliant.checkpoint.writer:CheckpointWriter.wait", 1))
        while not Path(f"{folder}/waits-0").exists():
            time.sleep(0.02)
        hand = Client(f"{folder}/0", "AF_UNIX")
        hand.send(("report", ()))
        report = hand.recv()
        assert (report.step, report.waiting) == (STEPS, "the last checkpoint")
        patient, strict = (Watchdog(5.0, patience_s, clock=iter((0.0, 0.0, 700.0)).__next__) for patience_s in (600, 0))
        for watchdog in (patient, strict):
            watchdog.begin()
        assert patient.check(report, age_s=500) == ""
        assert strict.check(report, age_s=500) != ""
        hand.send(("hold", ()))
        group.results()
    assert run.record.stop_of(2)["reason"] == "done"  # type: ignore[index]
