"""Reads Parquet footers, and says in words what is wrong with a file that has none."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_TAIL_BYTES = 64 * 1024
"""Read in one request; footers are seldom larger."""


class BadShard(Exception):
    """A file that cannot be read as Parquet; the message says why, without the path."""


@dataclass(frozen=True)
class Footer:
    """What a shard's footer says.

    Attributes:
        digest: blake2b (hex) of the footer's bytes.
        rows: rows of each row group.
        bytes: uncompressed bytes of each row group as encoded.
        schema: Arrow schema as stored.
    """

    digest: str
    rows: tuple[int, ...]
    bytes: tuple[int, ...]
    schema: pa.Schema


def read_footer(filesystem: fs.FileSystem, path: str, size: int) -> Footer:
    """Reads one footer of a file of ``size`` bytes.

    Raises:
        BadShard: the bytes are no whole Parquet file.
        OSError: storage did not answer.
    """
    if size == 0:
        raise BadShard("is empty (0 bytes)")
    with filesystem.open_input_file(path) as file:
        tail = file.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
        ending = tail[-4:]
        if size < 12 or ending != _MAGIC:
            raise BadShard(_why_no_footer(ending, file.read_at(4, 0)))
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length > size - 4:
            raise BadShard(f"is cut: its footer has {length} bytes, the file {size}")
        if length > len(tail):
            tail = file.read_at(length, size - length)
    return _parse(tail[-length:], size)


def _parse(footer: bytes, size: int) -> Footer:
    try:
        metadata = pq.read_metadata(pa.BufferReader(footer))
        schema = metadata.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as error:
        raise BadShard(f"has a footer that cannot be decoded: {error}") from error
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if groups and _end(groups[-1]) > size - len(footer):
        raise BadShard("is cut: its footer points behind the end of its data")
    return Footer(
        digest=hashlib.blake2b(footer, digest_size=16).hexdigest(),
        rows=tuple(group.num_rows for group in groups),
        bytes=tuple(group.total_byte_size for group in groups),
        schema=schema,
    )


def _end(group: pq.RowGroupMetaData) -> int:
    """Offset behind the last byte of a row group's data."""
    columns = [group.column(i) for i in range(group.num_columns)]
    starts = [c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset for c in columns]
    return max((s + c.total_compressed_size for s, c in zip(starts, columns, strict=True)), default=0)


def _why_no_footer(ending: bytes, beginning: bytes) -> str:
    if ending == _ENCRYPTED:
        return "is encrypted, which is not supported"
    if beginning == _MAGIC:
        return "is truncated: it begins as Parquet and has no footer"
    return "is not Parquet (no PAR1 at its ends)"
