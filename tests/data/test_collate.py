"""Collating: own dtypes, writable, zero rows, and errors that name the column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

from pliant.data.collate import collate_numeric, encode_strings, pad_ragged
from pliant.data.reading import ROW_COLUMN, ROW_GROUP_COLUMN
from pliant.errors import ConfigError, UsageError

DTYPES = {
    pa.int8(): torch.int8,
    pa.int16(): torch.int16,
    pa.int32(): torch.int32,
    pa.int64(): torch.int64,
    pa.uint8(): torch.uint8,
    pa.uint16(): torch.uint16,
    pa.uint32(): torch.uint32,
    pa.uint64(): torch.uint64,
    pa.float16(): torch.float16,
    pa.float32(): torch.float32,
    pa.float64(): torch.float64,
    pa.bool_(): torch.bool,
}


@pytest.mark.parametrize("kind", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_numbers_keep_their_dtype(kind: pa.DataType, rows: int) -> None:
    values = np.array([0, 1, 1, 0, 1][:rows], kind.to_pandas_dtype())
    tensor = collate_numeric(pa.table({"a": pa.array(values, kind)}))["a"]
    assert tensor.dtype == DTYPES[kind]
    assert tensor.tolist() == values.tolist()


@pytest.mark.parametrize("rows", [0, 1, 4])
@pytest.mark.parametrize("kind", [pa.int32(), pa.bool_(), pa.float32()], ids=str)
def test_fixed_size_lists_keep_their_shape_without_rows(rows: int, kind: pa.DataType) -> None:
    lists = pa.array([[i % 2, 1, 0] for i in range(rows)], pa.list_(pa.int32(), 3)).cast(pa.list_(kind, 3))
    tensor = collate_numeric(pa.table({"a": lists}))["a"]
    assert tensor.shape == (rows, 3)
    assert tensor.dtype == DTYPES[kind]


def test_nested_lists_and_fixed_shape_tensors() -> None:
    nested = pa.array([[[1, 2], [3, 4], [5, 6]]] * 2, pa.list_(pa.list_(pa.int64(), 2), 3))
    shaped = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype=np.float32).reshape(2, 3, 2))
    batch = collate_numeric(pa.table({"n": nested, "t": shaped}))
    assert batch["n"].tolist() == [[[1, 2], [3, 4], [5, 6]]] * 2
    assert batch["t"].tolist() == np.arange(12).reshape(2, 3, 2).tolist()


def test_lists_of_one_length() -> None:
    for kind in (pa.list_(pa.int16()), pa.large_list(pa.int16())):
        table = pa.table({"a": pa.array([[1, 2], [3, 4], [5, 6]], kind)})
        assert collate_numeric(table)["a"].tolist() == [[1, 2], [3, 4], [5, 6]]
        assert collate_numeric(table.slice(1, 1))["a"].tolist() == [[3, 4]]
        assert collate_numeric(table.slice(0, 0))["a"].shape == (0, 0)


def test_slices_and_chunks() -> None:
    chunk = pa.table({"a": [1, 2, 3], "b": [True, False, True], "c": pa.array([[1, 2]] * 3, pa.list_(pa.int8(), 2))})
    table = pa.concat_tables([chunk.slice(1), chunk.slice(0, 2)]).slice(1)
    batch = collate_numeric(table)
    assert batch["a"].tolist() == [3, 1, 2]
    assert batch["b"].tolist() == [True, True, False]
    assert batch["c"].shape == (3, 2)


def test_tensors_are_writable_copies() -> None:
    table = pa.table({"a": [1, 2], "b": [True, False], "c": pa.array([[1.0], [2.0]], pa.list_(pa.float32(), 1))})
    for tensor in collate_numeric(table).values():
        tensor.zero_()
    assert table["a"].to_pylist() == [1, 2]
    assert table["c"].to_pylist() == [[1.0], [2.0]]


def test_row_ids_are_left_out() -> None:
    table = pa.table({"a": [1], ROW_GROUP_COLUMN: pa.array([0], pa.int32()), ROW_COLUMN: [0]})
    assert list(collate_numeric(table)) == ["a"]


def test_dictionaries_of_numbers() -> None:
    assert collate_numeric(pa.table({"a": pa.array([5, 7, 5]).dictionary_encode()}))["a"].tolist() == [5, 7, 5]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array(["x"]), "'bad' is string"),
        (pa.array([b"x"]), "'bad' is binary"),
        (pa.array([1, None]), "'bad' has 1 nulls"),
        (pa.array([1.0, None]), "'bad' has 1 nulls"),
        (pa.array([[1], None]), "'bad' has 1 nulls"),
        (pa.array([[1, None]]), "'bad' has 1 nulls"),
        (pa.array([[1, None]], pa.list_(pa.int8(), 2)), "'bad' has 1 nulls"),
        (pa.array([[1], [1, 2, 3]]), "'bad' has lists of 1 to 3 values"),
        (pa.array([["x"]]), "'bad' is string"),
        (pa.array([{"a": 1}]), "'bad' is struct"),
        (pa.array([1], pa.timestamp("us")), "'bad' is timestamp"),
        (pa.array([1], pa.date32()), "'bad' is date32"),
        (pa.array([1]).cast(pa.decimal128(21, 2)), "'bad' is decimal"),
        (pa.array([None], pa.null()), "'bad' has 1 nulls"),
    ],
    ids=lambda v: str(v.type) if isinstance(v, pa.Array) else "",
)
def test_errors_name_the_column_and_the_way_out(values: pa.Array, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        collate_numeric(pa.table({"good": pa.array([1] * len(values)), "bad": values}))
    assert words in str(caught.value)
    assert "collate" in caught.value.hint


def test_pad_ragged() -> None:
    table = pa.table({"a": pa.array([[1, 2, 3], [], [4]], pa.list_(pa.int32()))})
    values, mask = pad_ragged(table, "a", pad=-1)
    assert values.dtype == torch.int32
    assert values.tolist() == [[1, 2, 3], [-1, -1, -1], [4, -1, -1]]
    assert mask.tolist() == [[True] * 3, [False] * 3, [True, False, False]]
    values, mask = pad_ragged(table.slice(1), "a", pad=0, length=5)
    assert values.tolist() == [[0] * 5, [4, 0, 0, 0, 0]]
    assert pad_ragged(table.slice(0, 0), "a", pad=0, length=4)[0].shape == (0, 4)
    assert pad_ragged(table.slice(0, 0), "a", pad=0)[0].shape == (0, 0)


def test_pad_ragged_pads_lists_of_vectors() -> None:
    table = pa.table({"a": pa.array([[[1.0, 2.0]], []], pa.list_(pa.list_(pa.float32(), 2)))})
    values, mask = pad_ragged(table, "a", pad=0, length=2)
    assert values.tolist() == [[[1, 2], [0, 0]], [[0, 0], [0, 0]]]
    assert mask.tolist() == [[True, False], [False, False]]


def test_pad_ragged_errors() -> None:
    table = pa.table({"a": [[1, 2]], "b": [1], "c": [["x"]], "d": pa.array([None], pa.list_(pa.int8()))})
    with pytest.raises(ConfigError, match="row of 2 values, and 1 are allowed"):
        pad_ragged(table, "a", pad=0, length=1)
    with pytest.raises(ConfigError, match="'b' is int64, not a list"):
        pad_ragged(table, "b", pad=0)
    with pytest.raises(ConfigError, match="'c' is string"):
        pad_ragged(table, "c", pad=0)
    with pytest.raises(ConfigError, match="'d' has 1 nulls"):
        pad_ragged(table, "d", pad=0)
    with pytest.raises(UsageError, match="no column 'e'; there are a, b, c, d"):
        pad_ragged(table, "e", pad=0)


def test_encode_strings() -> None:
    table = pa.table({"s": ["b", "a", "b"], "d": pa.array(["a", "a", "b"]).dictionary_encode(), "n": ["a", None, "z"]})
    assert encode_strings(table, "s", ["a", "b"]).tolist() == [1, 0, 1]
    assert encode_strings(table, "d", ["a", "b"]).tolist() == [0, 0, 1]
    assert encode_strings(table, "n", ["a", "b"], unknown=2).tolist() == [0, 2, 2]
    empty = encode_strings(table.slice(0, 0), "s", ["a"])
    assert empty.dtype == torch.int64
    assert empty.shape == (0,)
    encode_strings(table, "s", ["a", "b"]).zero_()  # writable
    with pytest.raises(ConfigError, match=r"'n': 2 of 3 rows outside the vocabulary, first None"):
        encode_strings(table, "n", ["a", "b"])
    with pytest.raises(ConfigError, match="not a string"):
        encode_strings(pa.table({"s": [1]}), "s", ["a"])
