"""Sweeps whose record is written as their drivers and the legs of their trials write it, without training."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from pliant.storage.attempts import Attempt, StopReason
from pliant.storage.layout import CheckpointRef
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.store import Store
from pliant.tune.decisions import DecisionLog, open_log
from pliant.tune.settings import SchedulerSettings, SweepSettings
from pliant.tune.types import Change, Decision, End, Entry, How, Loss, Report, Suggestion, trial_id
from tests.track.records import runs_of

BASE = """seed: 0
run: {{storage: '{storage}'}}
tracking: {{kind: mlflow, uri: '{uri}'}}
optim: {{lr: 0.1, weight_decay: 0.0}}
train: {{global_batch: 8}}
"""
SPACE = "sweep: {trials: 4}\nspace: {optim.lr: {log: [0.01, 1.0]}}\n"


def dead_process() -> dict[str, Any]:
    """What identifies a process that runs no more."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    return {"pid": gone.pid, "pid_start": 1.0}


class DrivenTrial:
    """A trial's run in one generation; its loss after s samples is 1 / s.

    Args:
        samples, step: where it begins: a clone goes on from its donor's.
    """

    def __init__(self, store: Store, config: str, *, batch: int, samples: int = 0, step: int = 0) -> None:
        self.record = RunRecord.create(store, {"name": store.uri.rpartition("/")[2], "pipeline": "/somewhere/lm.py"})
        self._config, self._batch = config, batch
        self.samples, self.step = samples, step
        self.driver: Attempt
        self._checkpoint: tuple[CheckpointRef, int, int] | None = None

    def leg(self, *, dead: bool = False, lr: float = 0.1) -> None:
        """Begins a leg from the newest checkpoint."""
        self.driver = self.record.claim_driver(dead_process() if dead else None)
        self.driver.write("config.yaml", self._config.encode())
        group = self.record.claim_group(self.driver.number, {"world_size": 1})
        logs: dict[str, dict[str, int]] = {}
        if self._checkpoint is not None:
            ref, self.samples, seq = self._checkpoint
            self.step, logs = ref.step, {"metrics": {"attempt": ref.attempt, "seq": seq}}
        group.restore(self._checkpoint[0] if self._checkpoint else None, logs)
        self._group, self._lr = group, lr
        self._log = LogWriter(self.record.store, group, "metrics", every_s=600.0)
        self._evaluations = LogWriter(self.record.store, group, "evaluations", every_s=600.0)

    def train(self, steps: int, *, commit: bool = True) -> int:
        """Trains and evaluates; returns the samples reached."""
        for _ in range(steps):
            self.step, self.samples = self.step + 1, self.samples + self._batch
            entry = {"step": self.step, "samples": self.samples, "loss": 1 / self.samples, "lr": self._lr}
            self._log.append({**entry, "global_batch": self._batch, "time": time.time()})
        self._evaluations.append(
            {"samples": self.samples, "step": self.step, "accuracy": self.samples / 1000, "time": time.time()}
        )
        self._log.flush()
        self._evaluations.flush()
        if commit:
            ref = CheckpointRef(self.step, self._group.number)
            self.record.store.put(ref.manifest, b"{}")
            self._checkpoint = ref, self.samples, self._log.seq
        return self.samples

    def end(self, reason: StopReason = "sweep") -> None:
        self._group.stop(reason)
        self.driver.stop(reason)


