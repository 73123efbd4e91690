"""Writing datasets: what lies there afterwards, what an interruption leaves, what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from pliant.data.filesystem import dataset_filesystem
from pliant.data.listing import INCOMPLETE_NAME, MANIFEST_NAME, find_splits
from pliant.data.manifest import build_manifest, load_or_build_manifest, recorded_manifest
from pliant.data.prepare import write_dataset
from pliant.errors import DamageError, StorageError, UsageError, UserCodeError
from pliant.train.protocols import Split
from tests.data.shardkit import table, write_foreign
from tests.s3 import S3Server

SCHEMA = table(1).schema


def split(name: str = "train", rows: int = 1000, batch: int = 70, start: int = 0) -> Split:
    return Split(name, SCHEMA, iter(table(rows, start).to_batches(batch)), row_group_rows=32, rows_per_file=200)


@pytest.fixture(params=["local", "s3"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "out")
    server: S3Server = request.getfixturevalue("s3_server")
    return server.uri(f"d-{uuid.uuid4().hex}")


def read_all(uri: str) -> pa.Table:
    filesystem, root = dataset_filesystem(uri)
    return pa.concat_tables(
        pq.ParquetFile(f"{root}/{f.path}", filesystem=filesystem, page_checksum_verification=True).read()
        for f in build_manifest(uri).files
    )


def names(uri: str) -> list[str]:
    filesystem, root = dataset_filesystem(uri)
    infos = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    return sorted(i.base_name for i in infos if i.type == fs.FileType.File)


def test_splits_become_shards_with_a_manifest(out: str) -> None:
    manifests = write_dataset([split(), split("validation", 50)], out)
    assert list(manifests) == ["train", "validation"]
    assert names(f"{out}/train") == [MANIFEST_NAME, *(f"part-{i:05d}.parquet" for i in range(5))]
    assert read_all(f"{out}/train").equals(table(1000))
    assert read_all(f"{out}/validation").equals(table(50))
    train = manifests["train"]
    assert [f.rows for f in train.files] == [(32,) * 6 + (8,)] * 5
    assert load_or_build_manifest(f"{out}/train") == train
    recorded = recorded_manifest(f"{out}/train")
    assert recorded is not None
    assert recorded.digest == train.digest


def test_the_bytes_do_not_depend_on_the_batches(tmp_path: Path) -> None:
    digests = {
        write_dataset([split(batch=batch)], str(tmp_path / str(batch)))["train"].digest for batch in (1, 31, 32, 1000)
    }
    assert len(digests) == 1


def test_an_identical_dataset_is_left_alone(out: str) -> None:
    first = write_dataset([split(), split("validation", 50)], out)
    again = write_dataset([split(), split("validation", 50)], out)
    assert again == first  # times of change included


@pytest.mark.parametrize("other", [{"rows": 999}, {"rows": 1001}, {"rows": 1300}, {"rows": 300}, {"start": 1}])
def test_another_dataset_is_refused_and_left_alone(tmp_path: Path, other: dict[str, int]) -> None:
    first = write_dataset([split()], str(tmp_path))
    with pytest.raises(UsageError, match="another dataset lies here"):
        write_dataset([split(**other)], str(tmp_path))
    assert load_or_build_manifest(str(tmp_path / "train")) == first["train"]


def test_overwrite_replaces_all_of_it(out: str) -> None:
    write_dataset([split()], out)
    write_dataset([split(rows=250, start=7)], out, overwrite=True)
    assert read_all(f"{out}/train").equals(table(250, 7))
    assert len(load_or_build_manifest(f"{out}/train").files) == 2


def test_overwrite_takes_away_the_splits_that_are_not_written_anew(out: str) -> None:
    write_dataset([split(), split("validation", 50), split("tiny", 5)], out)
    write_dataset([split(rows=250)], out, overwrite=True)
    assert list(find_splits(out)) == ["train"]
    assert names(out) == [MANIFEST_NAME, "part-00000.parquet", "part-00001.parquet"]


def test_what_pliant_has_not_written_stays_when_splits_are_overwritten(tmp_path: Path) -> None:
    write_dataset([split(), split("validation", 50)], str(tmp_path))
    write_foreign(tmp_path / "test")
    (tmp_path / "validation" / "README").write_text("mine")
    write_dataset([split()], str(tmp_path), overwrite=True)
    assert names(f"{tmp_path}/validation") == ["README"]
    assert len(names(f"{tmp_path}/test")) == 4


def test_an_interrupted_overwrite_is_finished_by_the_next_call(tmp_path: Path) -> None:
    write_dataset([split(), split("validation", 50)], str(tmp_path))
    (tmp_path / "validation" / MANIFEST_NAME).unlink()  # as killed while this split was being taken away
    for name in ("train", "validation"):
        (tmp_path / name / INCOMPLETE_NAME).touch()
    write_dataset([split()], str(tmp_path))
    assert list(find_splits(str(tmp_path))) == ["train"]
    assert not (tmp_path / "validation").exists()


def test_each_thing_is_on_the_disk_before_the_next_one_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, real = tmp_path / "train", os.fsync
    write_dataset([split(rows=250)], str(tmp_path))
    synced: list[tuple[str, set[str]]] = []  # what, and which files lay in the folder then

    def fsync(handle: int) -> None:
        real(handle)
        synced.append((Path(os.readlink(f"/proc/self/fd/{handle}")).name, set(os.listdir(folder))))

    monkeypatch.setattr(os, "fsync", fsync)
    write_dataset([split(rows=300, start=1)], str(tmp_path), overwrite=True)
    old, new = {MANIFEST_NAME, "part-00000.parquet", "part-00001.parquet"}, {"part-00000.parquet", "part-00001.parquet"}
    assert synced == [
        # Nobody takes what is left of the old dataset for a whole one …
        (INCOMPLETE_NAME, {INCOMPLETE_NAME, *old}),
        ("train", {INCOMPLETE_NAME, *old}),
        # … nor shards that a crash has emptied for what the manifest names.
        ("part-00000.parquet", {INCOMPLETE_NAME, *new}),
        ("part-00001.parquet", {INCOMPLETE_NAME, *new}),
        (MANIFEST_NAME, {INCOMPLETE_NAME, MANIFEST_NAME, *new}),
        ("train", {INCOMPLETE_NAME, MANIFEST_NAME, *new}),
        ("train", {MANIFEST_NAME, *new}),
    ]


class Interrupted(Exception):
    pass


def broken_after(rows: int) -> Split:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from table(rows).to_batches(70)
        raise Interrupted

    return Split("train", SCHEMA, batches(), row_group_rows=32, rows_per_file=200)


@pytest.mark.parametrize("rows", [0, 100, 500])
def test_an_interrupted_split_is_not_readable_and_is_written_anew(out: str, rows: int) -> None:
    with pytest.raises(Interrupted):
        write_dataset([broken_after(rows)], out)
    with pytest.raises(DamageError, match="not finished"):
        load_or_build_manifest(f"{out}/train")
    write_dataset([split()], out)
    assert read_all(f"{out}/train").equals(table(1000))
    assert INCOMPLETE_NAME not in names(f"{out}/train")


def test_no_split_is_readable_before_the_last_one_is_whole(tmp_path: Path) -> None:
    def splits() -> Iterator[Split]:
        yield split()
        raise Interrupted

    with pytest.raises(Interrupted):
        write_dataset(splits(), str(tmp_path))
    with pytest.raises(DamageError, match="not finished"):
        build_manifest(str(tmp_path / "train"))


def test_an_interrupted_overwrite_is_not_readable(tmp_path: Path) -> None:
    write_dataset([split()], str(tmp_path))
    with pytest.raises(Interrupted):
        write_dataset([broken_after(500)], str(tmp_path), overwrite=True)
    with pytest.raises(DamageError, match="not finished"):
        load_or_build_manifest(str(tmp_path / "train"))


def test_foreign_shards_are_never_overwritten(tmp_path: Path) -> None:
    write_foreign(tmp_path / "train")
    with pytest.raises(UsageError, match=r"data-0\.parquet"):
        write_dataset([split()], str(tmp_path), overwrite=True)
    other = tmp_path / "other"
    write_foreign(other / "train", files=1)
    (other / "train" / "data-0.parquet").rename(other / "train" / "part-00000.parquet")
    with pytest.raises(UsageError, match=r"part-00000\.parquet"):
        write_dataset([split()], str(other), overwrite=True)


def test_batches_that_do_not_fit_are_named(tmp_path: Path) -> None:
    batch = pa.table({"id": [1], "x": ["a"]}).to_batches()[0]
    with pytest.raises(UserCodeError, match=r"lacks the column 'name'; has 'x' as string, not double"):
        write_dataset([Split("train", SCHEMA, iter([batch]))], str(tmp_path))


def test_column_order_of_batches_is_free(tmp_path: Path) -> None:
    batches = table(10).select(["name", "x", "id"]).to_batches()
    write_dataset([Split("train", SCHEMA, iter(batches))], str(tmp_path))
    assert read_all(str(tmp_path / "train")).equals(table(10))


@pytest.mark.parametrize("name", ["", ".x", "_x", "a/b", ".."])
def test_bad_split_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserCodeError, match="split name"):
        write_dataset([split(name)], str(tmp_path))


def test_splits_need_rows_and_new_names(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match="no rows"):
        write_dataset([split(rows=0)], str(tmp_path / "a"))
    with pytest.raises(UserCodeError, match="split name"):
        write_dataset([split(), split()], str(tmp_path / "b"))
    with pytest.raises(UserCodeError, match="no split"):
        write_dataset([], str(tmp_path / "c"))


@pytest.mark.parametrize("sizes", [(0, 10), (10, 0), (-1, 10)])
def test_sizes_below_one_are_refused(tmp_path: Path, sizes: tuple[int, int]) -> None:
    with pytest.raises(UserCodeError, match="cannot be"):
        write_dataset([Split("train", SCHEMA, iter(table(10).to_batches()), *sizes)], str(tmp_path))


def test_fixed_size_lists_and_dictionaries_survive(tmp_path: Path) -> None:
    t = pa.table(
        {"v": pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)), "d": pa.array(["a", "b"]).dictionary_encode()}
    )
    manifest = write_dataset([Split("train", t.schema, iter(t.to_batches()))], str(tmp_path))["train"]
    assert manifest.schema == pa.schema([("v", pa.list_(pa.int16(), 2)), ("d", pa.string())])


def test_an_error_of_the_pipeline_passes_through(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from table(100).to_batches()
        (tmp_path / "no such input").read_bytes()

    with pytest.raises(FileNotFoundError):
        write_dataset([Split("train", SCHEMA, batches())], str(tmp_path))


def test_storage_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        write_dataset([split()], str(tmp_path / "file"))


def test_memory_stays_at_one_row_group(tmp_path: Path) -> None:
    schema = pa.schema([("v", pa.list_(pa.int64(), 128))])
    random = np.random.Generator(np.random.Philox(0))
    before = pa.total_allocated_bytes()
    highest = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal highest
        for _ in range(200):  # 200 × 256 KiB
            values = pa.array(random.integers(0, 2**62, 256 * 128))
            yield pa.RecordBatch.from_arrays([pa.FixedSizeListArray.from_arrays(values, 128)], schema=schema)
            highest = max(highest, pa.total_allocated_bytes() - before)

    write_dataset([Split("train", schema, batches(), row_group_rows=1024, rows_per_file=8192)], str(tmp_path))
    assert highest < 16 * 2**20


def test_a_killed_prepare_leaves_nothing_readable(tmp_path: Path) -> None:
    script = """
import sys, threading
import pyarrow as pa
from types import SimpleNamespace
from pliant.data.prepare import write_dataset

def batches():
    for i in range(10):
        yield pa.record_batch({"id": list(range(i * 50, i * 50 + 50))})
    print("writing", flush=True)
    threading.Event().wait()

split = SimpleNamespace(name="train", schema=pa.schema([("id", pa.int64())]), batches=batches(),
                        row_group_rows=10, rows_per_file=100)
write_dataset([split], sys.argv[1])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        process.kill()
    assert len(list(tmp_path.glob("train/*.parquet"))) >= 4
    with pytest.raises(DamageError, match="not finished"):
        load_or_build_manifest(str(tmp_path / "train"))
