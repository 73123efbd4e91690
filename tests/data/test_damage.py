"""Damaged datasets: everything that is wrong is listed at once, with path, row group and reason; nothing else is."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pliant.data.collate import collate_numeric
from pliant.data.listing import MANIFEST_NAME
from pliant.data.manifest import Manifest, build_manifest, load_or_build_manifest
from pliant.data.order import EpochOrder
from pliant.data.prepare import write_dataset
from pliant.data.reading import locate, read_spec, read_window
from pliant.data.settings import DataSettings
from pliant.data.verify import verify_dataset
from pliant.errors import EXIT_INFRASTRUCTURE, ConfigError, DamageError
from pliant.train.protocols import Split
from tests.data.shardkit import flip_data_byte, table, write_foreign


def listed(error: pytest.ExceptionInfo[DamageError]) -> dict[str, str]:
    """Path → reason, of the one error."""
    assert error.value.exit_code == EXIT_INFRASTRUCTURE
    lines = error.value.message.splitlines()
    found = dict(line.strip().split(": ", 1) for line in lines[1:])
    assert lines[0].startswith(f"{len(found)} file")
    return found


def prepared(root: Path) -> Path:
    """8 shards of 4 row groups of 25 rows, written by Pliant."""
    splits = [Split("train", table(1).schema, iter(table(800).to_batches()), row_group_rows=25, rows_per_file=100)]
    write_dataset(splits, str(root))
    return root / "train"


def read_everything(manifest: Manifest, **nulls: str | float) -> pa.Table:
    data = DataSettings(path=manifest.root, nulls=nulls)
    order = EpochOrder(manifest.group_rows, seed=0, epoch=0, lanes=1, window=4, shuffle=False)
    spec = read_spec(manifest, data)
    return pa.concat_tables(read_window(spec, locate(manifest, w), None) for w in order.windows(0, 0))


def truncate(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def test_of_eight_files_three_bad_ones_are_listed_and_no_other(tmp_path: Path) -> None:
    write_foreign(tmp_path, files=8)
    truncate(tmp_path / "data-2.parquet", 100)
    (tmp_path / "data-5.parquet").write_bytes(b"")
    (tmp_path / "data-7.parquet").write_text("id,x\n1,2\n" * 50)
    with pytest.raises(DamageError) as caught:
        build_manifest(str(tmp_path))
    assert listed(caught) == {
        "data-2.parquet": "is truncated: it begins as Parquet and has no footer",
        "data-5.parquet": "is empty (0 bytes)",
        "data-7.parquet": "is not Parquet (no PAR1 at its ends)",
    }


@pytest.mark.parametrize("size", [1, 3, 4, 8, 11, 12, 100])
def test_short_beginnings_of_files(tmp_path: Path, size: int) -> None:
    write_foreign(tmp_path, files=2)
    path = tmp_path / "data-1.parquet"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DamageError) as caught:
        build_manifest(str(tmp_path))
    assert list(listed(caught)) == ["data-1.parquet"]


def test_footers_that_lie(tmp_path: Path) -> None:
    write_foreign(tmp_path, files=5)
    whole = (tmp_path / "data-0.parquet").read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    footer = whole[-8 - length :]
    (tmp_path / "data-1.parquet").write_bytes(whole[:4] + footer)  # all data cut out
    (tmp_path / "data-2.parquet").write_bytes(whole[:-8] + (2**31).to_bytes(4, "little") + b"PAR1")
    (tmp_path / "data-3.parquet").write_bytes(whole[: -8 - length] + b"\xff" * length + whole[-8:])
    (tmp_path / "data-4.parquet").write_bytes(whole[:-4] + b"PARE")
    with pytest.raises(DamageError) as caught:
        build_manifest(str(tmp_path))
    reasons = listed(caught)
    assert "points behind the end of its data" in reasons["data-1.parquet"]
    assert "is cut" in reasons["data-2.parquet"]
    assert "cannot be decoded" in reasons["data-3.parquet"]
    assert "encrypted" in reasons["data-4.parquet"]
    assert "data-0.parquet" not in reasons


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"id": [1], "x": [0.5]}, "lacks the column 'name'"),
        ({"id": [1], "x": [0.5], "name": ["a"], "more": [1]}, "has a further column 'more'"),
        ({"id": [1.0], "x": [0.5], "name": ["a"]}, "has 'id' as double, not int64"),
        ({"id": [1], "x": ["0.5"], "name": ["a"]}, "has 'x' as string, not double"),
        ({"id": [1], "x": [[0.5]], "name": ["a"]}, "has 'x' as list<item: double>, not double"),
        ({"ID": [1], "x": [0.5], "name": ["a"]}, "lacks the column 'id'; has a further column 'ID'"),
        ({"id": pa.array([1], pa.int32()), "x": [0.5], "name": ["a"]}, "has 'id' as int32, not int64"),
    ],
)
def test_each_kind_of_schema_drift(tmp_path: Path, columns: dict[str, list[object]], reason: str) -> None:
    write_foreign(tmp_path, files=3)
    pq.write_table(pa.table(columns), tmp_path / "a-first.parquet")
    with pytest.raises(DamageError) as caught:
        build_manifest(str(tmp_path))
    assert listed(caught) == {"a-first.parquet": f"{reason}; unlike data-0.parquet"}


def test_column_order_is_no_drift(tmp_path: Path) -> None:
    write_foreign(tmp_path, files=2)
    pq.write_table(table(10, 200).select(["name", "id", "x"]), tmp_path / "z.parquet")
    rows = read_everything(build_manifest(str(tmp_path)))
    assert rows["id"].to_pylist() == list(range(210))


def test_a_tie_of_schemas_goes_to_the_first_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [1]}), tmp_path / "0.parquet")
    with pytest.raises(DamageError, match=r"1\.parquet: lacks the column 'b'"):
        build_manifest(str(tmp_path))


def test_the_recorded_schema_is_the_reference(tmp_path: Path) -> None:
    manifest = build_manifest(str(write_foreign(tmp_path, files=1)))
    for i in range(3):
        pq.write_table(pa.table({"b": [1]}), tmp_path / f"b{i}.parquet")
    with pytest.raises(DamageError) as caught:
        build_manifest(str(tmp_path), previous=manifest)
    assert sorted(listed(caught)) == ["b0.parquet", "b1.parquet", "b2.parquet"]


def test_a_flipped_byte_is_found_by_verify(tmp_path: Path) -> None:
    root = prepared(tmp_path)
    assert verify_dataset(str(tmp_path))["train"].unchecked == ()
    flip_data_byte(root / "part-00003.parquet", 2)
    flip_data_byte(root / "part-00003.parquet", 1, column=1)
    flip_data_byte(root / "part-00006.parquet", 0, column=2)
    assert load_or_build_manifest(str(root)).rows == 800  # footers are whole
    with pytest.raises(DamageError) as caught:
        verify_dataset(str(tmp_path))
    reasons = listed(caught)
    assert list(reasons) == ["train/part-00003.parquet", "train/part-00006.parquet"]
    assert "row group 1, column 'x', cannot be decoded" in reasons["train/part-00003.parquet"]
    assert "row group 2, column 'id', cannot be decoded" in reasons["train/part-00003.parquet"]
    assert "row group 0, column 'name'" in reasons["train/part-00006.parquet"]
    assert "CRC" in reasons["train/part-00006.parquet"]


def test_a_flipped_byte_is_found_by_the_reader(tmp_path: Path) -> None:
    root = prepared(tmp_path)
    flip_data_byte(root / "part-00003.parquet", 2)
    manifest = load_or_build_manifest(str(root))
    with pytest.raises(DamageError, match=r"part-00003\.parquet, row group 2"):
        read_everything(manifest)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip", "lz4"])
def test_codecs_of_others_are_read_and_their_checksums_verified(tmp_path: Path, compression: str) -> None:
    write_foreign(tmp_path / "plain", compression=compression)
    write_foreign(tmp_path / "checked", compression=compression, write_page_checksum=True)
    for name in ("plain", "checked"):
        verified = verify_dataset(str(tmp_path / name))[""]
        assert len(verified.unchecked) == (4 if name == "plain" else 0)
        assert (verified.rows, verified.files, verified.recorded) == (400, 4, False)
        assert read_everything(build_manifest(str(tmp_path / name))).equals(table(400))
    flip_data_byte(tmp_path / "checked" / "data-1.parquet", 3, column=1)
    with pytest.raises(DamageError, match=r"data-1\.parquet: row group 3, column 'x'"):
        verify_dataset(str(tmp_path / "checked"))


def test_verify_lists_all_kinds_of_damage_in_all_splits(tmp_path: Path) -> None:
    root = prepared(tmp_path)
    shutil.copytree(root, tmp_path / "validation")
    (root / "part-00000.parquet").unlink()
    truncate(root / "part-00001.parquet", 50)
    flip_data_byte(root / "part-00002.parquet", 0)
    (root / "part-00004.parquet").write_bytes((root / "part-00005.parquet").read_bytes())
    pq.write_table(table(5), root / "extra.parquet")
    (tmp_path / "validation" / MANIFEST_NAME).write_text("{}")
    with pytest.raises(DamageError) as caught:
        verify_dataset(str(tmp_path))
    reasons = listed(caught)
    assert sorted(reasons) == [
        "train/extra.parquet",
        "train/part-00000.parquet",
        "train/part-00001.parquet",
        "train/part-00002.parquet",
        "train/part-00004.parquet",
        f"validation/{MANIFEST_NAME}",
    ]


def test_verify_does_not_trust_times(tmp_path: Path) -> None:
    """A replaced shard of the same size and time: the reader's hint passes it, verify does not."""
    root = prepared(tmp_path)
    path = root / "part-00002.parquet"
    times = path.stat()
    data = bytearray(path.read_bytes())
    at = data.index(b"parquet-cpp-arrow")  # the writer's name in the footer
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    load_or_build_manifest(str(root))
    with pytest.raises(DamageError, match=r"part-00002\.parquet: is not the file in the manifest"):
        verify_dataset(str(root))


