"""Brings the rows of a table into another order, at the speed of memory where the columns allow it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pliant.data.order import Int64Array


def reordered(table: pa.Table, permutation: Int64Array) -> pa.Table:
    """Takes the rows in the order of a permutation; the result has one chunk a column and buffers of its own.

    Arrow's own ``take`` first joins the chunks, and goes through lists row by row. Rows that all have the same
    number of bytes are instead copied once, from each chunk to where they belong.

    Args:
        table: any columns, any chunks, at least one row.
        permutation: output order as rows of the table, int64, shape (rows,).
    """
    places = np.empty_like(permutation)  # where each row of the table goes
    places[permutation] = np.arange(len(permutation))
    indices = pa.array(permutation)
    columns = []
    for column in table.columns:
        views = [_as_rows(chunk) for chunk in column.chunks]
        shapes = {None if view is None else view.shape[1] for view in views}
        if len(shapes) == 1 and None not in shapes:
            columns.append(_scattered(column.type, [view for view in views if view is not None], places))
        else:
            columns.append(column.take(indices).combine_chunks())
    return pa.table(columns, schema=table.schema)


def _as_rows(array: pa.Array) -> npt.NDArray[np.generic] | None:
    """The values as they lie in memory, shape (rows, values per row); None if rows have nulls or differ in length."""
    kind = array.type
    if array.null_count:
        return None
    if _is_plain(kind):
        return array.to_numpy()[:, None]
    if not (pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)) or not _is_plain(kind.value_type):
        return None
    if pa.types.is_list(kind):
        lengths = np.diff(array.offsets.to_numpy())
        if lengths[0] == 0 or (lengths != lengths[0]).any():
            return None
    values = array.flatten()
    return None if values.null_count or not len(values) else values.to_numpy().reshape(len(array), -1)


def _is_plain(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _scattered(kind: pa.DataType, views: list[npt.NDArray[np.generic]], places: Int64Array) -> pa.Array:
    width, dtype = views[0].shape[1], views[0].dtype
    buffer = pa.allocate_buffer(len(places) * width * dtype.itemsize)
    rows = np.frombuffer(buffer, dtype).reshape(len(places), width)
    start = 0
    for view in views:
        rows[places[start : start + len(view)]] = view
        start += len(view)
    if _is_plain(kind):
        return pa.Array.from_buffers(kind, len(places), [None, buffer])
    values = pa.Array.from_buffers(kind.value_type, rows.size, [None, buffer])
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(values, type=kind)
    offsets = pa.array(np.arange(len(places) + 1) * width, pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=kind)
