"""Datasets with awkward row groups, and streams read out in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pliant.data.lanes import LaneStream, open_stream
from pliant.data.manifest import Manifest, build_manifest
from pliant.data.order import EpochOrder
from pliant.data.plan import batch_shares, owned_lanes
from pliant.data.settings import DataSettings, ReadSettings

RAGGED = [[1, 7], [400, 0, 33], [5]]
"""Rows of each row group of each shard: tiny, large and empty ones."""
THIRTEEN = [[4, 4], [5]]
SINGLE = [[50]]
CASES = [(RAGGED, 8, 16, 60), (THIRTEEN, 4, 4, 14), (SINGLE, 4, 12, 9)]
"""Row groups, lanes, global batch, steps: over more than one epoch each."""


def write_groups(root: Path, shards: Sequence[Sequence[int]], *, tokens: int = 4, **options: Any) -> Manifest:
    """Shards with row groups of exactly these sizes; columns id (int64, counts up) and tokens (lists of int32)."""
    root.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("id", pa.int64()), ("tokens", pa.list_(pa.int32(), tokens))])
    edges = [0]
    for groups in shards:
        for rows in groups:
            edges.append(edges[-1] + rows)
    spans = pairwise(edges)
    for number, groups in enumerate(shards):
        path = root / f"part-{number:05d}.parquet"
        with pq.ParquetWriter(path, schema, write_page_checksum=True, **options) as writer:
            for _ in groups:
                ids = list(range(*next(spans)))
                writer.write_table(pa.table([ids, [[i + k for k in range(tokens)] for i in ids]], schema=schema))
    return build_manifest(str(root))


def settings(manifest: Manifest, *, window: int = 2, **read: Any) -> DataSettings:
    """Data settings for a dataset, with quick retries."""
    return DataSettings(
        path=manifest.root, reader="local", window=window, read=ReadSettings(**{"backoff": 0.001} | read)
    )


def open_at(manifest: Manifest, data: DataSettings, *, lanes: int, position: int = 0, **options: Any) -> LaneStream:
    """A stream with defaults for what a test does not care about."""
    defaults: dict[str, Any] = {"seed": 3, "rank": 0, "world_size": 1, "epoch": 0, "reader": "local"}
    return open_stream(manifest=manifest, data=data, lanes=lanes, position=position, **defaults | options)


def batches(
    streams: Sequence[LaneStream], *, rows: int, lanes: int, global_batch: int, position: int = 0, tail: str = "carry"
) -> Iterator[list[pa.Table]]:
    """Global batches for ever: the tables of each lane, taken by the ranks that own them, in lane order."""
    epoch = 0
    owner = {j: rank for rank in range(len(streams)) for j in owned_lanes(rank, len(streams), lanes)}
    while True:
        shares, epoch, position, _ = batch_shares(
            rows=rows, lanes=lanes, global_batch=global_batch, epoch=epoch, position=position, tail=tail
        )
        yield [streams[owner[share.lane]].take(share) for mine in shares for share in mine]


def stream_ids(
    manifest: Manifest,
    data: DataSettings,
    *,
    world_size: int,
    lanes: int,
    global_batch: int,
    steps: int,
    position: int = 0,
    **options: Any,
) -> list[list[int]]:
    """Ids of successive global batches, in lane order within each."""
    streams = [
        open_at(manifest, data, lanes=lanes, position=position, rank=rank, world_size=world_size, **options)
        for rank in range(world_size)
    ]
    try:
        found = batches(streams, rows=manifest.rows, lanes=lanes, global_batch=global_batch, position=position)
        return [[i for t in next(found) for i in t.column("id").to_pylist()] for _ in range(steps)]
    finally:
        for stream in streams:
            stream.close()


def expected_ids(
    manifest: Manifest, *, window: int, lanes: int, global_batch: int, steps: int, position: int = 0, seed: int = 3
) -> list[list[int]]:
    """The same from the order alone, for datasets whose ids count up through the non-empty row groups."""
    starts = [0]
    for rows in manifest.group_rows.tolist():
        starts.append(starts[-1] + rows)
    lane_ids: dict[tuple[int, int], list[int]] = {}

    def ids_of(epoch: int, lane: int) -> list[int]:
        if (epoch, lane) not in lane_ids:
            order = EpochOrder(manifest.group_rows, seed=seed, epoch=epoch, lanes=lanes, window=window)
            ids: list[int] = []
            for w in order.windows(lane):
                rows = [starts[p.row_group] + r for p in w.pieces for r in range(p.start, p.stop)]
                ids += [rows[i] for i in order.permutation(w)]
            lane_ids[epoch, lane] = ids
        return lane_ids[epoch, lane]

    found, epoch = [], 0
    for _ in range(steps):
        shares, epoch, position, _ = batch_shares(
            rows=manifest.rows, lanes=lanes, global_batch=global_batch, epoch=epoch, position=position, tail="carry"
        )
        found.append([i for mine in shares for s in mine for i in ids_of(s.epoch, s.lane)[s.start : s.stop]])
    return found
