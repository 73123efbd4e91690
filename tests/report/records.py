"""Runs whose record is written without training, on a clock of their own: what a report makes of any history."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

from pliant.storage.attempts import Attempt
from pliant.storage.layout import CheckpointRef, attempt_key, encode
from pliant.storage.owner import process_identity
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.storage.view import STEP_LOGS

BEGIN = 1_790_000_000.0
CONDITIONS = {"device": "cpu", "cpu": "x86_64 AVX512", "torch": "2.13.0", "threads": 1, "micro_batch": 8}
ORIGINS = {"seed": "default", "optim.lr": "override optim.lr=3e-3", "train.steps": "pipelines/lm.yaml:12:3"}
CONFIG = """seed: 0
optim:
  lr: 0.003
  betas: [0.9, 0.99]
train:
  steps: {steps}
"""

Value = Callable[[int], Any]


def decaying(step: int) -> float:
    """A loss as losses go: falling, noisy."""
    return 1.2 + 4.3 * math.exp(-step / 3000) + random.Random(step).gauss(0, 0.08)


class WrittenRun:
    """A run, and the hands that write its record; ``clock`` is what its processes believe the time to be."""

    def __init__(self, uri: str, name: str = "run") -> None:
        self.store = Store(uri, StorageSettings())
        identity = {"name": name, "pipeline": "/home/ada/pipelines/lm.py", "created": BEGIN}
        self.record = RunRecord.create(self.store, identity)
        self.clock = BEGIN
        self.driver = self.group = 0
        self._number = 0
        self._logs: dict[str, LogWriter] = {}
        self._positions: dict[CheckpointRef, dict[str, dict[str, int]]] = {}
        self._from = 0

    def start(
        self, *, steps: int = 100, config: str | None = None, origins: Mapping[str, str] = ORIGINS, alive: bool = False
    ) -> None:
        """A driver claims the run and records its settings; ``alive``: it is this process, else one that is gone."""
        self.driver = self._claim("driver", None, process_identity() if alive else None)
        attempt = self.record.attempt(self.driver)
        attempt.write("origins.json", encode(dict(origins)))
        attempt.write("config.yaml", (config or CONFIG.format(steps=steps)).encode())
        self._logs["driver"] = LogWriter(self.store, attempt, "events", every_s=600.0)

    def join(
        self,
        restored: CheckpointRef | None = None,
        *,
        workers: int = 2,
        startup_s: float = 12.0,
        damaged: CheckpointRef | None = None,
        **conditions: Any,
    ) -> None:
        """A group of it starts from a checkpoint, or from the beginning; it found a newer one ``damaged``."""
        self.group = self._claim("group", self.driver, {"world_size": workers})
        attempt = self.attempt
        if damaged is not None:
            attempt.put_marker("quarantine", damaged.name, {"reason": "__1_0.distcp differs from its digest"})
        attempt.restore(restored, self._positions[restored] if restored else {})
        for name in (*sorted(STEP_LOGS), "events"):
            self._logs[name] = LogWriter(self.store, attempt, name, every_s=600.0)
        self.clock += startup_s
        self._from = restored.step if restored else 0
        if damaged is not None:
            text = f"checkpoint {damaged.name} is damaged and will not be used: __1_0.distcp differs from its digest"
            self.event("quarantine", text, step=damaged.step)
        now = {**CONDITIONS, **conditions}
        text = f"attempt {self.group}: {workers} × cpu, from {restored.name if restored else 'the beginning'}"
        self.event(
            "start", text, step=self._from, world_size=workers, conditions=now, comparable=now == CONDITIONS,
            restored=restored.name if restored else None,
        )  # fmt: skip

    @property
    def attempt(self) -> Attempt:
        return self.record.attempt(self.group)

    def steps(self, last: int, *, data_s: float = 0.02, step_s: float = 0.2, workers: int = 2, **values: Value) -> None:
        """Trains up to a step, in so many seconds each."""
        for step in range(self._from + 1, last + 1):
            self.clock += data_s + step_s
            measured = {"loss": decaying, "grad_norm": lambda s: 0.5 + 3 / (1 + s / 200), **values}
            self._logs["metrics"].append(
                {
                    "step": step, "epoch": step // 5000, "position": step * 32 % 160_000, "samples": step * 32,
                    "tokens": step * 8192, **{name: value(step) for name, value in measured.items()},
                    "lr": 3e-3 * min(step / 500, 1.0), "weight": 32.0, "world_size": workers,
                    "data_s": data_s, "step_s": step_s, "time": round(self.clock, 3),
                }
            )  # fmt: skip
        self._from = last
        self._logs["metrics"].flush()

    def evaluate(self, seconds: float = 6.0, **values: float) -> None:
        self.clock += seconds
        entry = {"step": self._from, **values, "seconds": seconds, "time": round(self.clock, 3)}
        self._logs["evaluations"].append(entry)
        self._logs["evaluations"].flush()

    def save(self, stall_s: float = 0.5) -> CheckpointRef:
        """A checkpoint of the last step."""
        self.clock += stall_s
        ref = CheckpointRef(self._from, self.group)
        self._positions[ref] = {name: {"attempt": self.group, "seq": self._logs[name].seq} for name in STEP_LOGS}
        self.store.put(ref.manifest, b"{}")
        text = f"checkpoint {ref.step} committed, 11.1 MiB in 1.3 s, stall {stall_s} s"
        self.event("checkpoint", text, step=ref.step, stall_s=stall_s, waited_s=0.0)
        return ref

    def event(self, kind: str, text: str, *, log: str = "events", **fields: Any) -> None:
        self._logs[log].append({"kind": kind, "text": text, **fields, "time": round(self.clock, 3)})
        self._logs[log].flush()

    def end(self, reason: str = "done", detail: str = "", *, after_s: float = 2.0) -> None:
        """Driver and group say why they end; a group that failed says nothing."""
        self.clock += after_s
        self.event("end", reason, log="driver", step=self._from)
        for number in (self.driver, *([self.group] if reason in ("done", "signal") else [])):
            stop = {"reason": reason, "detail": detail, "time": self.clock}
            self.store.put_if_absent(attempt_key(number, "stop.json"), encode(stop))

    def leave(self, reason: str, *, after_s: float = 1.0) -> None:
        """The group ends as it was asked to; its driver goes on."""
        self.clock += after_s
        stop = {"reason": reason, "detail": "", "time": self.clock}
        self.store.put_if_absent(attempt_key(self.group, "stop.json"), encode(stop))

    def die(self, *, after_s: float = 3.0) -> None:
        """Killed without a word, a last heartbeat just before."""
        self.clock += after_s
        beat = {"attempt": self.driver, "beats": 9, "time": self.clock}
        self.store.put(attempt_key(self.driver, "heartbeat.json"), encode(beat))

    def wait(self, seconds: float) -> None:
        self.clock += seconds

    def _claim(self, kind: str, driver: int | None, info: Mapping[str, Any] | None = None) -> int:
        self._number += 1
        who = {**process_identity(), "pid_start": 1.0}  # of a process here that runs no more
        claim = {
            "version": 1, "attempt": self._number, "kind": kind, "driver": driver or self._number,
            "info": {**who, "time": self.clock, "nonce": str(self._number), **(info or {})},
        }  # fmt: skip
        self.store.put(attempt_key(self._number, "claim.json"), encode(claim))
        return self._number


def eventful(uri: str, name: str = "run") -> WrittenRun:
    """A long run with everything in it: killed, resumed five times, damage, spikes, numbers that are not finite."""

    def loss(step: int) -> float | None:
        return math.nan if step in (6210, 6211) else 19.0 if step == 9_000 else decaying(step)

    run = WrittenRun(uri, name)
    saved = damaged = None
    for start, (upto, save_at) in enumerate([(2000, 1900), (4200, 3800), (6500, 6400), (9100, 9000), (12_000, 11_500)]):
        run.start(steps=15_000)
        workers = (2, 4, 4, 1, 3)[start]
        run.join(saved, workers=workers, threads=2 if start == 3 else 1, damaged=damaged)
        damaged = None
        if start == 3:
            run.event("not-comparable", "not comparable bit by bit with the run's first attempt: threads: 1 → 2")
        run.steps(save_at, loss=loss, workers=workers, accuracy=lambda s: 1 - math.exp(-s / 4000))
        run.evaluate(bits_per_byte=2.0 + 3 * math.exp(-save_at / 3000), accuracy=1 - math.exp(-save_at / 3500))
        saved = run.save()
        if start == 2:
            run.steps(save_at + 50, loss=loss, workers=workers)
            damaged = run.save()
        run.steps(upto, loss=loss, workers=workers, step_s=0.3)
        run.die()
        run.wait((40, 300, 1200, 60, 90)[start])
    run.start(steps=15_000)
    run.event("setting", "changed optim.lr 0.003 → 0.001", log="driver")
    run.join(saved, workers=2)
    run.steps(15_000, loss=loss, accuracy=lambda s: 1 - math.exp(-s / 4000))
    run.evaluate(bits_per_byte=2.01, accuracy=0.98)
    run.save()
    run.end()
    return run
