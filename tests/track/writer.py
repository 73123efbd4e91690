"""One of several processes that deliver a run and a sweep to one store: ``writer.py FOLDER NUMBER URI``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.track.background import connect
from pliant.track.settings import TrackingSettings
from pliant.tune.tracking.outbox import connect_sweep
from tests.track.records import DrivenRun
from tests.track.sweeps import DrivenSweep

ROUNDS, STEPS, TRIALS = 4, 40, 3
EXPERIMENT = "writers"


def main(folder: Path, number: int, uri: str) -> None:
    settings = TrackingSettings(uri=uri, experiment=EXPERIMENT)
    run = DrivenRun(Store(str(folder / f"run{number}"), StorageSettings()))
    run.start()
    sweep = DrivenSweep(Store(str(folder / f"sweep{number}"), StorageSettings()), uri)
    sweep.start()
    (folder / f"ready{number}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    mlflow, of_sweep = connect(run.record, settings, str(folder)), connect_sweep(sweep.record, settings, str(folder))
    trials = [sweep.suggest(lr=0.1 * (1 + trial)) for trial in range(TRIALS)]
    for number in range(ROUNDS):
        run.steps(number * STEPS + 1, (number + 1) * STEPS, writer=float(number), grad_norm=1.0)
        run.commit((number + 1) * STEPS)
        mlflow.deliver()
        for trial in trials:
            sweep.trials[trial].train(STEPS)
            sweep.report(trial, 0.5)
        of_sweep.deliver()
    run.end("done")
    mlflow.deliver()
    for trial in trials:
        sweep.end_trial(trial, "completed")
    sweep.stop("done")
    of_sweep.deliver()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