class DrivenSweep:
    """A sweep, and the hands that write its record and those of its trials."""

    def __init__(self, store: Store, uri: str, *, kind: str = "asha") -> None:
        identity = {"name": "search", "kind": "sweep", "pipeline": "/somewhere/lm.py"}
        self.record = RunRecord.create(store, {**identity, "metric": "accuracy", "mode": "max", "length": 1000})
        self._uri, self._kind = uri, kind
        self.driver: Attempt
        self.trials: dict[str, DrivenTrial] = {}
        self._log: DecisionLog

    @property
    def base(self) -> str:
        return BASE.format(storage=self.record.store.uri.rpartition("/")[0], uri=self._uri)

    def start(self, *, dead: bool = False) -> None:
        """A driver; ``dead``: of a process that runs no more."""
        self.driver = self.record.claim_driver(dead_process() if dead else None)
        self._log, entries = open_log(self.record, self.driver)
        self.driver.write("config.yaml", self.base.encode())
        self.driver.write("sweep.yaml", SPACE.encode())
        if not entries:
            settings = SweepSettings(scheduler=SchedulerSettings(kind=self._kind))  # type: ignore[arg-type]
            self.log(Change(settings.model_dump(mode="json")))

    def log(self, *entries: Entry) -> None:
        self._log.record(entries)

    def suggest(self, *, lr: float, batch: int = 8) -> str:
        """A new trial, and its first leg."""
        trial = trial_id(len(self.trials))
        self.log(Suggestion(trial, len(self.trials), {"optim.lr": lr, "schedule.kind": "wsd"}, "model"))
        config = self.base.replace("lr: 0.1", f"lr: {lr}").replace("global_batch: 8", f"global_batch: {batch}")
        self.trials[trial] = DrivenTrial(self.record.store.child(f"trials/{trial}"), config, batch=batch)
        self.trials[trial].leg(lr=lr)
        return trial

    def report(self, trial: str, value: float | None, *, generation: int = 0) -> None:
        samples = self.trials[trial].samples
        self.log(Report(trial, samples, value, {"accuracy": value}, 36.0, generation))

    def decide(self, trial: str, action: str, why: str, **more: Any) -> None:
        self.log(Decision(trial, self.trials[trial].samples, action, why, **more))  # type: ignore[arg-type]

    def end_trial(self, trial: str, how: How, text: str = "") -> None:
        self.trials[trial].end("done" if how == "completed" else "sweep")
        self.log(End(trial, how, self.trials[trial].samples, text))

    def lose(self, trial: str, text: str) -> None:
        """The trial's machine went away; its next leg begins."""
        self.log(Loss(trial, "preemption", text))
        self.trials[trial].leg()

    def clone(self, trial: str, donor: str, *, lr: float, batch: int, why: str = "worst quarter") -> None:
        """A trial goes on from what another one has reached."""
        source, old = self.trials[donor], self.trials[trial]
        params = {"optim.lr": lr, "schedule.kind": "wsd"}
        self.decide(trial, "exploit", why, params=params, donor=donor, donor_samples=source.samples)
        old.end()
        name, number = old.record.identity["name"], 1
        if ".g" in name:
            name, number = name.partition(".g")[0], int(name.partition(".g")[2]) + 1
        store = self.record.store.child(f"trials/{name}.g{number}")
        config = self.base.replace("lr: 0.1", f"lr: {lr}")
        self.trials[trial] = DrivenTrial(store, config, batch=batch, samples=source.samples, step=source.step)
        self.trials[trial].leg(lr=lr)

    def stop(self, reason: StopReason) -> None:
        self._log.close()
        self.driver.stop(reason)


def family(uri: str, experiment: str | None = None) -> tuple[Run, dict[str, Run]]:
    """The sweep's run in MLflow, and its trials by name."""
    runs = runs_of(uri, experiment)
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} <= {parent.info.run_id}
    by_name = {run.info.run_name: run for run in children}
    assert len(by_name) == len(children), "each trial once"
    return parent, by_name


def curve(uri: str, run: Run, key: str) -> list[tuple[int, float]]:
    """(step, value) of every value that MLflow has of a metric, in the order of their times."""
    history = MlflowClient(tracking_uri=uri).get_metric_history(run.info.run_id, key)
    return [(m.step, m.value) for m in sorted(history, key=lambda m: (m.timestamp, m.step))]


def tag(run: Run, key: str) -> Any:
    """A tag that holds JSON."""
    return json.loads(run.data.tags[key])
