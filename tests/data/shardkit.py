"""Small Parquet datasets for tests, and ways to harm them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def table(rows: int, start: int = 0) -> pa.Table:
    """Columns id (int64, start …), x (double), name (string)."""
    ids = range(start, start + rows)
    return pa.table({"id": pa.array(ids, pa.int64()), "x": [i / 2 for i in ids], "name": [f"row {i}" for i in ids]})


def write_foreign(root: Path, files: int = 4, rows: int = 100, group: int = 25, **options: Any) -> Path:
    """Shards as another tool writes them (no manifest, no checksums unless asked for): ``data-0.parquet`` …"""
    root.mkdir(parents=True, exist_ok=True)
    for i in range(files):
        pq.write_table(table(rows, i * rows), root / f"data-{i}.parquet", row_group_size=group, **options)
    return root


def flip_data_byte(path: Path, row_group: int, column: int = 0) -> None:
    """Flips one bit in the middle of a column chunk's bytes."""
    chunk = pq.read_metadata(path).row_group(row_group).column(column)
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    data = bytearray(path.read_bytes())
    # The end of the chunk is page data; its beginning may be a page header.
    data[start + chunk.total_compressed_size - 3] ^= 1
    path.write_bytes(data)
