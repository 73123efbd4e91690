"""Reads one window of rows: retries what passes, names what is damaged, never returns anything in between."""

from __future__ import annotations

import difflib
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Event

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pliant.data.faults import Fault, classify
from pliant.data.filesystem import dataset_filesystem
from pliant.data.manifest import Manifest
from pliant.data.nulls import apply_policies, check_policies, policy_schema
from pliant.data.order import Int64Array, Window
from pliant.data.reorder import reordered
from pliant.data.settings import DataSettings, NullPolicy
from pliant.errors import ConfigError, DamageError, PliantError, StorageError

ROW_GROUP_COLUMN = "__row_group__"
"""int32: ordinal of the non-empty row group that a row was read from."""
ROW_COLUMN = "__row__"
"""int64: place of the row in that row group."""

_LONGEST_WAIT_S = 30.0
_CHUNK_BYTES = 8 * 2**20
_log = logging.getLogger("pliant.data")


@dataclass(frozen=True)
class ShardPiece:
    """Where the rows of a window's piece lie.

    Attributes:
        path: shard, relative to the dataset's root.
        size: bytes of the shard.
        index: row group in the shard, empty ones counted.
        rows: rows of that row group.
        row_group: ordinal among the dataset's non-empty row groups.
        start, stop: rows wanted, ``[start, stop)`` of the row group.
        partitions: values of the partition columns.
    """

    path: str
    size: int
    index: int
    rows: int
    row_group: int
    start: int
    stop: int
    partitions: Mapping[str, int | str | None]


@dataclass(frozen=True)
class ReadSpec:
    """How rows are read; small and picklable. Build it with :func:`read_spec`.

    Attributes:
        uri: root of the dataset.
        schema: columns to read as the manifest types them, partition columns included.
        nulls: null policy by column.
        row_ids: append ``ROW_GROUP_COLUMN`` and ``ROW_COLUMN``, so that what was really read can be recorded.
        retries: attempts after the first for a passing fault.
        backoff: seconds before the first of them; doubles, with jitter.
    """

    uri: str
    schema: pa.Schema
    nulls: Mapping[str, NullPolicy]
    row_ids: bool
    retries: int
    backoff: float

    @property
    def table_schema(self) -> pa.Schema:
        """Schema of what :func:`read_window` returns."""
        ids = [(ROW_GROUP_COLUMN, pa.int32()), (ROW_COLUMN, pa.int64())] if self.row_ids else []
        return pa.schema([*policy_schema(self.schema, self.nulls), *(pa.field(*f) for f in ids)])


def read_spec(
    manifest: Manifest, data: DataSettings, *, columns: Sequence[str] | None = None, row_ids: bool = False
) -> ReadSpec:
    """Checks what is to be read against a manifest.

    Args:
        manifest: the dataset.
        data: null policies and retries, and the columns where ``columns`` is None.
        columns: columns in the order wanted; None for those of ``data``, or all.
        row_ids: see :class:`ReadSpec`.

    Raises:
        ConfigError: a column or null policy is not possible.
    """
    names = manifest.schema.names
    wanted = columns or data.columns or names
    for name in wanted:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            raise ConfigError(
                "data.column",
                f"the dataset has no column {name!r}; it has {', '.join(names)}",
                hint=f"did you mean {close[0]!r}?" if close else "",
                location=manifest.root,
            )
    schema = pa.schema([manifest.schema.field(name) for name in wanted])
    nulls = {name: policy for name, policy in data.nulls.items() if name in wanted or name not in names}
    check_policies(schema, nulls)
    return ReadSpec(manifest.root, schema, nulls, row_ids, data.read.retries, data.read.backoff)


def locate(manifest: Manifest, window: Window) -> tuple[ShardPiece, ...]:
    """Where the pieces of a window lie."""
    found = []
    for piece in window.pieces:
        ordinal = int(manifest.group_file[piece.row_group])
        file, index = manifest.files[ordinal], int(manifest.group_index[piece.row_group])
        partitions = manifest.partition_values(ordinal) if manifest.partitions else {}
        place = (file.path, file.size, index, file.rows[index], piece.row_group, piece.start, piece.stop)
        found.append(ShardPiece(*place, partitions))
    return tuple(found)


