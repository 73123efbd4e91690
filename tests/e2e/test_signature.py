"""The signature once more, as a user has it: the command line, Ray Train, Ray Data, and kill -9 of the driver."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from pliant.train.scratch import OWNER_FILE
from tests.e2e.commands import Command, store_of
from tests.train.runs import PIPELINE, SETTINGS, STEPS, Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def left_behind(*killed: Command) -> list[Path]:
    """Directories of an embedded Ray whose driver was one of these."""
    owners = Path(tempfile.gettempdir()).glob(f"pliant-ray-*/{OWNER_FILE}")
    return [file.parent for file in owners if json.loads(file.read_text())["pid"] in [c.process.pid for c in killed]]


@pytest.mark.parametrize(
    "storage", ["local", pytest.param("s3", marks=pytest.mark.long)], indirect=True
)  # over a minute each
def test_driver_killed_and_resumed_with_2_1_3_4_workers_through_ray_train(
    storage: str, dataset: str, whole: Run, tmp_path: Path
) -> None:
    place = [f"run.storage={storage}"]
    settings = [s for s in SETTINGS if not s.startswith(("data.reader", "elastic."))]
    workers = ["elastic.resources_per_worker={CPU: 0.5}", "data.reader=ray", f"data.path={dataset}"]
    store = store_of(storage, "killed")
    # Forward passes of a step: 2 workers have 4 of 8 lanes each, with two micro-batches a lane.
    first = Command(
        "train", PIPELINE, "--name", "killed", "elastic.max_workers=2", *settings, *workers, *place,
        cwd=tmp_path, hold_before_forward=8 * 8 + 1,
    )  # fmt: skip
    first.wait_for_step(store, 8)  # the checkpoint is that of step 5
    first.kill()
    assert left_behind(first)
    # At once after the kill; and killed again within the same epoch.
    second = Command("resume", "killed", "elastic.max_workers=1", *place, cwd=tmp_path, hold_before_forward=2 * 16 + 1)
    second.wait_for_step(store, 7)
    second.kill()
    third = Command("resume", "killed", "elastic.max_workers=3", *place, cwd=tmp_path, hold_before_forward=8 * 6 + 1)
    third.wait_for_step(store, 13)
    third.kill()
    output = Command("resume", "killed", "elastic.max_workers=4", *place, cwd=tmp_path).finish()
    assert not left_behind(first, second)
    assert f"done: step {STEPS} of {STEPS}" in output
    run = Run(store, "killed")
    assert run.curve() == whole.curve()
    assert run.rows() == whole.rows()
    assert {entry["world_size"] for entry in run.log("metrics")} == {2, 3, 4}
    assert not run.events("not-comparable")
