"""Every shipped pipeline prepares its data, trains two steps, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.registry import known_pipelines
from tests.command import ROOT
from tests.e2e.commands import Command, last_step, store_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SHIPPED = known_pipelines(cwd=ROOT)


def test_what_is_shipped() -> None:
    assert sorted(SHIPPED) == ["digits", "flights", "stdlib_lm"]


@pytest.mark.parametrize("name", SHIPPED)
def test_smoke(name: str, tmp_path: Path) -> None:
    assert "train" in Command("prepare", name, cwd=tmp_path).finish()
    short = ["eval.at_end=false", "eval.every_steps=null", "schedule.warmup=0"]
    length = ["train.steps=2", *(["train.epochs=null"] if name != "stdlib_lm" else [])]
    output = Command("train", name, "--name", "smoke", "--in-process", *short, *length, cwd=tmp_path).finish()
    assert "done: step 2 of 2" in output
    assert f"MLflow at sqlite:///{tmp_path}/runs/mlflow.db has the run as" in output
    output = Command("resume", "smoke", "--in-process", "train.steps=3", cwd=tmp_path).finish()
    assert "from step 2 of attempt 2" in output
    assert last_step(store_of(str(tmp_path / "runs"), "smoke")) == 3
