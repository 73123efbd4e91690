"""A rank's stream of rows: whatever reads the windows, the same rows in the same order."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from functools import partial
from typing import Literal, Protocol

import pyarrow as pa

from pliant.data.local import LocalReader
from pliant.data.manifest import Manifest
from pliant.data.memory import RayBudget, largest_window_bytes, windows_ahead
from pliant.data.order import EpochOrder, Window, window_permutation
from pliant.data.plan import Share, owned_lanes, window_schedule
from pliant.data.reading import read_spec
from pliant.data.settings import DataSettings


class WindowSource(Protocol):
    """Hands over windows in the order in which a rank needs them, and learns when they are no longer held."""

    def __next__(self) -> tuple[Window, pa.Table]:
        """The next window of the schedule and its rows in order."""

    def release(self) -> None:
        """One of the windows handed over is no longer held."""

    def close(self) -> None:
        """Stops; threads and tasks have ended when it returns."""


class LaneStream:
    """The rows of the lanes that a rank owns. ``take`` is for one thread at a time.

    Args:
        source: windows of these lanes, ordered by the position at which they are first needed.
        schema: of the tables.
    """

    def __init__(self, source: WindowSource, schema: pa.Schema) -> None:
        self._source = source
        self._held: defaultdict[int, deque[tuple[Window, pa.Table]]] = defaultdict(deque)
        self.schema = schema

    def take(self, share: Share) -> pa.Table:
        """Rows of a share in lane order. Waits for them to be read.

        Shares of a lane must be taken in stream order; rows may be skipped. The table may refer to the memory of
        whole windows: let go of it before taking the lane's next share, or the memory bound does not hold.

        Raises:
            PliantError: a window could not be read.
            ValueError: the share lies before the window in use, or behind the stream's end.
            RuntimeError: the stream is closed.
        """
        parts, row = [], share.start
        while row < share.stop:
            window, table = self._window_with(share, row)
            stop = min(share.stop, window.stop)
            parts.append(table.slice(row - window.start, stop - row))
            row = stop
        return pa.concat_tables(parts) if len(parts) > 1 else parts[0]

    def empty(self) -> pa.Table:
        """A table of no rows, for a rank that has none in a batch."""
        return self.schema.empty_table()

    def close(self) -> None:
        """Ends reading and lets go of all rows. May be called twice, and while another thread waits in ``take``."""
        self._source.close()
        self._held.clear()

    def __enter__(self) -> LaneStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _window_with(self, share: Share, row: int) -> tuple[Window, pa.Table]:
        held = self._held[share.lane]
        while True:
            while held and (held[0][0].epoch, held[0][0].stop) <= (share.epoch, row):
                held.popleft()
                self._source.release()
            if held:
                window = held[0][0]
                if (window.epoch, window.start) > (share.epoch, row):
                    raise ValueError(f"{share} lies before row {window.start} of epoch {window.epoch}, taken already")
                return held[0]
            try:
                window, table = next(self._source)
            except StopIteration:
                raise ValueError(f"{share} lies behind the end of the stream") from None
            self._held[window.lane].append((window, table))


def open_stream(
    *,
    manifest: Manifest,
    data: DataSettings,
    seed: int,
    lanes: int,
    rank: int,
    world_size: int,
    epoch: int,
    position: int,
    reader: Literal["local", "ray"],
    shuffle: bool = True,
    row_ids: bool = False,
    columns: Sequence[str] | None = None,
    limit_epochs: int | None = None,
) -> LaneStream:
    """Opens a rank's stream at a place; seeking is arithmetic, and the first batch needs one window a lane.

    Args:
        manifest: the dataset.
        data: window, columns, null policies, look-ahead and retries. Its ``lanes`` is not looked at.
        seed: seed of the order.
        lanes: L.
        rank: 0 ≤ rank < world_size.
        world_size: workers, at most L.
        epoch: epoch of the place.
        position: samples already taken in that epoch, by all ranks together.
        reader: ``local`` threads or ``ray`` Data; they give the same bits.
        shuffle: False gives the rows in manifest order, cut into lanes.
        row_ids: append the two columns that say where each row was read.
        columns: columns to read, in this order; None for those of ``data``, or all.
        limit_epochs: epochs after which the stream ends, 1 for evaluation; None for no end.

    Raises:
        ConfigError: columns, null policies or workers do not fit the dataset.
    """
    spec = read_spec(manifest, data, columns=columns, row_ids=row_ids)
    owned = owned_lanes(rank, world_size, lanes)
    order_for = partial(_order, manifest, seed, lanes, data.window, shuffle)
    end_epoch = None if limit_epochs is None else epoch + limit_epochs
    schedule = window_schedule(order_for, owned, epoch, position, end_epoch=end_epoch)
    ahead = windows_ahead(len(owned), data.read.look_ahead)
    source: WindowSource
    if reader == "ray":
        from pliant.data.stream import RayReader  # the only place that needs Ray

        source = RayReader(
            manifest,
            spec,
            schedule,
            seed=seed if shuffle else None,
            budget=RayBudget.within(ahead, data.read.tasks),
            cpus=data.read.task_cpus,
            window_bytes=largest_window_bytes(manifest, spec, data.window),
            first=len(owned),
        )
    else:
        source = LocalReader(
            manifest,
            spec,
            schedule,
            partial(window_permutation, seed) if shuffle else lambda window: None,
            threads=data.read.threads,
            first=len(owned),
            most=len(owned) + ahead,
        )
    return LaneStream(source, spec.table_schema)


def _order(manifest: Manifest, seed: int, lanes: int, window: int, shuffle: bool, epoch: int) -> EpochOrder:
    return EpochOrder(manifest.group_rows, seed=seed, epoch=epoch, lanes=lanes, window=window, shuffle=shuffle)
