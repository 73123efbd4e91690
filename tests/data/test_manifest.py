"""The manifest: which files count, what identifies a dataset, what is said when it changes."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pliant.data.footer import read_footer
from pliant.data.listing import MANIFEST_NAME, find_splits, partition_of
from pliant.data.manifest import (
    Manifest,
    ShardFile,
    build_manifest,
    load_or_build_manifest,
    recorded_manifest,
)
from pliant.data.schemas import canonical_type, partition_type
from pliant.errors import ConfigError, DamageError
from tests.data.shardkit import table, write_foreign


def record(root: Path) -> Manifest:
    manifest = build_manifest(str(root))
    (root / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    return manifest


def test_files_are_sorted_by_the_bytes_of_their_paths(tmp_path: Path) -> None:
    names = ["b.parquet", "a/z.parquet", "a-b.parquet", "Z.parquet", "é.parquet", "a.parq", "10.parquet", "9.parquet"]
    for i, name in enumerate(random.Random(0).sample(names, len(names))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(table(10, i * 10), tmp_path / name)
    assert [f.path for f in build_manifest(str(tmp_path)).files] == sorted(names, key=str.encode)


def test_only_visible_parquet_files_count(tmp_path: Path) -> None:
    write_foreign(tmp_path, files=2)
    for name in ("_SUCCESS", ".data-0.parquet.crc", "README.txt", "_metadata", "_temporary/0/x.parquet", ".x.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("not Parquet")
    assert [f.path for f in build_manifest(str(tmp_path)).files] == ["data-0.parquet", "data-1.parquet"]


def test_groups_leave_out_empty_row_groups_and_files(tmp_path: Path) -> None:
    t = table(10)
    with pq.ParquetWriter(tmp_path / "a.parquet", t.schema) as writer:
        for rows in (4, 0, 6):
            writer.write_table(t.slice(0, rows))
    pq.write_table(t.slice(0, 0), tmp_path / "b.parquet")
    pq.write_table(t.slice(0, 3), tmp_path / "c.parquet")
    manifest = build_manifest(str(tmp_path))
    assert manifest.rows == 13
    assert manifest.group_rows.tolist() == [4, 6, 3]
    assert manifest.group_file.tolist() == [0, 0, 2]
    assert manifest.group_index.tolist() == [0, 2, 0]
    assert len(manifest.group_bytes) == 3


@pytest.mark.parametrize("make", ["missing", "file", "empty", "no rows"])
def test_a_place_without_rows_is_refused(tmp_path: Path, make: str) -> None:
    root = tmp_path / "d"
    if make == "file":
        root.write_text("x")
    elif make != "missing":
        root.mkdir()
    if make == "no rows":
        pq.write_table(table(0), root / "a.parquet")
    with pytest.raises(ConfigError):
        build_manifest(str(root))


def test_json_round_trip_is_exact_and_strict(tmp_path: Path) -> None:
    manifest = build_manifest(str(write_foreign(tmp_path)))
    data = manifest.to_bytes()
    assert Manifest.from_bytes(data) == manifest
    assert Manifest.from_bytes(data).digest == manifest.digest
    document = json.loads(data)
    for bad in (
        {**document, "extra": 1},
        {**document, "version": 2},
        {**document, "digest": "0" * 32},
        {**document, "columns": "AAAA"},
        {**document, "files": [{**document["files"][0], "size": "12"}]},
        {k: v for k, v in document.items() if k != "partitions"},
    ):
        with pytest.raises(DamageError):
            Manifest.from_bytes(json.dumps(bad).encode())
    with pytest.raises(DamageError):
        Manifest.from_bytes(data[:-5])


def test_a_copy_with_new_times_elsewhere_is_the_same_dataset(tmp_path: Path) -> None:
    manifest = record(write_foreign(tmp_path / "a"))
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copyfile)
    for path in (tmp_path / "b").iterdir():
        os.utime(path, (1, 1))
    copy = load_or_build_manifest(str(tmp_path / "b"))
    assert copy.digest == manifest.digest
    assert copy.root == str(tmp_path / "b")
    assert manifest.diff(copy) == []


def test_the_recorded_manifest_saves_reading_footers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = record(write_foreign(tmp_path))
    os.utime(tmp_path / "data-2.parquet", (5, 5))
    read: list[str] = []

    def counting(filesystem: object, path: str, size: int) -> object:
        read.append(Path(path).name)
        return read_footer(filesystem, path, size)

    monkeypatch.setattr("pliant.data.manifest.read_footer", counting)
    assert load_or_build_manifest(str(tmp_path)).digest == manifest.digest
    assert read == ["data-2.parquet"]


def test_a_recorded_manifest_is_what_belongs(tmp_path: Path) -> None:
    record(write_foreign(tmp_path, files=5))
    (tmp_path / "data-0.parquet").unlink()
    pq.write_table(table(10), tmp_path / "new.parquet")
    pq.write_table(table(100, 7), tmp_path / "data-1.parquet", row_group_size=25)
    pq.write_table(table(50, 7), tmp_path / "data-2.parquet", row_group_size=25)
    (tmp_path / "data-3.parquet").write_bytes(b"")
    with pytest.raises(DamageError) as caught:
        load_or_build_manifest(str(tmp_path))
    text = str(caught.value)
    assert "5 files" in text
    for words in (
        "data-0.parquet: is missing",
        "data-1.parquet: is not the file in the manifest",
        "100 rows in 4 row groups → 50 in 2",
        "data-3.parquet: is empty (0 bytes)",
        "new.parquet: is not in the manifest",
    ):
        assert words in text
    assert "data-4.parquet" not in text


def test_a_damaged_recorded_manifest_is_named(tmp_path: Path) -> None:
    write_foreign(tmp_path)
    assert recorded_manifest(str(tmp_path)) is None
    (tmp_path / MANIFEST_NAME).write_text("{")
    with pytest.raises(DamageError, match=MANIFEST_NAME):
        load_or_build_manifest(str(tmp_path))


def test_diff_says_what_changed(tmp_path: Path) -> None:
    before = build_manifest(str(write_foreign(tmp_path, files=4)))
    (tmp_path / "data-0.parquet").unlink()
    pq.write_table(table(100, 1), tmp_path / "data-1.parquet", row_group_size=25)
    pq.write_table(table(60, 1), tmp_path / "data-2.parquet", row_group_size=25)
    pq.write_table(table(10), tmp_path / "e.parquet")
    after = build_manifest(str(tmp_path))
    lines = before.diff(after)
    assert [line.split(" (")[0].split(": ")[:2] for line in lines] == [
        ["removed", "data-0.parquet"],
        ["changed", "data-1.parquet"],
        ["changed", "data-2.parquet"],
        ["added", "e.parquet"],
    ]
    assert "100 rows in 4 row groups → 60 in 3" in lines[2]
    assert before.digest != after.digest


def test_diff_names_changed_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": [1]}), tmp_path / "x.parquet")
    before = build_manifest(str(tmp_path))
    pq.write_table(pa.table({"a": [1.0], "c": [1]}), tmp_path / "x.parquet")
    line = before.diff(build_manifest(str(tmp_path)))[0]
    assert "lacks the column 'b'" in line
    assert "further column 'c'" in line
    assert "'a' as double, not int64" in line


def test_partition_directories_become_columns(tmp_path: Path) -> None:
    for i, part in enumerate(("year=2023/city=Z%C3%BCrich", "year=2024/city=__HIVE_DEFAULT_PARTITION__")):
        write_foreign(tmp_path / part, files=1)
        assert partition_of(f"{part}/x.parquet")["year"] == str(2023 + i)
    manifest = build_manifest(str(tmp_path))
    assert manifest.partitions == ("year", "city")
    assert manifest.schema.names == ["id", "x", "name", "year", "city"]
    assert manifest.schema.field("year").type == pa.int64()
    assert manifest.schema.field("city").type == pa.string()
    assert manifest.partition_values(0) == {"year": 2023, "city": "Zürich"}
    assert manifest.partition_values(1) == {"year": 2024, "city": None}
    assert Manifest.from_bytes(manifest.to_bytes()).partition_values(1) == manifest.partition_values(1)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", None], pa.int64()),
        (["01", "12"], pa.int64()),
        (["1", "x"], pa.string()),
        (["1.5"], pa.string()),
        ([None], pa.string()),
        ([str(2**63)], pa.string()),
        (["", "1"], pa.string()),
    ],
)
def test_partition_types(values: list[str | None], kind: pa.DataType) -> None:
    assert partition_type(values) == kind


def test_a_column_in_the_file_wins_over_its_directory(tmp_path: Path) -> None:
    write_foreign(tmp_path / "id=7", files=1)
    manifest = build_manifest(str(tmp_path))
    assert manifest.partitions == ()
    assert manifest.schema.names == ["id", "x", "name"]


def test_a_file_outside_the_partitions_is_named(tmp_path: Path) -> None:
    for part in ("y=1", "y=2", "."):
        write_foreign(tmp_path / part, files=1)
    with pytest.raises(DamageError, match=r"data-0.parquet: lies in partitions of no column, the others in y"):
        build_manifest(str(tmp_path))


def test_writers_habits_are_no_drift(tmp_path: Path) -> None:
    """Column order, dictionaries, large types, nullability and pandas metadata differ between tools, not the data."""
    strings = pa.array(["a", "b"])
    lists = pa.array([[1], [2, 3]])
    pq.write_table(pa.table({"s": strings, "l": lists}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"l": lists, "s": strings}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"s": strings.dictionary_encode(), "l": lists}), tmp_path / "c.parquet")
    large = pa.table({"s": strings.cast(pa.large_string()), "l": lists.cast(pa.large_list(pa.int64()))})
    pq.write_table(large, tmp_path / "d.parquet")
    strict = pa.schema([pa.field("s", pa.string(), False, {"k": "v"}), pa.field("l", lists.type)], {"pandas": "{}"})
    pq.write_table(pa.table({"s": strings, "l": lists}).cast(strict), tmp_path / "e.parquet")
    schema = build_manifest(str(tmp_path)).schema
    assert schema == pa.schema([("s", pa.string()), ("l", pa.list_(pa.int64()))])
    assert schema.metadata is None


def test_canonical_types_reach_inside() -> None:
    nested = pa.struct(
        [("a", pa.large_list(pa.dictionary(pa.int32(), pa.large_string()))), ("b", pa.list_(pa.int8(), 3))]
    )
    assert canonical_type(nested) == pa.struct([("a", pa.list_(pa.string())), ("b", pa.list_(pa.int8(), 3))])


def test_splits_are_found(tmp_path: Path) -> None:
    write_foreign(tmp_path / "plain")
    assert find_splits(str(tmp_path / "plain")) == {"": str(tmp_path / "plain")}
    for name in ("validation", "train"):
        write_foreign(tmp_path / "split" / name)
    (tmp_path / "split" / "logs").mkdir()
    root = str(tmp_path / "split")
    assert find_splits(root + "/") == {"train": f"{root}/train", "validation": f"{root}/validation"}
    for name in ("a-hold-out", "test"):
        record(write_foreign(tmp_path / "split" / name))
    assert list(find_splits(root)) == ["train", "validation", "test", "a-hold-out"]
    assert find_splits(f"{root}/train/data-0.parquet") == {"": f"{root}/train/data-0.parquet"}
    assert find_splits(f"{root}/nothing") == {"": f"{root}/nothing"}


def test_roots_may_be_written_in_any_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = build_manifest(str(write_foreign(tmp_path / "in"))).digest
    monkeypatch.chdir(tmp_path)
    for uri in ("in", "./in/", "in/../in", f"file://{tmp_path}/in", "in//"):
        assert build_manifest(uri).digest == digest


def test_ten_thousand_files(tmp_path: Path) -> None:
    write_foreign(tmp_path, files=1, rows=10, group=5)
    data = (tmp_path / "data-0.parquet").read_bytes()
    for i in range(1, 10_000):
        (tmp_path / f"data-{i}.parquet").write_bytes(data)
    started = time.monotonic()
    manifest = build_manifest(str(tmp_path))
    assert time.monotonic() - started < 30  # 1.3 s on two idle cores
    assert manifest.rows == 100_000
    assert len(manifest.group_rows) == 20_000


def test_two_hundred_thousand_row_groups_load_quickly() -> None:
    files = tuple(
        ShardFile(path=f"{i:05d}.parquet", size=9, modified_ns=None, footer="0", rows=(64,) * 200, bytes=(4096,) * 200)
        for i in range(1000)
    )
    manifest = Manifest(1, "", files, pa.schema([("a", pa.int64())]))
    data = manifest.to_bytes()
    started = time.monotonic()
    loaded = Manifest.from_bytes(data)
    assert loaded.rows == 200_000 * 64
    assert time.monotonic() - started < 5  # 0.2 s on an idle core
