"""One of several processes that deliver runs of their own to one store: ``writer.py FOLDER NUMBER URI``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.track.background import connect
from pliant.track.settings import TrackingSettings
from tests.track.records import DrivenRun

ROUNDS, STEPS = 8, 40


def main(folder: Path, number: int, uri: str) -> None:
    run = DrivenRun(Store(str(folder / f"run{number}"), StorageSettings()))
    run.start()
    (folder / f"ready{number}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    mlflow = connect(run.record, TrackingSettings(uri=uri), str(folder))
    for number in range(ROUNDS):
        run.steps(number * STEPS + 1, (number + 1) * STEPS, writer=float(number), grad_norm=1.0)
        run.commit((number + 1) * STEPS)
        mlflow.deliver()
    run.end("done")
    mlflow.deliver()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
