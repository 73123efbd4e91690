"""Repacking: the same rows exactly once, in small checksummed row groups, in a uniformly random order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pliant.data.manifest import Manifest, build_manifest
from pliant.data.prepare import write_dataset
from pliant.data.repack import repack
from pliant.data.verify import verify_dataset
from pliant.errors import DamageError, UsageError
from pliant.train.protocols import Split
from tests.data.fixtures.make_spark import OUT as SPARK
from tests.data.fixtures.make_spark import ROWS, row_of
from tests.data.shardkit import flip_data_byte, table, write_foreign


def rows_of(manifest: Manifest) -> pa.Table:
    return pa.concat_tables(pq.ParquetFile(f"{manifest.root}/{f.path}").read() for f in manifest.files)


def ids_of(manifest: Manifest) -> list[int]:
    return rows_of(manifest)["id"].to_pylist()


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip", "lz4"])
def test_the_same_rows_in_another_order(tmp_path: Path, compression: str) -> None:
    write_foreign(tmp_path / "in", files=5, rows=200, group=150, compression=compression)
    manifest = repack(str(tmp_path / "in"), str(tmp_path / "out"), row_group_rows=16)[""]
    rows = rows_of(manifest)
    assert rows["id"].to_pylist() != list(range(1000))
    assert rows.sort_by("id").equals(table(1000))
    assert set(manifest.group_rows.tolist()) == {16, 8}
    verified = verify_dataset(str(tmp_path / "out"))[""]
    assert verified.unchecked == ()
    assert verified.recorded


@pytest.mark.parametrize("memory", [2**30, 20_000, 1])
def test_any_number_of_buckets_gives_a_whole_shuffle(tmp_path: Path, memory: int) -> None:
    write_foreign(tmp_path / "in", files=2, rows=1000, group=400)
    manifest = repack(str(tmp_path / "in"), str(tmp_path / "out"), row_group_rows=64, memory=memory)[""]
    ids = ids_of(manifest)
    assert sorted(ids) == list(range(2000))
    # Sorted input, random output: ranks are uncorrelated, and every tenth of it has rows of every tenth.
    assert abs(np.corrcoef(np.arange(2000), ids)[0, 1]) < 0.1
    counts = np.histogram2d(np.arange(2000), ids, bins=10)[0]
    assert counts.min() > 5
    assert counts.max() < 40


def test_the_seed_decides(tmp_path: Path) -> None:
    write_foreign(tmp_path / "in")
    source = str(tmp_path / "in")
    digests = [repack(source, str(tmp_path / f"{i}"), seed=seed)[""].digest for i, seed in enumerate((1, 1, 2))]
    assert digests[0] == digests[1] != digests[2]


def test_a_partitioned_dataset_gets_real_columns(tmp_path: Path) -> None:
    manifest = repack(str(SPARK), str(tmp_path / "out"))[""]
    assert manifest.partitions == ()
    assert manifest.schema.names == list(row_of(0))
    rows = sorted(rows_of(manifest).to_pylist(), key=lambda row: row["id"])
    expected = [row_of(i) for i in range(ROWS)]
    for row in expected:
        row["at"] = row["at"] and row["at"].replace(tzinfo=None)
    assert rows == expected


def test_splits_are_repacked_one_by_one(tmp_path: Path) -> None:
    schema = table(1).schema
    splits = [
        Split("train", schema, iter(table(500).to_batches())),
        Split("validation", schema, iter(table(9).to_batches())),
    ]
    write_dataset(splits, str(tmp_path / "in"))
    manifests = repack(str(tmp_path / "in"), str(tmp_path / "out"), row_group_rows=20)
    assert {name: m.rows for name, m in manifests.items()} == {"train": 500, "validation": 9}
    assert manifests["train"].root == str(tmp_path / "out" / "train")


def test_row_groups_of_about_a_mebibyte(tmp_path: Path) -> None:
    values = np.arange(2**20, dtype=np.int64)
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": values}), tmp_path / "in" / "a.parquet")
    manifest = repack(str(tmp_path / "in"), str(tmp_path / "out"))[""]
    assert len(manifest.group_rows) in (8, 9)
    assert sorted(ids_of(manifest)) == values.tolist()


def test_again_is_a_comparison(tmp_path: Path) -> None:
    write_foreign(tmp_path / "in")
    first = repack(str(tmp_path / "in"), str(tmp_path / "out"))
    assert repack(str(tmp_path / "in"), str(tmp_path / "out")) == first
    with pytest.raises(UsageError, match="another dataset"):
        repack(str(tmp_path / "in"), str(tmp_path / "out"), seed=1)
    assert repack(str(tmp_path / "in"), str(tmp_path / "out"), seed=1, overwrite=True) != first


@pytest.mark.parametrize("out", [".", "in", "in/below", "in/", "other/../in"])
def test_not_into_itself(tmp_path: Path, out: str) -> None:
    write_foreign(tmp_path / "in")
    with pytest.raises(UsageError, match="into itself"):
        repack(str(tmp_path / "in"), str(tmp_path / out))
    assert build_manifest(str(tmp_path / "in")).rows == 400


def test_a_neighbour_with_the_same_beginning_is_not_itself(tmp_path: Path) -> None:
    write_foreign(tmp_path / "in")
    assert repack(str(tmp_path / "in"), str(tmp_path / "in2"))[""].rows == 400


def test_damage_stops_it_and_leaves_nothing_readable(tmp_path: Path) -> None:
    write_foreign(tmp_path / "in", write_page_checksum=True)
    flip_data_byte(tmp_path / "in" / "data-2.parquet", 1)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(DamageError, match=r"data-2\.parquet.*row group 1, column 'id'"):
        repack(str(tmp_path / "in"), str(tmp_path / "out"), scratch=str(scratch))
    assert not list(scratch.iterdir())
    assert not list(tmp_path.glob("out/*.parquet"))


def test_memory_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rng = np.random.Generator(np.random.Philox(0))
    for i in range(8):  # 8 × 8 MiB
        values = pa.FixedSizeListArray.from_arrays(pa.array(rng.integers(0, 2**62, 2**20)), 64)
        t = pa.table({"id": range(i * 2**14, (i + 1) * 2**14), "v": values})
        pq.write_table(t, tmp_path / "in" / f"{i}.parquet", row_group_size=4096, compression="none")
    usual = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(watched)
    try:
        manifest = repack(str(tmp_path / "in"), str(tmp_path / "out"), memory=8 * 2**20)[""]
    finally:
        pa.set_memory_pool(usual)
    assert watched.max_memory() < 40 * 2**20
    assert sorted(ids_of(manifest)) == list(range(2**17))
