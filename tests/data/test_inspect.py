"""Inspecting: figures that are right, and advice that fits them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pliant.data.inspect import Inspection, Spread, inspect_dataset, variance_ratio
from pliant.data.manifest import build_manifest
from pliant.data.prepare import write_dataset
from pliant.data.repack import repack
from pliant.errors import DamageError
from pliant.train.protocols import Split
from tests.data.fixtures.make_spark import OUT as SPARK
from tests.data.shardkit import table, write_foreign


def only(uri: Path, **settings: int) -> Inspection:
    return inspect_dataset(str(uri), **settings)[""]


def test_figures(tmp_path: Path) -> None:
    write_foreign(tmp_path, files=3, rows=100, group=30, compression="gzip")
    found = only(tmp_path, lanes=2, window=3)
    assert (found.files, found.rows, found.groups) == (3, 300, 12)
    assert found.group_rows == Spread(10, 30, 30)
    assert found.codecs == {"gzip": 36}
    assert found.unchecked == 3
    assert not found.recorded
    assert not found.shuffled
    assert found.file_bytes == sum(p.stat().st_size for p in tmp_path.iterdir())
    assert 20 < found.row_bytes < 40  # two numbers, a short string and its offset
    assert [(c.name, c.kind, c.nulls) for c in found.columns] == [
        ("id", "int64", 0),
        ("x", "double", 0),
        ("name", "string", 0),
    ]
    assert found.digest == build_manifest(str(tmp_path)).digest


def test_spark_dataset() -> None:
    found = only(SPARK, lanes=4)
    columns = {c.name: c for c in found.columns}
    assert found.codecs == {"snappy": 198}
    assert found.unchecked == 0
    assert columns["score"].nulls == 286
    assert columns["tokens"].nulls is None
    assert columns["year"].partition
    assert found.stream.memory_bound is not None
    assert any("data.nulls.score" in sentence for sentence in found.advice)
    assert not any("data.nulls.name" in sentence for sentence in found.advice)


def test_all_splits_of_a_prepared_dataset(tmp_path: Path) -> None:
    schema = table(1).schema
    splits = [Split(name, schema, iter(table(100).to_batches()), 10, 50) for name in ("train", "validation")]
    write_dataset(splits, str(tmp_path))
    found = inspect_dataset(str(tmp_path))
    assert list(found) == ["train", "validation"]
    assert found["train"].recorded
    assert found["train"].unchecked == 0
    assert found["train"].codecs == {"zstd": 30}


@pytest.mark.parametrize(
    ("batch", "pool", "groups", "ratio"),
    [(256, 256, 1000, 1.99609375), (1, 4, 10, 1.0), (256, 10, 10, 1.0), (257, 64, 65, 5.0)],
)
def test_variance_ratio(batch: int, pool: int, groups: int, ratio: float) -> None:
    assert variance_ratio(batch, pool, groups) == ratio


def test_poor_shuffles_are_told_and_mended(tmp_path: Path) -> None:
    write_foreign(tmp_path / "in", files=10, rows=1000, group=20)
    poor = only(tmp_path / "in", lanes=4, window=4, global_batch=64)
    assert poor.stream.pool == 16
    assert poor.stream.variance_ratio == 1 + 63 / 16
    assert "repack, or choose data.lanes × data.window ≥ 252" in poor.advice[0]
    assert only(tmp_path / "in", lanes=63, window=4, global_batch=64).stream.variance_ratio == 1.25
    repack(str(tmp_path / "in"), str(tmp_path / "out"), row_group_rows=20)
    mended = only(tmp_path / "out", lanes=4, window=4, global_batch=64)
    assert mended.shuffled
    assert mended.stream.variance_ratio == 1
    assert mended.advice == ()
    assert "shuffled when written" in mended.to_text()


def test_the_memory_bound_follows_the_settings(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2**20)), 64)
    pq.write_table(pa.table({"v": values}), tmp_path / "in" / "a.parquet", row_group_size=1024)
    small = only(tmp_path / "in", lanes=2, window=2, look_ahead=1, global_batch=64).stream.memory_bound
    more_lanes = only(tmp_path / "in", lanes=8, window=2, look_ahead=1, global_batch=64).stream.memory_bound
    further = only(tmp_path / "in", lanes=2, window=2, look_ahead=5, global_batch=64).stream.memory_bound
    shared = only(tmp_path / "in", lanes=8, window=2, look_ahead=1, global_batch=64, workers=4).stream.memory_bound
    assert small is not None
    assert more_lanes is not None
    assert further is not None
    assert shared is not None
    assert small >= 2 * 2 * 2 * 2**19  # lanes × window × (1 + look-ahead) × 1024 rows of 512 bytes
    assert more_lanes > small
    assert further > small
    assert shared < more_lanes


def test_nulls_that_no_policy_mends_leave_memory_unknown(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [[1, None]] * 5}), tmp_path / "a.parquet")
    found = only(tmp_path)
    assert found.stream.memory_bound is None
    assert "at most unknown" in found.to_text()


def test_large_row_groups_and_too_few_of_them(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": np.arange(5 * 2**20)}), tmp_path / "a.parquet", row_group_size=5 * 2**20)
    text = only(tmp_path, lanes=4).to_text()
    assert "1 row groups for 4 lanes" in text
    assert "row groups decode to 40" in text


def test_the_text_names_everything(tmp_path: Path) -> None:
    text = only(SPARK, lanes=4).to_text()
    for words in (
        "2000",
        "22",
        "snappy",
        "timestamp[ns]",
        "(partition)",
        "286 nulls",
        "12 / 101 / 116",
        "16 of 22 row groups",
    ):
        assert words in text


def test_damage_is_reported(tmp_path: Path) -> None:
    write_foreign(tmp_path)
    (tmp_path / "data-1.parquet").write_bytes(b"")
    with pytest.raises(DamageError, match=r"data-1\.parquet: is empty"):
        inspect_dataset(str(tmp_path))
