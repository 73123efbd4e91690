"""How much memory a rank's stream takes, computed before it is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pliant.data.manifest import Manifest
from pliant.data.order import Piece, Window
from pliant.data.reading import ReadSpec, locate, read_spec, read_window
from pliant.data.settings import DataSettings
from pliant.elastic.policy import lane_steps

_INDEX_BYTES = 32
"""Per row while a window is put in order: random words and indices."""
_FIRST_USE_BYTES = 32 * 2**20
"""What reading takes once: code of the Parquet and codec libraries, threads' stacks and arenas (measured, 25–30 MB)."""
_ALLOCATOR_SLACK = 1 / 8
"""Freed memory that Arrow's allocator keeps for a while, of what is in use (measured, up to a tenth)."""
_IN_HAND = 1
"""Windows between Ray Data's executor and the stream: the one that the thread between them holds ready."""


def memory_bound(
    *,
    manifest: Manifest,
    data: DataSettings,
    lanes: int,
    world_size: int,
    global_batch: int,
    columns: Sequence[str] | None = None,
    row_ids: bool = False,
) -> int:
    """Bytes that the busiest rank's stream does not exceed: lanes × window × (1 + look-ahead), reading itself, and
    what the process takes and keeps beside it.

    Columns of fixed width are known from the schema. Where others are read, one row group is, to learn how much
    its bytes grow when decoded; the bound is then as good as that row group is typical.

    Raises:
        ConfigError, DamageError, StorageError: as :func:`pliant.data.reading.read_window`.
    """
    spec = read_spec(manifest, data, columns=columns, row_ids=row_ids)
    group_bytes = decoded_group_bytes(manifest, spec)
    window_bytes = _largest_sum(group_bytes, data.window)
    index_bytes = _largest_sum(manifest.group_rows, data.window) * _INDEX_BYTES
    owned = lane_steps(lanes, world_size)
    # Where windows are smaller than a lane's share of a batch, several of them are needed at once.
    batch_bytes = owned * (global_batch // lanes) * float((group_bytes / manifest.group_rows).max())
    ahead = windows_ahead(owned, data.read.look_ahead)
    at_once = data.read.threads
    if data.reader == "ray":
        at_once = data.read.tasks
        ahead = RayBudget.within(ahead, at_once).ahead
    alive = (owned + ahead) * window_bytes
    in_use = alive + at_once * (window_bytes + index_bytes) + batch_bytes
    return int(in_use * (1 + _ALLOCATOR_SLACK) + _FIRST_USE_BYTES)


def windows_ahead(lanes_owned: int, look_ahead: int) -> int:
    """Windows that a rank may read ahead of the one that each of its lanes has in use.

    At least one a lane, even without look-ahead: a lane's next window is there before its last is let go of.
    """
    return lanes_owned * max(1, look_ahead)


@dataclass(frozen=True)
class RayBudget:
    """How far one execution of Ray Data reads ahead.

    Attributes:
        tasks: windows being read at once, at least 1.
        held: windows that its executor holds, those being read included; at least ``tasks``.
    """

    tasks: int
    held: int

    @classmethod
    def within(cls, ahead: int, tasks: int) -> RayBudget:
        """The budget that reads ``ahead`` windows ahead, or as few more as so many tasks at once need."""
        return cls(tasks, max(tasks, ahead - _IN_HAND))

    @property
    def ahead(self) -> int:
        """Most windows begun and not handed over."""
        return self.held + _IN_HAND

    def object_store_bytes(self, window_bytes: int) -> int:
        """The limit to give to Ray Data: it starts a task while what its results may take is left of it."""
        return self.held * window_bytes


def largest_window_bytes(manifest: Manifest, spec: ReadSpec, window: int) -> int:
    """Decoded bytes of the largest possible window of ``window`` row groups."""
    return int(_largest_sum(decoded_group_bytes(manifest, spec), window))


def decoded_group_bytes(manifest: Manifest, spec: ReadSpec) -> npt.NDArray[np.float64]:
    """Bytes of each non-empty row group once decoded, shape (groups,); estimated where widths vary."""
    widths = [_width(field.type) for field in spec.table_schema]
    if None not in widths:
        return (manifest.group_rows * sum(w for w in widths if w is not None)).astype(np.float64)
    largest = int(manifest.group_bytes.argmax())
    rows = int(manifest.group_rows[largest])
    whole = Window(epoch=0, lane=0, index=0, start=0, stop=rows, pieces=(Piece(largest, 0, rows),))
    table = read_window(spec, locate(manifest, whole), None)
    growth = table.nbytes / int(manifest.group_bytes[largest])
    return (manifest.group_bytes * growth).astype(np.float64)


def _width(kind: pa.DataType) -> float | None:
    """Bytes of a value with its validity bit; None where values differ."""
    if pa.types.is_fixed_size_list(kind):
        inner = _width(kind.value_type)
        return None if inner is None else inner * kind.list_size + 1 / 8
    if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind):
        return (kind.bit_width + 1) / 8
    return None


def _largest_sum(sizes: npt.NDArray[np.float64] | npt.NDArray[np.int64], count: int) -> float:
    return float(np.sort(sizes)[-count:].sum())