def read_window(
    spec: ReadSpec, pieces: Sequence[ShardPiece], permutation: Int64Array | None, *, cancelled: Event | None = None
) -> pa.Table:
    """Reads the rows of a window and brings them into order.

    Args:
        spec: what to read.
        pieces: where; at least one.
        permutation: output order as rows of the concatenated pieces, shape (rows,); None keeps them.
        cancelled: once set, nothing is waited for and no read is tried again.

    Returns:
        Table of ``spec.table_schema``; its buffers belong to it alone.

    Raises:
        DamageError: a shard is missing, changed or holds wrong bytes; names path and row group.
        StorageError: storage did not answer within the retries; names path and row group.
        ConfigError: nulls in a column without a policy for them.
    """
    pieces_read = [_read_piece(spec, piece, cancelled or Event()) for piece in pieces]
    table = pa.concat_tables(pieces_read)
    return table.combine_chunks() if permutation is None else reordered(table, permutation)


def _read_piece(spec: ReadSpec, piece: ShardPiece, cancelled: Event) -> pa.Table:
    location = f"{spec.uri.rstrip('/')}/{piece.path}, row group {piece.index}"
    attempt = 0
    while True:
        try:
            return _decode(spec, piece)
        except PliantError as error:
            raise type(error)(error.code, error.message, hint=error.hint, location=location) from error.__cause__
        except Exception as error:
            fault = classify(error, piece.path)
            if fault == "other":
                raise
            if fault == "damage" and not _comes_whole(spec, piece):
                fault = "passing"  # storage's trouble, in words that nobody knew
            if fault != "passing" or attempt == spec.retries or cancelled.is_set():
                raise _explained(error, fault, location, spec.retries) from error
            delay = min(spec.backoff * 2**attempt, _LONGEST_WAIT_S) * random.uniform(0.5, 1.5)
            _log.warning("reading again in %.1f s after %s  (%s)", delay, error, location)
        attempt += 1
        cancelled.wait(delay)


def _explained(error: Exception, fault: Fault, location: str, retries: int) -> PliantError:
    match fault:
        case "passing":
            message = f"could not be read in {retries + 1} attempts; the last one: {error}"
            hint = "resume when storage answers again; data.read.retries and data.read.backoff set the patience"
            return StorageError("data.read", message, hint=hint, location=location)
        case "refused":
            return StorageError("data.read-refused", f"may not be read: {error}", location=location)
        case "missing":
            return DamageError("data.missing-shard", "is in the manifest and no longer there", location=location)
        case _:
            hint = "restore the shard from its source; pliant data verify checks the whole dataset"
            return DamageError("data.damaged-shard", f"cannot be decoded: {error}", hint=hint, location=location)


def _decode(spec: ReadSpec, piece: ShardPiece) -> pa.Table:
    filesystem, root = dataset_filesystem(spec.uri)
    stored = [name for name in spec.schema.names if name not in piece.partitions]
    with filesystem.open_input_file(f"{root}/{piece.path}") as source:
        if (size := source.size()) != piece.size:
            raise DamageError("data.changed-shard", f"has {size} bytes, the manifest says {piece.size}")
        # Pages without a checksum are passed unchecked; what Pliant writes has them.
        with pq.ParquetFile(source, pre_buffer=True, page_checksum_verification=True) as file:
            table = file.read_row_group(piece.index, columns=stored, use_threads=False)
    if missing := sorted(set(stored) - set(table.column_names)):
        raise DamageError("data.changed-shard", f"lacks the columns {', '.join(missing)}, which the manifest names")
    if table.num_rows != piece.rows:
        raise DamageError("data.changed-shard", f"has {table.num_rows} rows, the manifest says {piece.rows}")
    return _finished(spec, piece, table.slice(piece.start, piece.stop - piece.start))


def _comes_whole(spec: ReadSpec, piece: ShardPiece) -> bool:
    """Whether storage hands over every byte of a shard: only then can they be called wrong."""
    filesystem, root = dataset_filesystem(spec.uri)
    try:
        with filesystem.open_input_file(f"{root}/{piece.path}") as source:
            return sum(iter(lambda: len(source.read(_CHUNK_BYTES)), 0)) == piece.size
    except Exception:
        return False


def _finished(spec: ReadSpec, piece: ShardPiece, table: pa.Table) -> pa.Table:
    """The columns of the schema in its order, partitions and row ids with them, nulls dealt with."""
    rows = piece.stop - piece.start
    columns = [
        pa.repeat(pa.scalar(piece.partitions[f.name], f.type), rows)
        if f.name in piece.partitions
        else table.column(f.name).cast(f.type)
        for f in spec.schema
    ]
    table = apply_policies(pa.table(columns, schema=spec.schema), spec.nulls)
    if spec.row_ids:
        table = table.append_column(ROW_GROUP_COLUMN, pa.repeat(pa.scalar(piece.row_group, pa.int32()), rows))
        table = table.append_column(ROW_COLUMN, pa.array(np.arange(piece.start, piece.stop), pa.int64()))
    return table
