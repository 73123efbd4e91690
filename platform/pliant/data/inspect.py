"""Figures of a dataset, and what they mean for training on it: memory, shuffle quality, what to mend."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pliant.data.filesystem import dataset_filesystem
from pliant.data.listing import find_splits
from pliant.data.manifest import Manifest, ShardFile, load_or_build_manifest, recorded_manifest
from pliant.data.memory import memory_bound
from pliant.data.plan import default_lanes
from pliant.data.rowgroups import has_page_checksums, measured_row_bytes, open_shard
from pliant.data.settings import DataSettings, ReadSettings
from pliant.data.shards import SHUFFLED_KEY
from pliant.errors import ConfigError
from pliant.units import format_bytes

GOOD_RATIO = 1.25
"""Batches up to this uneven are taken for well shuffled."""
_LARGE_GROUP = 32 * 2**20
_SMALL_GROUP = 32 * 2**10
_MANY_GROUPS = 1000


@dataclass(frozen=True)
class Spread:
    """Smallest, median and largest of some figures."""

    smallest: int
    median: int
    largest: int

    @classmethod
    def of(cls, figures: NDArray[np.int64]) -> Spread:
        """Of a non-empty array."""
        return cls(int(figures.min()), int(np.median(figures)), int(figures.max()))


@dataclass(frozen=True)
class Column:
    """One column; ``nulls`` is None where the footers do not count them (lists, structs, missing statistics)."""

    name: str
    kind: str
    number: bool
    nulls: int | None
    partition: bool


@dataclass(frozen=True)
class Stream:
    """What a run with certain settings makes of the dataset.

    Attributes:
        lanes, window, look_ahead, global_batch, workers: the settings.
        pool: row groups that a batch draws from, lanes × window or all there are.
        variance_ratio: how much more the make-up of batches varies than in a perfect shuffle, if the rows lie
            sorted: 1 + (G − 1) / pool; 1 where all rows are in the pool or were shuffled when they were written.
        memory_bound: bytes that a rank's stream does not exceed; None where they cannot be known.
    """

    lanes: int
    window: int
    look_ahead: int
    global_batch: int
    workers: int
    pool: int
    variance_ratio: float
    memory_bound: int | None


@dataclass(frozen=True)
class Inspection:
    """Figures of one split. Sizes are bytes; ``encoded`` are those of the stored, uncompressed pages.

    Attributes:
        codecs: column chunks by codec.
        unchecked: files without page checksums.
        recorded: a manifest of Pliant's stands beside the shards.
        shuffled: ``repack`` wrote it.
        row_bytes: decoded, measured on the fullest row group.
        advice: what to mend, one sentence each.
    """

    uri: str
    digest: str
    files: int
    file_bytes: int
    rows: int
    group_rows: Spread
    group_encoded: Spread
    groups: int
    row_bytes: float
    codecs: dict[str, int]
    unchecked: int
    recorded: bool
    shuffled: bool
    columns: tuple[Column, ...]
    stream: Stream
    advice: tuple[str, ...]

    def to_text(self) -> str:
        """Several lines for a terminal."""
        s, g = self.stream, self.group_rows
        codecs = ", ".join(f"{name} ({count} chunks)" for name, count in self.codecs.items())
        checked = f"{self.files - self.unchecked} of {self.files} files"
        memory = "unknown" if s.memory_bound is None else format_bytes(s.memory_bound)
        lines = [
            f"{self.uri}  {self.digest}",
            f"  files       {self.files}, {format_bytes(self.file_bytes)}; "
            f"{'Pliant manifest' if self.recorded else 'no manifest'}; page checksums in {checked}",
            f"  rows        {self.rows}, {format_bytes(self.row_bytes)} each when decoded",
            f"  row groups  {self.groups}; rows {g.smallest} / {g.median} / {g.largest} (min / median / max); encoded "
            + " / ".join(map(format_bytes, vars(self.group_encoded).values())),
            f"  codecs      {codecs}",
            f"  with        {s.lanes} lanes × window {s.window} × (1 + {s.look_ahead} ahead), batch {s.global_batch}, "
            f"{s.workers} worker{'s' * (s.workers > 1)}",
            f"  memory      at most {memory} per worker",
            f"  shuffle     {s.pool} of {self.groups} row groups in the pool; "
            + ("shuffled when written" if self.shuffled else f"variance ratio ≤ {s.variance_ratio:.2f} on sorted rows"),
            "  columns",
            *(f"    {c.name:<24} {c.kind}{_nulls(c)}{' (partition)' * c.partition}" for c in self.columns),
            *(f"  advice      {sentence}" for sentence in self.advice),
        ]
        return "\n".join(lines)


def inspect_dataset(
    uri: str,
    *,
    lanes: int | None = None,
    window: int = 4,
    look_ahead: int = 1,
    global_batch: int = 256,
    workers: int = 1,
) -> dict[str, Inspection]:
    """Looks at all splits of a dataset (``""`` is one without splits): all footers, and one row group each.

    Args:
        uri: dataset.
        lanes: L; default: as a run with this batch and these workers would choose.
        window: row groups of a window.
        look_ahead: windows read ahead.
        global_batch: rows of a step, G.
        workers: W.

    Raises:
        ConfigError, DamageError, StorageError: as ``load_or_build_manifest``.
    """
    chosen = lanes or default_lanes(global_batch, workers)
    return {
        name: _inspect_split(split, chosen, window, look_ahead, global_batch, workers)
        for name, split in find_splits(uri).items()
    }


def variance_ratio(global_batch: int, pool: int, groups: int) -> float:
    """1 + (G − 1) / pool; 1 when the pool is the whole dataset. Pure."""
    return 1.0 if pool >= groups else 1 + (global_batch - 1) / pool


def _inspect_split(uri: str, lanes: int, window: int, look_ahead: int, global_batch: int, workers: int) -> Inspection:
    manifest = load_or_build_manifest(uri)
    with ThreadPoolExecutor(16) as pool:
        shards = list(pool.map(_look, repeat(manifest), manifest.files))
    shuffled = all(shard.shuffled for shard in shards)
    columns = _columns(manifest, shards)
    groups = len(manifest.group_rows)
    in_pool = min(groups, lanes * window)
    ratio = 1.0 if shuffled else variance_ratio(global_batch, in_pool, groups)
    memory = _memory(manifest, columns, lanes, window, look_ahead, global_batch, workers)
    stream = Stream(lanes, window, look_ahead, global_batch, workers, in_pool, ratio, memory)
    row_bytes = measured_row_bytes(manifest)
    unchecked = sum(not shard.checked for shard in shards)
    return Inspection(
        uri=uri,
        digest=manifest.digest,
        files=len(manifest.files),
        file_bytes=sum(f.size for f in manifest.files),
        rows=manifest.rows,
        group_rows=Spread.of(manifest.group_rows),
        group_encoded=Spread.of(manifest.group_bytes),
        groups=groups,
        row_bytes=row_bytes,
        codecs=dict(sum((shard.codecs for shard in shards), Counter()).most_common()),
        unchecked=unchecked,
        recorded=recorded_manifest(uri) is not None,
        shuffled=shuffled,
        columns=columns,
        stream=stream,
        advice=tuple(_advice(stream, groups, Spread.of(manifest.group_rows), row_bytes, unchecked, columns)),
    )


@dataclass(frozen=True)
class _Shard:
    codecs: Counter[str]
    nulls: dict[str, int | None]
    checked: bool
    shuffled: bool


def _look(manifest: Manifest, file: ShardFile) -> _Shard:
    filesystem, root = dataset_filesystem(manifest.root)
    path, location = f"{root}/{file.path}", f"{manifest.root.rstrip('/')}/{file.path}"
    codecs: Counter[str] = Counter()
    nulls: dict[str, int | None] = {}
    with open_shard(filesystem, path, location) as shard:
        metadata = shard.metadata
        for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
            for chunk in (group.column(i) for i in range(metadata.num_columns)):
                codecs[chunk.compression.lower().replace("uncompressed", "none")] += 1
                counted = chunk.is_stats_set and chunk.statistics.has_null_count
                name, before = chunk.path_in_schema, nulls.get(chunk.path_in_schema, 0)
                nulls[name] = before + chunk.statistics.null_count if counted and before is not None else None
        checked = has_page_checksums(filesystem, path, metadata, location)
        return _Shard(codecs, nulls, checked, SHUFFLED_KEY in (metadata.metadata or {}))


def _columns(manifest: Manifest, shards: list[_Shard]) -> tuple[Column, ...]:
    columns = []
    for field in manifest.schema:
        counts = [shard.nulls.get(field.name) for shard in shards]
        known = [count for count in counts if count is not None]
        nulls = sum(known) if len(known) == len(counts) else None
        columns.append(
            Column(field.name, str(field.type), _is_number(field.type), nulls, field.name in manifest.partitions)
        )
    return tuple(columns)


def _memory(
    manifest: Manifest, columns: tuple[Column, ...], lanes: int, window: int, look_ahead: int, batch: int, workers: int
) -> int | None:
    """The bound of a run that masks the nulls of numbers; None where nulls stand that no policy mends."""
    masked = {c.name: "mask" for c in columns if c.number and c.nulls != 0}
    data = DataSettings(path=manifest.root, window=window, nulls=masked, read=ReadSettings(look_ahead=look_ahead))
    try:
        return memory_bound(manifest=manifest, data=data, lanes=lanes, world_size=workers, global_batch=batch)
    except ConfigError:
        return None


def _advice(
    stream: Stream, groups: int, rows: Spread, row_bytes: float, unchecked: int, columns: tuple[Column, ...]
) -> list[str]:
    """What to mend. Pure."""
    words = []
    if stream.variance_ratio > GOOD_RATIO:
        enough = min(groups, int(np.ceil((stream.global_batch - 1) / (GOOD_RATIO - 1))))
        words.append(
            f"if the rows lie sorted, batches vary {stream.variance_ratio:.1f} times as much as they should: "
            f"repack, or choose data.lanes × data.window ≥ {enough}"
        )
    if groups < stream.lanes:
        words.append(
            f"there are {groups} row groups for {stream.lanes} lanes, so that lanes read the same ones: repack"
        )
    if rows.median * row_bytes > _LARGE_GROUP:
        words.append(f"row groups decode to {format_bytes(rows.median * row_bytes)}, which memory pays for: repack")
    if rows.median * row_bytes < _SMALL_GROUP and groups > _MANY_GROUPS:
        words.append(f"row groups decode to {format_bytes(rows.median * row_bytes)}, which takes many reads: repack")
    if unchecked:
        words.append(f"{unchecked} files have no page checksums, so that changed bytes would go unseen: repack")
    words += [f"column {c.name} has {c.nulls} nulls: set data.nulls.{c.name}" for c in columns if c.number and c.nulls]
    return words


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _nulls(column: Column) -> str:
    return f", {column.nulls} nulls" if column.nulls else ""
