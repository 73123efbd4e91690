"""Arrow tables to CPU tensors: the default collate, and helpers for pipelines that write their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliant.data.reading import ROW_COLUMN, ROW_GROUP_COLUMN
from pliant.errors import ConfigError, UsageError

_OWN_COLLATE = "leave it out of data.columns, or let the pipeline's own collate make a tensor of it"


def collate_numeric(table: pa.Table) -> dict[str, Tensor]:
    """Makes a tensor of every column except the row ids.

    Numbers and booleans become tensors of shape (rows,) and of their own dtype; fixed-size lists and fixed-shape
    tensors (rows, size …); lists that happen to be equally long (rows, length). All are writable copies.

    Zero rows work. A list without a fixed size then has length 0, because nothing says how long its rows
    would be: declare it as a fixed-size list where a batch can be empty.

    Raises:
        ConfigError: a column holds nulls, strings or another type that is no number, or lists of several lengths.
    """
    names = [name for name in table.column_names if name not in (ROW_GROUP_COLUMN, ROW_COLUMN)]
    return {name: _tensor(_dense(_array(table, name), name)) for name in names}


def pad_ragged(table: pa.Table, column: str, *, pad: float, length: int | None = None) -> tuple[Tensor, Tensor]:
    """Pads a list column at the right.

    Args:
        table: rows.
        column: a column of lists of numbers or booleans.
        pad: value behind a row's end.
        length: columns of the result; default: the longest row's. Give it where zero rows can come.

    Returns:
        Values of shape (rows, length) in the column's dtype, and a bool mask, true where a value is the row's own.

    Raises:
        ConfigError: the column holds nulls or no lists of numbers, or a row is longer than ``length``.
        UsageError: there is no such column.
    """
    lists = _array(table, column)
    if not _is_list(lists.type):
        raise ConfigError("data.not-a-list", f"column {column!r} is {lists.type}, not a list")
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    longest = int(lengths.max(initial=0))
    if length is not None and longest > length:
        raise ConfigError(
            "data.too-long",
            f"column {column!r} has a row of {longest} values, and {length} are allowed",
            hint="cut the rows first (pyarrow.compute.list_slice), or allow more",
        )
    values = _dense(lists.flatten(), column)
    mask = np.arange(longest if length is None else length) < lengths[:, None]
    padded = np.full(mask.shape + values.shape[1:], pad, values.dtype)
    padded[mask] = values
    return torch.from_numpy(padded), torch.from_numpy(mask)


def encode_strings(table: pa.Table, column: str, vocabulary: Sequence[str], *, unknown: int | None = None) -> Tensor:
    """Places of strings in a vocabulary, int64 of shape (rows,).

    Args:
        table: rows.
        column: a string column.
        vocabulary: all values that can occur, in the order that gives their numbers.
        unknown: number of nulls and of values that are not in the vocabulary; default: they are refused.

    Raises:
        ConfigError: a value is not in the vocabulary and ``unknown`` is not given, or the column is no string.
        UsageError: there is no such column.
    """
    strings = _column(table, column)
    if pa.types.is_dictionary(strings.type):
        strings = strings.cast(strings.type.value_type)
    if not (pa.types.is_string(strings.type) or pa.types.is_large_string(strings.type)):
        raise ConfigError("data.not-a-string", f"column {column!r} is {strings.type}, not a string")
    places = pc.index_in(strings, value_set=pa.array(vocabulary, strings.type))
    if unknown is None and places.null_count:
        value = strings.filter(places.is_null())[0].as_py()
        raise ConfigError(
            "data.unknown-value",
            f"column {column!r}: {places.null_count} of {table.num_rows} rows outside the vocabulary, first {value!r}",
            hint="add the value to the vocabulary, or give unknown=",
        )
    filled = places.cast(pa.int64()).fill_null(-1 if unknown is None else unknown)
    return torch.from_numpy(np.array(filled.to_numpy(), np.int64))


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise UsageError("data.no-column", f"there is no column {name!r}; there are {', '.join(table.column_names)}")
    return table[name]


def _array(table: pa.Table, name: str) -> pa.Array:
    """The column as one array without dictionary and without nulls at the top."""
    chunked = _column(table, name)
    if pa.types.is_dictionary(chunked.type):
        chunked = chunked.cast(chunked.type.value_type)
    array = chunked.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # several chunks whose values do not fit one array
        array = pa.concat_arrays(array.chunks)
    _refuse_nulls(array, name, nested=pa.types.is_nested(array.type))
    return array


def _dense(array: pa.Array, name: str) -> NDArray[Any]:
    """Values as one numpy array with a leading dimension of ``len(array)``."""
    kind = array.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return _dense(array.storage, name).reshape(len(array), *kind.shape)
    if _is_list(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else _common_length(array, name)
        values = array.flatten()
        _refuse_nulls(values, name, nested=True)
        inner = _dense(values, name)
        return inner.reshape(len(array), size, *inner.shape[1:])
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ConfigError(
            "data.not-numeric",
            f"column {name!r} is {kind}, and collate_numeric makes tensors of numbers and booleans only",
            hint=f"{_OWN_COLLATE} (pliant.data.collate.encode_strings numbers strings)",
        )
    return array.to_numpy(zero_copy_only=False)


def _tensor(values: NDArray[Any]) -> Tensor:
    """A copy, because Arrow's memory is shared and read-only."""
    return torch.from_numpy(np.array(values))


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _common_length(lists: pa.Array, name: str) -> int:
    bounds = pc.min_max(pc.list_value_length(lists)).as_py()
    if bounds["min"] != bounds["max"]:
        raise ConfigError(
            "data.ragged",
            f"column {name!r} has lists of {bounds['min']} to {bounds['max']} values in one batch",
            hint=f"{_OWN_COLLATE} (pliant.data.collate.pad_ragged pads lists)",
        )
    return bounds["max"] or 0


def _refuse_nulls(array: pa.Array, name: str, *, nested: bool = False) -> None:
    if array.null_count:
        declare = "" if nested else f"declare data.nulls.{name} (mask, or a value to fill in), or "
        raise ConfigError(
            "data.nulls",
            f"column {name!r} has {array.null_count} nulls among {len(array)} values",
            hint=declare + _OWN_COLLATE,
        )
