"""Faults as a user meets them, through the commands: how a run ends, and what a resume makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoint.saving import flip
from tests.e2e.commands import Command, store_of
from tests.s3 import S3Server
from tests.train.runs import PIPELINE, SETTINGS, STEPS, Run, prepare

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_data_that_outlasts_its_retries_ends_the_run_and_is_not_tried_again(own_s3: S3Server, tmp_path: Path) -> None:
    store, go = store_of(str(tmp_path / "runs"), "run"), tmp_path / "go"
    impatient = ["data.read.retries=1", "data.read.backoff=0.01"]
    held = Command(
        "train", PIPELINE, "--name", "run", "--in-process", f"data.path={prepare(own_s3.uri('data'))}",
        *SETTINGS, *impatient, cwd=tmp_path, hold_before_forward=16 + 1, hold_until=go,
    )  # fmt: skip
    held.wait_for_step(store, 1)  # the second epoch is not yet read
    own_s3.kill()
    go.touch()
    output = held.finish(4)
    assert "error[data.read]" in output
    assert "2 attempts" in output
    assert "resume with: pliant resume run" in output
    assert [info.claim.kind for info in Run(store, "run").record.attempts()] == ["driver", "group"]


@pytest.mark.ray
@pytest.mark.long
def test_a_killed_driver_a_damaged_checkpoint_and_an_outage_through_ray_train(
    own_s3: S3Server, tmp_path: Path, dataset: str, whole: Run
) -> None:
    run, place = Run(store_of(own_s3.uri("runs"), "run"), "run"), f"run.storage={own_s3.uri('runs')}"
    settings = [s for s in SETTINGS if not s.startswith(("data.reader", "elastic."))]
    workers = ["elastic.max_workers=2", "elastic.resources_per_worker={CPU: 0.5}", "data.reader=ray"]
    forwards = 8  # of a step and worker: 4 of 8 lanes with two micro-batches each

    command = Command(
        "train", PIPELINE, "--name", "run", f"data.path={dataset}", *settings, *workers, place,
        cwd=tmp_path, hold_before_forward=12 * forwards + 1,
    )  # fmt: skip
    command.wait_for_step(run.store, 12)
    command.wait_for_checkpoint(run.store, 10)
    command.kill()

    newest, older = run.record.view().checkpoints()
    assert (newest.step, older.step) == (10, 5)
    flip(run.store, newest, "__1_0.distcp")
    go = tmp_path / "storage is away"
    command = Command("resume", "run", place, cwd=tmp_path, hold_before_forward=8 * forwards + 1, hold_until=go)
    command.wait_for_step(run.store, 13)  # from 5 again
    own_s3.kill()
    go.touch()
    command.wait_for_output("waiting for storage")
    own_s3.restart()
    output = command.finish()
    assert f"{newest.name} is damaged and will not be used" in output
    assert f"done: step {STEPS} of {STEPS}" in output
    assert run.curve() == whole.curve()
    assert run.rows() == whole.rows()
    assert [event["step"] for event in run.events("quarantine")] == [10]
    assert [entry["attempt"] for entry in run.log("metrics")] == [2] * 5 + [4] * (STEPS - 5)
    assert not run.events("not-comparable")
