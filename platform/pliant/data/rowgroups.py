"""Reads whole row groups as they are stored, with every checksum looked at: for verifying and rewriting datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pliant.data.filesystem import dataset_filesystem
from pliant.data.manifest import Manifest
from pliant.data.patience import patiently
from pliant.errors import DamageError

_HEADER_BYTES = 64
"""More than the part of a page header that is looked at ever takes."""


@contextmanager
def open_shard(filesystem: fs.FileSystem, path: str, location: str) -> Iterator[pq.ParquetFile]:
    """Opens a shard so that page checksums are verified where there are any.

    Raises:
        DamageError: it has no readable footer.
        StorageError: storage does not answer.
    """

    def opened() -> pq.ParquetFile:
        return pq.ParquetFile(path, filesystem=filesystem, page_checksum_verification=True, pre_buffer=True)

    try:
        shard = patiently(opened, path, location)
    except (pa.ArrowException, OSError) as error:
        raise DamageError("data.damaged-shard", f"cannot be opened: {error}", location=location) from error
    with shard:
        yield shard


def read_group(shard: pq.ParquetFile, index: int, path: str, location: str) -> pa.Table:
    """Reads one row group of an open shard.

    Raises:
        DamageError: its bytes are wrong; names row group and column.
        StorageError: storage does not answer.
    """
    try:
        return patiently(lambda: shard.read_row_group(index, use_threads=False), path, location)
    except (pa.ArrowException, OSError) as error:
        column = _damaged_column(shard, index)
        message = f"row group {index}{column} cannot be decoded: {error}"
        raise DamageError("data.damaged-shard", message, location=location) from error


def read_tables(manifest: Manifest, ordinals: Iterable[int]) -> Iterator[pa.Table]:
    """Reads non-empty row groups, given by their ordinals, with the manifest's columns, partitions included.

    Raises:
        DamageError, StorageError: as ``open_shard`` and ``read_group``.
    """
    filesystem, root = dataset_filesystem(manifest.root)
    for number, groups in groupby(ordinals, key=lambda ordinal: int(manifest.group_file[ordinal])):
        file, partition = manifest.files[number], manifest.partition_values(number)
        path, location = f"{root}/{file.path}", f"{manifest.root.rstrip('/')}/{file.path}"
        with open_shard(filesystem, path, location) as shard:
            for ordinal in groups:
                stored = read_group(shard, int(manifest.group_index[ordinal]), path, location)
                columns = [
                    pa.repeat(pa.scalar(partition[field.name], field.type), stored.num_rows)
                    if field.name in partition
                    else stored[field.name].cast(field.type)
                    for field in manifest.schema
                ]
                yield pa.table(columns, schema=manifest.schema)


def measured_row_bytes(manifest: Manifest) -> float:
    """Decoded bytes of a row, measured on the row group with the most bytes a row."""
    fullest = int((manifest.group_bytes / manifest.group_rows).argmax())
    (table,) = read_tables(manifest, [fullest])
    return max(1.0, table.nbytes / table.num_rows)


def has_page_checksums(filesystem: fs.FileSystem, path: str, metadata: pq.FileMetaData, location: str) -> bool:
    """Whether a shard's pages carry checksums, judged by the first data page; True when there is no page.

    Raises:
        StorageError: storage does not answer.
    """
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    group = next((g for g in groups if g.num_rows and g.num_columns), None)
    if group is None:
        return True
    offset = group.column(0).data_page_offset

    def header() -> bytes:
        with filesystem.open_input_file(path) as file:
            return bytes(file.read_at(_HEADER_BYTES, offset))

    return _header_has_checksum(patiently(header, path, location))


def _header_has_checksum(header: bytes) -> bool:
    """Reads a Thrift compact PageHeader: three i32 fields (type, sizes), and a fourth, ``crc``, where there is one."""
    i32_after_previous = 0x15
    header += bytes(_HEADER_BYTES)  # so that wrong bytes, too, come to an end
    at = 0
    for _ in range(3):
        if header[at : at + 1] != bytes([i32_after_previous]):
            return False
        at += 1
        while header[at] & 0x80:  # a varint goes on
            at += 1
        at += 1
    return header[at] == i32_after_previous


def _damaged_column(shard: pq.ParquetFile, index: int) -> str:
    """``, column 'x',`` for the first column that cannot be read on its own."""
    for name in shard.schema_arrow.names:
        try:
            shard.read_row_group(index, columns=[name], use_threads=False)
        except (pa.ArrowException, OSError):
            return f", column {name!r},"
    return ""
