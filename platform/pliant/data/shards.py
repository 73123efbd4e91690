"""The shards that Pliant writes: row groups of one size, files of some row groups, a checksum on every page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pliant.data.schemas import canonical_columns, drift
from pliant.errors import StorageError, UserCodeError
from pliant.storage.local import make_folders, sync_path

SHUFFLED_KEY = b"pliant.shuffled"
"""Stands, with the seed, in the metadata of shards whose rows were shuffled over the whole dataset."""
Sink = Any
"""A binary file open for writing: pyarrow's or Python's."""


def shard_name(number: int) -> str:
    """3 → ``part-00003.parquet``."""
    return f"part-{number:05d}.parquet"


def row_groups(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, group_rows: int, file_rows: int
) -> Iterator[tuple[int, pa.Table]]:
    """Cuts a stream into row groups of ``group_rows`` rows, the last one of a file and of the stream excepted.

    Yields:
        The number of the file, which holds ``file_rows`` rows, and the rows.

    Raises:
        UserCodeError: a size is below 1, or a batch does not have the schema's columns and types.
    """
    if min(group_rows, file_rows) < 1:
        raise UserCodeError("data.split-sizes", f"row groups of {group_rows} rows in files of {file_rows} cannot be")
    waiting: list[pa.Table] = []
    file, file_room, group_room = 0, file_rows, min(group_rows, file_rows)
    for batch in batches:
        rest = _conforming(batch, schema)
        while rest.num_rows:
            part = rest.slice(0, group_room)
            rest = rest.slice(part.num_rows)
            waiting.append(part)
            file_room, group_room = file_room - part.num_rows, group_room - part.num_rows
            if group_room == 0:
                yield file, pa.concat_tables(waiting)
                if file_room == 0:
                    file, file_room = file + 1, file_rows
                waiting, group_room = [], min(group_rows, file_room)
    if waiting:
        yield file, pa.concat_tables(waiting)


def write_shards(
    groups: Iterable[tuple[int, pa.Table]], schema: pa.Schema, open_sink: Callable[[str], Sink], location: str
) -> int:
    """Writes row groups, each given with its shard's number, into the sinks that ``open_sink`` gives by name.

    Returns:
        The number of shards.

    Raises:
        StorageError: a sink fails. What the stream of row groups raises passes through.
    """
    written = 0
    sink: Sink = None
    writer: Any = None
    try:
        for shard, table in groups:
            with storage_errors(f"{location}/{shard_name(shard)}"):
                if shard == written:
                    _close(writer, sink)
                    sink = open_sink(shard_name(shard))
                    writer, written = _writer(sink, schema), shard + 1
                writer.write_table(table, row_group_size=table.num_rows)
        with storage_errors(location):
            _close(writer, sink)
    except BaseException:
        _abandon(writer, sink)
        raise
    return written


class Comparison:
    """A sink that compares what is written with an existing file, and raises at the first difference.

    Args:
        existing: the file to compare with.
        on_difference: makes the exception.
    """

    def __init__(self, existing: pa.NativeFile, on_difference: Callable[[], Exception]) -> None:
        self._existing = existing
        self._on_difference = on_difference
        self.closed = False

    def write(self, data: Any) -> int:
        """Compares with as many bytes of the existing file; returns their number."""
        written = bytes(data)
        if self._existing.read(len(written)) != written:
            raise self._on_difference()
        return len(written)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Ends the comparison: the existing file must end here, too."""
        if self.closed:
            return
        self.closed = True
        goes_on = bool(self._existing.read(1))
        self._existing.close()
        if goes_on:
            raise self._on_difference()


@contextmanager
def storage_errors(location: str) -> Iterator[None]:
    """Turns an OSError into a StorageError that names the place."""
    try:
        yield
    except OSError as error:
        raise StorageError("data.storage", f"storage failed: {error}", location=location) from error


def make_directory(filesystem: fs.FileSystem, path: str) -> None:
    """Makes a directory where the storage has any; object stores have none."""
    if isinstance(filesystem, fs.LocalFileSystem):
        make_folders(path)
    elif not isinstance(filesystem, (fs.S3FileSystem, fs.GcsFileSystem)):
        filesystem.create_dir(path, recursive=True)


def remove_empty_directory(filesystem: fs.FileSystem, path: str) -> None:
    """Removes a directory that holds nothing; in object stores pyarrow leaves a marker where the last object was."""
    exists = filesystem.get_file_info(path).type == fs.FileType.Directory
    if exists and not filesystem.get_file_info(fs.FileSelector(path)):
        filesystem.delete_dir(path)
        make_durable(filesystem, path.rpartition("/")[0])


def make_durable(filesystem: fs.FileSystem, path: str) -> None:
    """Returns when a file, or the names in a directory, survive a crash of the machine; object stores do no less."""
    if isinstance(filesystem, fs.LocalFileSystem):
        sync_path(path)


def _writer(sink: Sink, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True)


def _close(writer: Any, sink: Sink) -> None:
    if writer is not None:
        writer.close()
        sink.close()


def _abandon(writer: Any, sink: Sink) -> None:
    """Lets go of a shard after an error, which is the one to report."""
    with suppress(Exception):
        _close(writer, sink)


def _conforming(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    try:
        words = drift(canonical_columns(batch.schema), canonical_columns(schema))
        if not words:
            return pa.Table.from_batches([batch]).select(schema.names).cast(schema)
    except (ValueError, pa.ArrowException) as error:
        words = str(error)
    raise UserCodeError("data.split-schema", f"a record batch of the split does not fit its schema: it {words}")
