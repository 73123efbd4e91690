"""Faults as a user meets them, through the commands: how a run ends, and what a resume makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.commands import Command, store_of
from tests.s3 import S3Server
from tests.train.runs import PIPELINE, SETTINGS, Run, prepare

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
