"""Runs whose record is written as drivers and their groups write it, without training; and what MLflow has of them."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from pliant.storage.attempts import Attempt, StopReason
from pliant.storage.layout import CheckpointRef
from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.store import Store

CONFIG = """seed: 0
run:
  storage: {storage}
optim:
  lr: 0.1
  betas: [0.9, 0.999]
model:
  names: {long}
"""


class DrivenRun:
    """A run, and the hands that write its record."""

    def __init__(self, store: Store) -> None:
        self.record = RunRecord.create(store, {"name": "run", "pipeline": "/somewhere/lm.py"})
        self.driver: Attempt
        self.group: Attempt
        self._log: LogWriter
        self._positions: dict[CheckpointRef, tuple[int, int]] = {}
        self._clock = time.time()

    def start(self, *, restored: CheckpointRef | None = None, config: str | None = None, dead: bool = False) -> None:
        """A driver and a group of it; ``dead``: of a process that runs no more."""
        gone = subprocess.Popen(["true"])
        gone.wait()
        self.driver = self.record.claim_driver({"pid": gone.pid, "pid_start": 1.0} if dead else None)
        text = CONFIG.format(storage=self.record.store.uri.rpartition("/")[0], long="short")
        self.driver.write("config.yaml", (config or text).encode())
        self.events = LogWriter(self.record.store, self.driver, "events", every_s=600.0)
        self.join(restored=restored)

    def join(self, *, restored: CheckpointRef | None = None, workers: int = 2) -> None:
        """A group of the driver."""
        self.group = self.record.claim_group(self.driver.number, {"world_size": workers})
        attempt, seq = self._positions.get(restored, (0, 0)) if restored else (0, 0)
        self.group.restore(restored, {"metrics": {"attempt": attempt, "seq": seq}} if restored else {})
        self._log = LogWriter(self.record.store, self.group, "metrics", every_s=600.0)

    def event(self, kind: str, text: str, **fields: Any) -> None:
        """What the driver records of the controller."""
        self.events.append({"kind": kind, "text": text, "time": time.time(), **fields})
        self.events.flush()

    def steps(self, first: int, last: int, **values: float) -> None:
        """Trains these steps: their loss is 1 / step."""
        for step in range(first, last + 1):
            self._clock += 0.25
            entry = {"step": step, "loss": 1 / step, "lr": 0.1, **values, "time": round(self._clock, 3)}
            self._log.append(entry)
        self._log.flush()

    def commit(self, step: int) -> CheckpointRef:
        """A checkpoint of the step that was trained last."""
        ref = CheckpointRef(step, self.group.number)
        self._positions[ref] = (self.group.number, self._log.seq)
        self.record.store.put(ref.manifest, b"{}")
        return ref

    def end(self, reason: StopReason) -> None:
        self._log.close()
        self.group.stop(reason)
        self.driver.stop(reason)

    def metrics(self) -> list[dict[str, Any]]:
        return list(read_log(self.record.store, self.record.view(), "metrics"))


def runs_of(uri: str, experiment: str | None = None) -> list[Run]:
    """All runs in an MLflow store, or in one experiment of it."""
    client = MlflowClient(tracking_uri=uri)
    wanted = [e.experiment_id for e in client.search_experiments() if experiment in (None, e.name)]
    return list(client.search_runs(wanted))


def the_run(uri: str, experiment: str | None = None) -> Run:
    (only,) = runs_of(uri, experiment)
    return only


def history(uri: str, key: str, experiment: str | None = None) -> list[tuple[int, float]]:
    """(step, value) of every value that MLflow has of a metric, by step."""
    client = MlflowClient(tracking_uri=uri)
    return sorted((m.step, m.value) for m in client.get_metric_history(the_run(uri, experiment).info.run_id, key))
