"""Runs for tests: the real driver's record and the real workers' work, in groups without Ray; faults between them."""

from __future__ import annotations

import importlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch.distributed as dist

from pliant.data.prepare import write_dataset
from pliant.storage.attempts import Attempt
from pliant.storage.layout import CHECKPOINTS, MANIFEST
from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.train import driver
from pliant.train.launch import Launch, new_run, resumed_run
from pliant.train.recorded import record_start
from pliant.train.work import WorkSpec, work
from tests.train.pipelines.masked import Masked
from tests.train.pipelines.masked_settings import ModelSettings
from tests.train.processes import Group

PIPELINE = str(Path(__file__).parent / "pipelines" / "masked.py")
STEPS = 21
"""3.3 epochs of 203 rows in batches of 32."""
SETTINGS = [
    "train.global_batch=32",
    "train.micro_batch=3",
    f"train.steps={STEPS}",
    "train.audit=true",
    "data.lanes=8",
    "data.window=2",
    "data.reader=local",
    "elastic.max_workers=4",
    "checkpoint.every_steps=5",
    "checkpoint.keep_best=0",
    "eval.every_steps=7",
    "schedule.warmup=3",
    "optim.weight_decay=0.1",
    "run.store.segment_every=0.2",
    "tracking.kind=none",
]


def prepare(out: str) -> str:
    """Writes the dataset to a path or URI; returns it."""
    write_dataset(Masked(ModelSettings()).prepare(), out)
    return out


@dataclass
class Run:
    """A run under test."""

    store: Store
    name: str

    @staticmethod
    def begin(storage: str, dataset: str, *settings: str, name: str = "run", pipeline: str = PIPELINE) -> Run:
        given = [*SETTINGS, f"data.path={dataset}", f"run.storage={storage}", *settings]
        overrides = list({text.partition("=")[0]: text for text in given}.values())
        launch = new_run(pipeline, overrides, name=name, in_process=False)
        run = Run(launch.record.store, name)
        run._launch = launch
        return run

    def group(self, workers: int, *changes: str, fault: Callable[[], Any] | None = None) -> Group:
        """Starts a driver's claim and a worker group of it, as ``train`` or ``resume`` would."""
        spec = driver.work_spec(*self.record_start(*changes))
        return Group(workers, worker, spec, str(self.notes_file), fault)

    def record_start(self, *changes: str) -> tuple[Launch, Attempt]:
        """The driver's claim and record of a start, without workers."""
        launch = self._launch
        if launch is None:
            launch = resumed_run(self.store, list(changes), take_over=True, in_process=False)
        self._launch = None
        attempt = launch.record.claim_driver()
        record_start(attempt, launch.config, launch.origins, launch.code)
        return launch, attempt

    def when_committed(self, step: int, fault: Before) -> Before:
        """The fault, but not before the run's checkpoint of a step is committed."""
        return replace(fault, committed=(self.store.uri, step))

    def attempt(self, workers: int, *changes: str, fault: Callable[[], Any] | None = None) -> list[Any]:
        """Runs a group to its end."""
        return self.group(workers, *changes, fault=fault).results()

    @property
    def record(self) -> RunRecord:
        return RunRecord.open(self.store)

    def log(self, name: str) -> list[dict[str, Any]]:
        return list(read_log(self.store, self.record.view(), name))

    def curve(self) -> list[tuple[Any, ...]]:
        """What must not depend on workers and interruptions, step by step."""
        keys = ("step", "epoch", "position", "samples", "tokens", "loss", "accuracy", "lr", "grad_norm", "digest")
        return [tuple(entry[key] for key in keys) for entry in self.log("metrics")]

    def rows(self) -> list[tuple[int, list[Any]]]:
        """Step and rows (epoch, position, row group, row) of every audited batch, in stream order."""
        return [(entry["step"], entry["rows"]) for entry in self.log("audit")]

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """Notes of a kind that the workers have left for the driver so far, while they run too."""
        lines = self.notes_file.read_text().splitlines() if self.notes_file.exists() else []
        return [note for note in map(json.loads, lines) if note["kind"] == kind]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.log("events") if event["kind"] == kind]

    _launch: Any = None
    notes_file: Path = field(default_factory=lambda: Path(tempfile.mkstemp(suffix=".jsonl")[1]))


def worker(spec: WorkSpec, notes_file: str, fault: Callable[[], Any] | None) -> None:
    """What each worker process does."""

    def exchange(more: list[dict[str, Any]]) -> int:
        with open(notes_file, "a") as file:
            file.writelines(json.dumps(note) + "\n" for note in more)
        return 0

    if fault is None:
        work(spec, local_rank=0, exchange=exchange)
    else:
        with fault():
            work(spec, local_rank=0, exchange=exchange)


@dataclass(frozen=True)
class Before:
    """Does something in every worker just before a function is called for the n-th time in its process.

    Attributes:
        target: ``module:Class.method`` or ``module:function``.
        call: n, from 1.
        signal: sent to the worker itself, or
        error: raised instead of the call, for ``times`` calls in a row.
        rank: of the only worker that this happens to; None for all.
        committed: storage URI of a run and a step: the fault waits until the checkpoint of that step is committed,
            which happens beside training at a moment of its own.
    """

    target: str
    call: int
    signal: int | None = None
    error: BaseException | None = None
    times: int = 1
    rank: int | None = None
    committed: tuple[str, int] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        module, _, path = self.target.partition(":")
        owner_name, _, method = path.rpartition(".")
        owner: Any = importlib.import_module(module)
        for name in filter(None, owner_name.split(".")):
            owner = getattr(owner, name)
        original, calls = getattr(owner, method), 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if self.call <= calls < self.call + self.times and self._mine():
                self._wait()
                if self.signal is not None:
                    os.kill(os.getpid(), self.signal)
                if self.error is not None:
                    raise self.error
            return original(*args, **kwargs)

        with mock.patch.object(owner, method, counted):
            yield

    def _mine(self) -> bool:
        return self.rank is None or self.rank == dist.get_rank()

    def _wait(self) -> None:
        if self.committed is None:
            return
        store, name = Store(self.committed[0], StorageSettings()), f"step-{self.committed[1]:08d}."
        while not any(name in info.key and info.key.endswith(MANIFEST) for info in store.list(CHECKPOINTS)):
            time.sleep(0.02)


def kill_before(target: str, call: int) -> Before:
    """SIGKILL of every worker."""
    return Before(target, call, signal=signal.SIGKILL)
