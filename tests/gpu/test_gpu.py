"""What only a GPU can show: it is used, its numbers are repeatable, and it is recorded as a condition."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pliant.observe.console import Console
from pliant.train import driver
from pliant.train.launch import new_run, resumed_run
from tests.train.conftest import dataset
from tests.train.runs import PIPELINE, SETTINGS, Run

__all__ = ["dataset"]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that torch can use"),
]
GPU = ["train.device=cuda", "elastic.max_workers=1"]


def run_in_process(folder: Path, dataset: str, *settings: str, name: str) -> Run:
    given = [*SETTINGS, *GPU, f"data.path={dataset}", f"run.storage={folder}", *settings]
    overrides = list({text.partition("=")[0]: text for text in given}.values())
    launch = new_run(PIPELINE, overrides, name=name, in_process=True)
    ending = driver.drive(launch, Console())
    assert ending.error is None
    return Run(launch.record.store, name)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_run_in_two_parts_is_the_run_in_one(tmp_path: Path, dataset: str, precision: str) -> None:
    whole = run_in_process(tmp_path, dataset, f"train.precision={precision}", name="whole")
    half = ["train.steps=10", "schedule.total=21", f"train.precision={precision}"]
    parts = run_in_process(tmp_path, dataset, *half, name="parts")
    launch = resumed_run(parts.store, ["train.steps=21"], take_over=False, in_process=True)
    assert driver.drive(launch, Console()).error is None
    assert parts.curve() == whole.curve()
    (start, _) = parts.events("start")
    assert start["conditions"]["device"] == torch.cuda.get_device_name(0)
