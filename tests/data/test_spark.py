"""A partitioned dataset that a real Spark 4 wrote (fixtures/make_spark.py): every value arrives as it was."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pliant.data.collate import collate_numeric, encode_strings, pad_ragged
from pliant.data.manifest import Manifest, build_manifest
from pliant.data.order import EpochOrder, window_permutation
from pliant.data.reading import locate, read_spec, read_window
from pliant.data.settings import DataSettings
from pliant.data.verify import verify_dataset
from pliant.errors import DamageError
from tests.data.fixtures.make_spark import CITIES, OUT, ROWS, row_of
from tests.data.shardkit import flip_data_byte

NULLS = {"score": "mask", "flag": "mask"}
"""Numbers need a policy; nulls of other kinds arrive as they are."""


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return build_manifest(str(OUT))


@pytest.fixture(scope="module")
def rows(manifest: Manifest) -> pa.Table:
    """All rows, shuffled over three lanes, as training would read them."""
    order = EpochOrder(manifest.group_rows, seed=3, epoch=0, lanes=3, window=4)
    spec = read_spec(manifest, DataSettings(path=manifest.root, nulls=NULLS))
    windows = [w for lane in range(3) for w in order.windows(lane, 0)]
    return pa.concat_tables(read_window(spec, locate(manifest, w), window_permutation(3, w)) for w in windows)


def test_the_dataset_is_as_spark_writes_it(manifest: Manifest) -> None:
    assert (OUT / "_SUCCESS").exists()
    assert len(manifest.files) == 6
    assert len(manifest.group_rows) == 22
    assert manifest.rows == ROWS
    metadata = pq.read_metadata(OUT / manifest.files[0].path)
    chunks = {metadata.schema.column(i).name: metadata.row_group(0).column(i) for i in range(metadata.num_columns)}
    assert metadata.created_by.startswith("parquet-mr")
    assert chunks["id"].compression == "SNAPPY"
    assert chunks["at"].physical_type == "INT96"


def test_partition_columns(manifest: Manifest) -> None:
    assert manifest.partitions == ("year", "city")
    assert manifest.schema.field("year").type == pa.int64()
    values = [manifest.partition_values(i) for i in range(6)]
    assert {(v["year"], v["city"]) for v in values} == {(y, c) for y in (2023, 2024) for c in CITIES}


def test_every_row_arrives_once_with_its_values(rows: pa.Table) -> None:
    assert sorted(rows["id"].to_pylist()) == list(range(ROWS))
    assert rows["id"].to_pylist() != list(range(ROWS))
    for found in rows.to_pylist():
        expected: dict[str, Any] = row_of(found["id"])
        expected["at"] = expected["at"] and expected["at"].replace(tzinfo=None)
        for name in NULLS:
            assert found[f"{name}__valid"] == (expected[name] is not None)
            if expected[name] is None:
                found[name] = None  # whatever was filled in
        assert {name: found[name] for name in expected} == expected


def test_collating_it(rows: pa.Table) -> None:
    batch = collate_numeric(rows.select(["id", "score", "score__valid", "flag", "tokens", "year"]))
    assert batch["tokens"].shape == (ROWS, 4)
    assert batch["tokens"].dtype == torch.int32
    assert torch.equal(batch["tokens"][:, 3].long(), batch["id"] + 3)
    cities = encode_strings(rows, "city", [c for c in CITIES if c], unknown=2)
    assert cities.tolist() == [i % 3 for i in rows["id"].to_pylist()]
    digits = rows.set_column(0, "n", pa.array([list(range(len(t))) for t in rows["tags"].to_pylist()]))
    _, mask = pad_ragged(digits, "n", pad=0)
    assert mask.sum(1).tolist() == [i % 3 for i in rows["id"].to_pylist()]


def test_sparks_own_checksums_are_verified(tmp_path: Path, manifest: Manifest) -> None:
    assert verify_dataset(str(OUT))[""].unchecked == ()
    shutil.copytree(OUT, tmp_path / "d")
    path = manifest.files[4].path
    flip_data_byte(tmp_path / "d" / path, 2)
    with pytest.raises(DamageError) as caught:
        verify_dataset(str(tmp_path / "d"))
    assert f"{path}: row group 2, column 'id', cannot be decoded" in str(caught.value)
    assert "1 file " in str(caught.value)
