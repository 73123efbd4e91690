"""The best checkpoint and the last one of a run, among many that were not kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.digits import Digits
from pipelines.digits_settings import ModelSettings
from pliant.api import Run as ApiRun
from pliant.checkpoint.verify import read_manifest
from pliant.data.prepare import write_dataset
from tests.command import ROOT, pliant
from tests.train.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DIGITS = [
    "train.steps=32", "train.epochs=null", "train.global_batch=64", "train.micro_batch=8", "train.audit=false",
    # The learning rate grows from far too small to far too large: the loss falls, and then rises for good.
    "schedule.kind=constant", "schedule.warmup=32", "optim.lr=1.0", "optim.weight_decay=0",
    "eval.every_steps=4", "checkpoint.every_steps=4", "checkpoint.keep_best=1",
]  # fmt: skip


def test_the_best_checkpoint_outlives_newer_worse_ones_and_status_names_it(tmp_path: Path) -> None:
    write_dataset(Digits(ModelSettings()).prepare(), str(tmp_path / "digits"))
    run = Run.begin(str(tmp_path), str(tmp_path / "digits"), *DIGITS, pipeline=str(ROOT / "pipelines" / "digits.py"))
    run.attempt(1)
    losses = {entry["step"]: entry["loss"] for entry in run.log("evaluations")}
    assert list(losses) == list(range(4, 33, 4))
    best = min(losses, key=losses.__getitem__)
    assert 4 < best < 24, losses
    kept = run.record.view().checkpoints()
    assert [ref.step for ref in kept] == [32, 28, best]
    assert [read_manifest(run.store, ref).metrics for ref in kept] == [{"loss": losses[ref.step]} for ref in kept]
    status = ApiRun.open(run.store.uri).status()
    assert status["best"] == {"step": best, "loss": losses[best]}
    assert status["checkpoint"] == 32
    shown = pliant("status", run.store.uri, "--json")
    assert json.loads(shown.stdout)["best"] == status["best"]
