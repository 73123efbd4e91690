"""Datasets that are smaller than what is asked of them: the right answer or a clear refusal, never a hang."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pliant.data.prepare import write_dataset
from pliant.errors import ConfigError
from pliant.train.protocols import Split
from tests.train.pipelines.masked import SCHEMA, table
from tests.train.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SMALL = ["train.steps=6", "eval.every_steps=null", "schedule.warmup=0", "train.micro_batch=2"]


def write(folder: Path, rows: int, row_groups: list[int]) -> str:
    """A dataset of one split with row groups of given sizes."""
    whole = table(rows, 3)
    places = [sum(row_groups[:i]) for i in range(len(row_groups))]

    def batches() -> Iterator[pa.RecordBatch]:
        for start, count in zip(places, row_groups, strict=True):
            yield from whole.slice(start, count).combine_chunks().to_batches()

    for number, (start, count) in enumerate(zip(places, row_groups, strict=True)):
        part = whole.slice(start, count)
        split = Split(f"s{number}", SCHEMA, iter(part.to_batches()), row_group_rows=max(count, 1), rows_per_file=1000)
        write_dataset(iter([split]), str(folder / "parts"))
    train = folder / "data" / "train"
    train.mkdir(parents=True)
    for number in range(len(row_groups)):
        (folder / "parts" / f"s{number}" / "part-00000.parquet").rename(train / f"part-{number:05d}.parquet")
    return str(folder / "data")


@pytest.mark.parametrize(
    ("rows", "row_groups", "settings"),
    [
        (13, [13], ["train.global_batch=4", "data.lanes=2"]),
        (13, [13], ["train.global_batch=4", "data.lanes=4"]),
        (441, [1, 7, 400, 33], ["train.global_batch=32", "data.lanes=4"]),
        (13, [6, 7], ["train.global_batch=32", "data.lanes=4"]),
        (3, [3], ["train.global_batch=8", "data.lanes=4"]),
        (13, [13], ["train.global_batch=32", "data.lanes=4", "data.tail=pad"]),
    ],
    ids=["13 rows", "1 row group", "ragged row groups", "fewer rows than a batch", "fewer rows than lanes", "padded"],
)
def test_small_datasets_give_the_same_numbers_at_every_worker_count(
    tmp_path: Path, rows: int, row_groups: list[int], settings: list[str]
) -> None:
    dataset = write(tmp_path, rows, row_groups)
    lanes = int(settings[1].partition("=")[2])
    curves = []
    for workers in {1, 2, lanes}:
        run = Run.begin(str(tmp_path), dataset, *SMALL, *settings, f"elastic.max_workers={lanes}", name=f"w{workers}")
        run.attempt(workers)
        curves.append(run.curve())
        seen = [(epoch, position) for _, batch in run.rows() for epoch, position, _, _ in batch]
        assert seen == [divmod(place, rows) for place in range(len(seen))]
    assert len(curves[0]) == 6
    assert all(curve == curves[0] for curve in curves)


def test_drop_with_fewer_rows_than_a_batch_is_refused(tmp_path: Path) -> None:
    dataset = write(tmp_path, 13, [13])
    with pytest.raises(ConfigError, match="13 rows are less than one global batch of 32"):
        Run.begin(str(tmp_path), dataset, "train.global_batch=32", "data.tail=drop")