def test_whole_datasets_verify(tmp_path: Path) -> None:
    root = prepared(tmp_path)
    verified = verify_dataset(str(tmp_path))["train"]
    assert verified.recorded
    assert (verified.rows, verified.files, verified.unchecked) == (800, 8, ())
    assert verified.digest == load_or_build_manifest(str(root)).digest
    assert verified.bytes == sum(p.stat().st_size for p in root.glob("*.parquet"))


def test_nulls_strings_and_ragged_lists(tmp_path: Path) -> None:
    t = pa.table({"n": [1, None, 3], "s": ["a", "b", "c"], "r": [[1], [1, 2], []]})
    pq.write_table(t, tmp_path / "a.parquet")
    manifest = build_manifest(str(tmp_path))
    with pytest.raises(ConfigError, match=r"'n'.*null"):
        read_everything(manifest)
    rows = read_everything(manifest, n=-1)
    assert rows.schema.field("n").type == pa.int64()  # never a float in disguise
    assert rows["n"].to_pylist() == [1, -1, 3]
    masked = read_everything(manifest, n="mask")
    assert masked["n__valid"].to_pylist() == [True, False, True]
    batch = collate_numeric(masked.select(["n", "n__valid"]))
    assert batch["n"].numpy().dtype == np.int64
    for name in ("s", "r"):
        with pytest.raises(ConfigError, match=f"{name!r}"):
            collate_numeric(rows.select([name]))


def test_a_changed_manifest_is_told_in_words(tmp_path: Path) -> None:
    root = write_foreign(tmp_path, files=3)
    before = build_manifest(str(root))
    pq.write_table(table(40), root / "data-1.parquet", row_group_size=25)
    (root / "data-2.parquet").unlink()
    pq.write_table(table(4), root / "data-9.parquet")
    lines = before.diff(build_manifest(str(root)))
    assert re.match(r"changed: data-1\.parquet: .*100 rows in 4 row groups → 40 in 2", lines[0])
    assert lines[1:] == ["removed: data-2.parquet (100 rows)", "added: data-9.parquet (4 rows)"]
