"""Rewrites a dataset into small checksummed row groups, its rows shuffled over the whole dataset.

Two passes: every row goes to a random bucket, a temporary file; then each bucket is shuffled in memory and written.
Which bucket and which place are independent and uniform, so that the whole is a uniform shuffle.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import fs

from pliant.data.filesystem import dataset_filesystem
from pliant.data.listing import find_splits
from pliant.data.manifest import Manifest, load_or_build_manifest
from pliant.data.prepare import DatasetTarget, finish
from pliant.data.rowgroups import measured_row_bytes, read_tables
from pliant.data.shards import SHUFFLED_KEY, row_groups
from pliant.errors import UsageError

GROUP_BYTES = 2**20
"""Decoded bytes of a row group, unless its rows are given."""
FILE_GROUPS = 64
"""Row groups of a shard."""
_MAX_BUCKETS = 512
_BATCH_ROWS = 8192
"""Rows of a shuffled bucket that are handed over at once."""


def repack(
    source: str,
    out: str,
    *,
    seed: int = 0,
    row_group_rows: int | None = None,
    memory: int = 256 * 2**20,
    scratch: str | None = None,
    overwrite: bool = False,
) -> dict[str, Manifest]:
    """Rewrites a dataset, each split on its own; every row is there exactly once, partition columns as real ones.

    Memory holds one row group of the source and one bucket; the scratch directory, each split once.

    Args:
        source: dataset of any writer, codec and layout, with or without splits.
        out: where to write, elsewhere than the source.
        seed: of the shuffle. The result is a function of source, seed and memory.
        row_group_rows: rows of a row group; default: as many as decode to about 1 MiB.
        memory: bytes that a bucket may take while it is shuffled.
        scratch: directory for temporary files; default: the system's.
        overwrite: as ``write_dataset``.

    Returns:
        The manifest of each split, ``""`` for a dataset without splits.

    Raises:
        UsageError: ``out`` lies in the source or the source in ``out``, or another dataset lies there.
        DamageError, ConfigError, StorageError: as ``load_or_build_manifest``, and when bytes are damaged.
    """
    _refuse_overlap(source, out)
    targets: dict[str, DatasetTarget] = {}
    for name, uri in find_splits(source).items():
        manifest = load_or_build_manifest(uri)
        target = DatasetTarget(f"{out.rstrip('/')}/{name}" if name else out, overwrite=overwrite)
        row_bytes = measured_row_bytes(manifest)
        rows = row_group_rows or max(1, int(GROUP_BYTES / row_bytes))
        # A bucket is held as it was read and as it is written.
        buckets = min(_MAX_BUCKETS, max(1, -(-int(manifest.rows * row_bytes * 2) // memory)))
        with tempfile.TemporaryDirectory(dir=scratch, prefix="pliant-repack-") as directory:
            files = [Path(directory) / f"{i}.arrow" for i in range(buckets)]
            _divide(manifest, files, seed, max(1, memory // 4))
            schema = manifest.schema.with_metadata({SHUFFLED_KEY: str(seed)})
            groups = row_groups(_shuffled(files, seed), schema, rows, rows * FILE_GROUPS)
            target.write(groups, schema)
        targets[name] = target
    return finish(targets, out, overwrite=overwrite)


def _divide(manifest: Manifest, files: list[Path], seed: int, piece_bytes: int) -> None:
    """First pass: appends every row to one of the files, at random."""
    words = np.random.Philox(key=_key(seed, "buckets"))
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with ExitStack() as stack:
        writers = [stack.enter_context(pa.ipc.new_stream(file, manifest.schema, options=options)) for file in files]
        for piece in _pieces(read_tables(manifest, range(len(manifest.group_rows))), piece_bytes):
            bucket = words.random_raw(piece.num_rows) % len(files)
            sorted_piece = piece.take(pa.array(np.argsort(bucket, kind="stable"))).combine_chunks()
            ends = np.cumsum(np.bincount(bucket.astype(np.int64), minlength=len(files)))
            for writer, start, end in zip(writers, np.r_[0, ends], ends, strict=False):
                if end > start:
                    writer.write_table(sorted_piece.slice(start, end - start))


def _pieces(tables: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """The same rows in tables of about ``most`` bytes: small ones together, large ones in parts."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size >= most:
            yield from _parts(pa.concat_tables(waiting), -(-size // most))
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _parts(table: pa.Table, count: int) -> Iterator[pa.Table]:
    rows = -(-table.num_rows // count)
    return (table.slice(start, rows) for start in range(0, table.num_rows, rows))


def _shuffled(files: list[Path], seed: int) -> Iterator[pa.RecordBatch]:
    """Second pass: the rows of each file in random order, file after file."""
    for number, file in enumerate(files):
        with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
            table = reader.read_all()
        file.unlink()
        order = np.argsort(
            np.random.Philox(key=_key(seed, f"bucket {number}")).random_raw(table.num_rows), kind="stable"
        )
        for start in range(0, table.num_rows, _BATCH_ROWS):
            yield from table.take(pa.array(order[start : start + _BATCH_ROWS])).to_batches()


def _key(seed: int, purpose: str) -> NDArray[np.uint64]:
    digest = hashlib.blake2b(f"pliant repack 1\0{seed}\0{purpose}".encode(), digest_size=16).digest()
    return np.frombuffer(digest, "<u8")


def _refuse_overlap(source: str, out: str) -> None:
    read, written = _place(source), _place(out)
    if read.startswith(written) or written.startswith(read):
        raise UsageError(
            "data.repack-in-place",
            "a dataset cannot be repacked into itself",
            hint="write to another directory, then use that one",
            location=out,
        )


def _place(uri: str) -> str:
    filesystem, root = dataset_filesystem(uri)
    local = isinstance(filesystem, fs.LocalFileSystem)
    return f"{type(filesystem).__name__}:{os.path.realpath(root) if local else root}/"
