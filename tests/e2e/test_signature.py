"""The signature once more, as a user has it: the command line, Ray Train, Ray Data, and kill -9 of the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from tests.command import ROOT
from tests.train.runs import PIPELINE, SETTINGS, STEPS, Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Command:
    """``pliant …`` as a process of its own."""

    def __init__(self, *arguments: str, cwd: Path, hold_before_forward: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pliant", *arguments],
            cwd=cwd,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
                "HOLD_BEFORE_FORWARD": str(hold_before_forward),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self) -> str:
        """Its output; fails unless it ended well."""
        output, _ = self.process.communicate()
        assert self.process.returncode == 0, output
        return output

    def kill_at(self, store: Store, step: int) -> None:
        """SIGKILL as soon as the run has recorded a step, where it waits."""
        while self.process.poll() is None:
            time.sleep(0.2)
            if _last_step(store) == step:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
                return
        raise AssertionError(self.process.communicate()[0])


def _last_step(store: Store) -> int:
    if store.head("run.json") is None:
        return 0
    steps = [entry["step"] for entry in read_log(store, RunRecord.open(store).view(), "metrics")]
    return steps[-1] if steps else 0


@pytest.mark.parametrize("storage", ["local", "s3"], indirect=True)
def test_driver_killed_and_resumed_with_2_1_3_4_workers_through_ray_train(
    storage: str, dataset: str, whole: Run, tmp_path: Path
) -> None:
    place = [f"run.storage={storage}"]
    settings = [s for s in SETTINGS if not s.startswith(("data.reader", "elastic."))]
    workers = ["elastic.resources_per_worker={CPU: 0.5}", "data.reader=ray", f"data.path={dataset}"]
    store = Store(f"{storage}/killed", StorageSettings())
    # Passes a step of the busiest rank: 2 workers have 4 of 8 lanes each, in two micro-batches a lane.
    first = Command(
        "train", PIPELINE, "--name", "killed", "elastic.max_workers=2", *settings, *workers, *place,
        cwd=tmp_path, hold_before_forward=8 * 8 + 1,
    )  # fmt: skip
    first.kill_at(store, 8)  # the checkpoint is that of step 5
    second = Command("resume", "killed", "elastic.max_workers=1", *place, cwd=tmp_path, hold_before_forward=2 * 16 + 1)
    second.kill_at(store, 7)  # at once after the first kill, and again within the same epoch
    third = Command("resume", "killed", "elastic.max_workers=3", *place, cwd=tmp_path, hold_before_forward=8 * 6 + 1)
    third.kill_at(store, 13)
    output = Command("resume", "killed", "elastic.max_workers=4", *place, cwd=tmp_path).finish()
    assert f"done: step {STEPS} of {STEPS}" in output
    run = Run(store, "killed")
    assert run.curve() == whole.curve()
    assert [sorted(map(tuple, rows)) for _, rows in run.rows()] == [
        sorted(map(tuple, rows)) for _, rows in whole.rows()
    ]
    assert {entry["world_size"] for entry in run.log("metrics")} == {2, 3, 4}
    assert not run.events("not-comparable")
