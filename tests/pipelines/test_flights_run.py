"""Runs of the flights pipeline over a small cut: the same curve and figures however they come about."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.flights import Flights
from pipelines.flights_settings import ModelSettings
from pliant.data.prepare import write_dataset
from pliant.train.protocols import Split
from tests.command import ROOT
from tests.train.processes import KILLED
from tests.train.runs import Run, kill_before

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SHORT = [
    "train.global_batch=64",
    "train.micro_batch=16",
    "train.epochs=null",
    "train.steps=6",
    "data.lanes=4",
    "eval.every_steps=3",
    "eval.micro_batch=50",
    "checkpoint.every_steps=2",
]


def cut(folder: Path) -> str:
    """A dataset of the first rows of each split."""

    def rows(split: Split, count: int) -> Split:
        table = pa.Table.from_batches(split.batches).slice(0, count)
        return Split(split.name, split.schema, iter(table.to_batches()), row_group_rows=60, rows_per_file=250)

    train, validation = Flights(ModelSettings()).prepare()
    write_dataset(iter([rows(train, 600), rows(validation, 333)]), str(folder))
    return str(folder)


def figures(run: Run) -> list[tuple[float, ...]]:
    return [tuple(e[name] for name in ("step", "loss", "auc", "auc_error")) for e in run.log("evaluations")]


def test_killed_and_resumed_with_other_workers_is_the_uninterrupted_run(tmp_path: Path) -> None:
    dataset, pipeline = cut(tmp_path / "data"), str(ROOT / "pipelines" / "flights.py")
    whole = Run.begin(str(tmp_path), dataset, *SHORT, name="whole", pipeline=pipeline)
    whole.attempt(1)
    broken = Run.begin(str(tmp_path), dataset, *SHORT, name="broken", pipeline=pipeline)
    assert KILLED in broken.attempt(2, fault=broken.when_committed(2, kill_before("pliant.train.step:Step.run", 5)))
    assert [entry["step"] for entry in broken.log("metrics")][-1] < 6
    broken.attempt(3)
    assert broken.curve() == whole.curve()
    assert len(whole.curve()) == 6
    assert figures(broken) == figures(whole)
    assert [step for step, *_ in figures(whole)] == [3, 6]
    assert all(0 < auc < 1 and 0 <= error < 0.1 for _, _, auc, error in figures(whole))
