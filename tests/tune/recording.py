"""Sweeps whose record is written by the real log and the real decisions, on a virtual clock: no Ray, no training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pliant.configure import load_config
from pliant.registry import find_pipeline
from pliant.storage.attempts import StopReason
from pliant.storage.layout import encode
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.train.recorded import Code, pipeline_identity, record_start
from pliant.tune.build import Search, build_sweep
from pliant.tune.decisions import DecisionLog, open_log, replay
from pliant.tune.domains import Dimension
from pliant.tune.recorded import record_search
from pliant.tune.settings import SweepSettings
from pliant.tune.simulate import Faults, Simulation, curves
from pliant.tune.space import Space
from pliant.tune.types import Action, Change, Decision, End, Entry, Loss, Params, Report, Suggestion

DEAD = {"pid": 2**22 + 1, "pid_start": 1.0}
"""Who claimed a run and is gone."""
ROWS = 100
SPACE = Space(
    (
        Dimension("optim.lr", "float", 1e-4, 1.0, log=True),
        Dimension("train.global_batch", "choice", choices=(16, 32)),
    )
)
CONTENT: Mapping[str, Any] = {
    "space": {"optim.lr": {"log": [1e-4, 1.0]}, "train.global_batch": [16, 32]},
}
ASHA: Mapping[str, Any] = {"trials": 9, "slots": 1, "scheduler": {"kind": "asha", "first_epochs": 1.0}}
PBT: Mapping[str, Any] = {
    "trials": 4,
    "slots": 2,
    "scheduler": {"kind": "pbt", "population": 4, "every_epochs": 3.0},
}


def accuracy(params: Params, samples: int) -> tuple[float | None, float]:
    """Best at a learning rate of 0.01, and with more samples; nothing at all above 0.5. A second per 100 rows."""
    lr = float(params["optim.lr"])
    if lr > 0.5:
        return math.nan, samples / 100
    return 1.0 - 0.1 * abs(math.log10(lr) + 2) - 10.0 / (samples + 50), samples / 100


def story() -> list[Entry]:
    """What may happen to the first trials of a sweep: one is trained to its end, one stopped, one diverges, one leads
    and waits, one was preempted before it reported anything."""

    def reports(trial: str, value: float | None, samples: int, action: Action, why: str) -> list[Entry]:
        report = Report(trial, samples, value, {"accuracy": value, "loss": 1.5}, samples / 100)
        return [report, Decision(trial, samples, action, why)]

    def begins(number: int, lr: float, batch: int) -> Entry:
        return Suggestion(f"t{number:04d}", number, {"optim.lr": lr, "train.global_batch": batch}, "random")

    return [
        Change(SweepSettings.model_validate(ASHA).model_dump(mode="json")),
        begins(0, 0.1, 32),
        *reports("t0000", 0.8, 100, "continue", "rung 1 of 2: 1st of 1"),
        *reports("t0000", 0.85, 300, "continue", "rung 2 of 2: 1st of 1"),
        *reports("t0000", 0.84, 900, "continue", "full length, 900 samples"),
        End("t0000", "completed", 900),
        begins(1, 0.0002, 16),
        *reports("t0001", 0.7, 100, "stop", "rung 1 of 2: 2nd of 2"),
        End("t0001", "stopped", 100, "rung 1 of 2: 2nd of 2"),
        begins(2, 0.9, 16),
        *reports("t0002", None, 100, "stop", "no finite value at 100 samples"),
        End("t0002", "diverged", 100, "no finite value at 100 samples"),
        begins(3, 0.0123456, 16),
        *reports("t0003", 0.95, 100, "continue", "rung 1 of 2: 1st of 3"),
        *reports("t0003", 0.971227, 300, "pause", "rung 2 of 2: 1st of 2, waits"),
        begins(4, 0.05, 32),
        Loss("t0004", "preemption", "node ab12 goes away in 28 s\nmore of it", worker_seconds=3.5),
    ]


class Killed(Exception):
    """The driver is gone."""


class RecordedSweep:
    """A sweep under ``runs/`` of a folder, and the drivers that write its record.

    Args:
        pipeline: one that there is; default: one that nothing has to be known of.
    """

    def __init__(
        self,
        folder: Path | str,
        name: str = "asha",
        settings: Mapping[str, Any] = ASHA,
        *,
        epochs: int = 9,
        pipeline: str | None = None,
        faults: Faults = lambda leg, samples: None,
    ) -> None:
        self.store = Store(f"{folder}/runs/{name}", StorageSettings(heartbeat_every=0.05))
        self.search = Search(SweepSettings.model_validate(settings), SPACE, "accuracy", "max", epochs * ROWS, ROWS)
        self.ref = find_pipeline(pipeline) if pipeline is not None else None
        nothing = {"pipeline": str(Path(folder) / "pipelines" / "small.py"), "module": "small"}
        identity = {
            "name": name, "kind": "sweep", **(nothing if self.ref is None else pipeline_identity(self.ref)),
            "metric": "accuracy", "mode": "max", "length": self.search.length, "rows": ROWS,
        }  # fmt: skip
        self.record = RunRecord.create(self.store, identity)
        self._machines = Simulation(curves(accuracy), slots=self.search.settings.slots or 4, faults=faults)

    def drive(
        self,
        reason: StopReason | None = "done",
        *,
        entries: int | None = None,
        alive: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """One start of a driver.

        Args:
            reason: why it ended; None for one that said nothing.
            entries: how many it logs before it is killed; None: all.
            alive: whether it claims to be this process, else one that is gone.
            settings: changed ones.
        """
        attempt = self.record.claim_driver(None if alive else DEAD)
        if self.ref is not None:
            record_start(attempt, *load_config(self.ref), Code.of(self.ref))
        record_search(attempt, self.search.settings, CONTENT)
        log, before = open_log(self.record, attempt)
        writer = _Mortal(log, entries)
        sweep = build_sweep(self.search, slots=self.search.settings.slots, record=writer)
        replay(before, sweep)
        try:
            sweep.begin(SweepSettings.model_validate(settings) if settings is not None else None)
            self._machines.run(sweep)
        except Killed:
            reason = None
        log.close()
        if reason is not None:
            attempt.stop(reason)

    def write(self, entries: Sequence[Entry], reason: StopReason | None = "signal", *, alive: bool = False) -> None:
        """One start of a driver that logs what is given; as ``drive`` otherwise."""
        attempt = self.record.claim_driver(None if alive else DEAD)
        record_search(attempt, self.search.settings, CONTENT)
        log, _ = open_log(self.record, attempt)
        log.record(entries)
        log.close()
        if reason is not None:
            attempt.stop(reason)

    def trial_run(self, run: str, *, chosen: Mapping[str, Any], rest: str = "", alive: bool = False) -> RunRecord:
        """The record of a trial's run, with the settings that were chosen for it; ``alive``: this process trains it."""
        identity = {"name": f"asha-{run}", "pipeline": self.record.identity["pipeline"], "module": "small"}
        record = RunRecord.create(self.store.child(f"trials/{run}"), identity)
        attempt = record.claim_driver(None if alive else DEAD)
        sections: dict[str, list[str]] = {}
        for key, value in chosen.items():
            section, dot, setting = key.rpartition(".")
            sections.setdefault(section, []).append(f"  {setting}: {value}" if dot else f"{key}: {value}")
        text = "".join(f"{name}:\n" * bool(name) + "\n".join(lines) + "\n" for name, lines in sections.items())
        attempt.write("config.yaml", (text + rest).encode())
        derived = ("schedule.unit", "data.lanes")
        origins = {key: "derived: for all trials" if key in derived else f"override {key}" for key in chosen}
        attempt.write("origins.json", encode({**origins, "seed": "default", "optim.betas": "pipelines/small.yaml:3:1"}))
        if not alive:
            attempt.stop("done")
        return record


class _Mortal:
    """Writes so many entries, then its driver is gone."""

    def __init__(self, log: DecisionLog, entries: int | None) -> None:
        self._log, self._left = log, entries

    def __call__(self, entries: Any) -> None:
        found: list[Entry] = list(entries)
        if self._left is None:
            self._log.record(found)
            return
        self._log.record(found[: self._left])
        self._left -= len(found)
        if self._left <= 0:
            raise Killed
