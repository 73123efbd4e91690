"""What Pliant's sweep costs beside training: legs that do nothing, simulated trials, entries of the decision log."""

from __future__ import annotations

import math
import os
import tempfile
import time
from pathlib import Path

from _common import ROOT

from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.tune.build import Search, build_sweep
from pliant.tune.decisions import DecisionLog
from pliant.tune.domains import Dimension
from pliant.tune.legs import Leg
from pliant.tune.settings import SweepSettings
from pliant.tune.simulate import Simulation, curves
from pliant.tune.space import Space
from pliant.tune.trial import Outcome
from pliant.tune.types import Decision, Params, Report

SPACE = Space((Dimension("optim.lr", "float", 1e-4, 1e-1, log=True),))
ROWS, LENGTH = 1000, 27_000


class NoLeg(Leg):
    """A leg that reports the trial's end at once."""

    def _run(self) -> None:
        self._ask(self.config["leg"].length, {"loss": 0.5, "accuracy": 0.5}, 0.0)
        self._events.put(Outcome("done"))


def seconds_of_no_trials(folder: str, data: str, trials: int, slots: int) -> float:
    """Seconds a trial of a sweep whose trials do nothing, all that a driver does for them included."""
    from pliant.train.recorded import record_start
    from pliant.train.worker import cluster
    from pliant.tune.decisions import open_log
    from pliant.tune.drive import SweepDesk
    from pliant.tune.executor import Executor
    from pliant.tune.launch import new_sweep
    from pliant.tune.legs import RemoteBulletin
    from pliant.tune.recorded import record_search

    file = f"{folder}/nothing.yaml"
    with open(file, "w") as text:
        text.write("space: {optim.lr: {log: [1e-3, 1e-2]}}\n")
    given = [f"data.path={data}", f"run.storage={folder}/runs", "elastic.max_workers=1", "data.reader=local"]
    launch = new_sweep("digits", file, [*given, f"sweep.trials={trials}", f"sweep.slots={slots}"], name="nothing")
    attempt = launch.record.claim_driver()
    record_start(attempt, launch.base, launch.origins, launch.code)
    record_search(attempt, launch.search.settings, launch.content)
    log, _ = open_log(launch.record, attempt)
    # Its processes find this file's class.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), str(ROOT / "platform"), str(ROOT)])
    with tempfile.TemporaryDirectory(prefix="pliant-tune-") as scratch, cluster(launch.base, workers=slots):
        sweep = build_sweep(launch.search, slots=slots, record=log.record)
        sweep.begin(launch.search.settings)
        bulletin = RemoteBulletin()
        desk = SweepDesk(launch, sweep, bulletin.request, asked=lambda: False)
        executor = Executor(desk, bulletin, folder=scratch, slots=slots, process=NoLeg)
        begun = time.perf_counter()
        executor.run()
        seconds = time.perf_counter() - begun
    log.close()
    attempt.stop("done", "")
    if desk.finished is None or len(sweep.trials) != trials:
        raise SystemExit(f"{len(sweep.trials)} of {trials} trials, {desk.finished}")
    return seconds / trials


def simulated_trials_per_second(trials: int) -> float:
    """Trials of ASHA on the virtual clock, by the real state, scheduler and searcher."""

    def curve(params: Params, samples: int) -> tuple[float | None, float]:
        return abs(math.log10(params["optim.lr"]) + 2) + 1 / samples, samples / 1000

    settings = SweepSettings.model_validate({"trials": trials, "scheduler": {"kind": "asha", "first_epochs": 1}})
    sweep = build_sweep(Search(settings, SPACE, "loss", "min", LENGTH, ROWS), slots=16)
    begun = time.perf_counter()
    Simulation(curves(curve), slots=16).run(sweep)
    return len(sweep.trials) / (time.perf_counter() - begun)


def seconds_of_a_decision(uri: str, decisions: int) -> float:
    """Seconds until a report and its decision, recorded together, are durable; the median."""
    record = RunRecord.create(Store(uri, StorageSettings()), {"name": "log", "kind": "sweep"})
    attempt = record.claim_driver()
    attempt.restore(None)
    log = DecisionLog(record.store, attempt)
    took = []
    for number in range(decisions):
        trial = f"t{number:04d}"
        metrics = {"loss": 0.5, "accuracy": 0.75}
        report = Report(trial, 1000, 0.75, metrics, 12.5)
        decision = Decision(trial, 1000, "continue", "rung 1 of 3: 1st of 9, 3 go on")
        begun = time.perf_counter()
        log.record([report, decision])
        took.append(time.perf_counter() - begun)
    log.close()
    return sorted(took)[decisions // 2]
