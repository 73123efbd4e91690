"""Which rows a step takes: arithmetic over positions, without reading or iterating anything.

A global batch is the next G positions, G a multiple of the number of lanes L, so that each lane gives G/L rows; only
a batch that touches an epoch's end may take unequally. Rank r of W workers owns the lanes j with j % W == r, for any
W ≤ L: who reads a row changes with W, which rows a step has does not.

Everywhere here a place in the stream is (epoch, position) with 0 ≤ position < rows: the end of an epoch is the
beginning of the next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from pliant.data.order import ORDER_VERSION, EpochOrder, Window, lane_rows_before, position_of
from pliant.errors import ConfigError, DamageError

Tail: TypeAlias = Literal["carry", "pad", "drop"]
STATE_VERSION = 1


@dataclass(frozen=True)
class Share:
    """Rows ``[start, stop)`` of a lane in one epoch; never empty."""

    epoch: int
    lane: int
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


def check_batch(*, rows: int, lanes: int, global_batch: int, tail: Tail) -> None:
    """Refuses what no step can be planned with.

    Raises:
        ConfigError: no rows, G no multiple of L, or ``drop`` with fewer rows than G.
    """
    if rows < 1:
        raise ConfigError("data.empty", "the dataset has no rows", hint="prepare it again or point data.path elsewhere")
    if global_batch < 1 or global_batch % lanes:
        raise ConfigError(
            "data.global-batch",
            f"train.global_batch {global_batch} is not a multiple of the {lanes} lanes",
            hint=f"use {max(1, round(global_batch / lanes)) * lanes}, or set data.lanes to a divisor of {global_batch}",
        )
    if tail == "drop" and rows < global_batch:
        raise ConfigError(
            "data.drop-all",
            f"data.tail=drop leaves nothing: {rows} rows are less than one global batch of {global_batch}",
            hint="use data.tail=carry or pad, or a smaller train.global_batch",
        )


def batch_shares(
    *, rows: int, lanes: int, global_batch: int, epoch: int, position: int, tail: Tail
) -> tuple[tuple[tuple[Share, ...], ...], int, int, int]:
    """The rows of the step that begins at a place.

    ``carry`` takes the next G positions and may span epochs; ``pad`` stops at the epoch's end, the missing rows
    weigh 0; ``drop`` goes to the next epoch where fewer than G are left.

    Args:
        rows: rows of the dataset, N.
        lanes: L.
        global_batch: G, a multiple of L.
        epoch: epoch of the place.
        position: samples already taken in that epoch, 0 ≤ position ≤ rows.
        tail: policy at an epoch's end.

    Returns:
        Shares of each lane in the order in which they are taken (outer length L), the next place's epoch and
        position, and the number of rows taken.

    Raises:
        ConfigError: see :func:`check_batch`.
    """
    check_batch(rows=rows, lanes=lanes, global_batch=global_batch, tail=tail)
    epoch, position = _normal(rows, epoch, position)
    if tail == "drop" and rows - position < global_batch:
        epoch, position = epoch + 1, 0
    shares: list[list[Share]] = [[] for _ in range(lanes)]
    missing = global_batch
    while missing:
        stop = min(rows, position + missing)
        for lane, taken in enumerate(shares):
            first = lane_rows_before(rows, lanes, lane, position)
            last = lane_rows_before(rows, lanes, lane, stop)
            if last > first:
                taken.append(Share(epoch, lane, first, last))
        missing -= stop - position
        epoch, position = _normal(rows, epoch, stop)
        if tail == "pad":
            break
    return tuple(map(tuple, shares)), epoch, position, global_batch - missing


def position_after(
    *, rows: int, global_batch: int, tail: Tail, steps: int, epoch: int = 0, position: int = 0
) -> tuple[int, int]:
    """The place after a number of steps of the same G, as repeated :func:`batch_shares` would reach it."""
    epoch, position = _normal(rows, epoch, position)
    if tail == "carry":
        epochs, position = divmod(position + steps * global_batch, rows)
        return epoch + epochs, position
    here = _steps_to_end(rows - position, global_batch, tail)
    if steps <= here:
        return _normal(rows, epoch, min(rows, position + steps * global_batch))
    # Steps after this epoch's; the last of them is counted within its own epoch, which it may or may not end.
    epochs, last = divmod(steps - here - 1, _steps_to_end(rows, global_batch, tail))
    return _normal(rows, epoch + 1 + epochs, min(rows, (last + 1) * global_batch))


def steps_in(rows: int, global_batch: int, tail: Tail, epochs: float) -> int:
    """Steps that a number of epochs takes, from the stream's beginning; at least 1.

    ``carry`` and ``pad`` round up, so that every row is taken; ``drop`` rounds down. A fraction of an epoch counts
    as that fraction of its rows, rounded to whole rows.
    """
    if tail == "carry":
        return max(1, -(-round(rows * epochs) // global_batch))
    whole = int(epochs)
    part = round(rows * (epochs - whole))
    steps = whole * _steps_to_end(rows, global_batch, tail) + _steps_to_end(part, global_batch, tail)
    return max(1, steps)


def _normal(rows: int, epoch: int, position: int) -> tuple[int, int]:
    if not 0 <= position <= rows:
        raise ValueError(f"position {position} is outside the epoch's {rows} rows")
    return (epoch + 1, 0) if position == rows else (epoch, position)


def _steps_to_end(rows: int, global_batch: int, tail: Tail) -> int:
    return rows // global_batch if tail == "drop" else -(-rows // global_batch)


def owned_lanes(rank: int, world_size: int, lanes: int) -> range:
    """The lanes that a rank reads, ascending.

    Raises:
        ConfigError: there are more workers than lanes, or no such rank.
    """
    if not 0 <= rank < world_size <= lanes:
        raise ConfigError(
            "data.lanes",
            f"rank {rank} of {world_size} workers over {lanes} lanes: every worker needs a lane of its own",
            hint=f"use at most {lanes} workers, or start a new run with data.lanes ≥ {world_size}",
        )
    return range(rank, lanes, world_size)


def default_lanes(global_batch: int, max_workers: int) -> int:
    """The smallest divisor of G that is at least ``max_workers``.

    Raises:
        ConfigError: ``max_workers`` is above G.
    """
    if max_workers > global_batch:
        raise ConfigError(
            "data.lanes",
            f"elastic.max_workers {max_workers} is above train.global_batch {global_batch}: a worker would get no row",
            hint=f"use elastic.max_workers ≤ {global_batch} or a larger train.global_batch",
        )
    return next(lanes for lanes in range(max_workers, global_batch + 1) if global_batch % lanes == 0)


def window_schedule(
    order_for: Callable[[int], EpochOrder],
    lanes_owned: Sequence[int],
    epoch: int,
    position: int,
    *,
    end_epoch: int | None = None,
) -> Iterator[Window]:
    """The windows that a rank reads, from a place on, in the order in which their first rows are needed.

    Args:
        order_for: the order of an epoch; called once per epoch, when its windows are come to.
        lanes_owned: the rank's lanes.
        epoch: epoch of the place.
        position: samples already taken in it.
        end_epoch: first epoch not to read; None goes on for ever.

    Raises:
        ConfigError: the dataset has no rows.
    """
    while end_epoch is None or epoch < end_epoch:
        order = order_for(epoch)
        if order.rows < 1:
            check_batch(rows=0, lanes=order.lanes, global_batch=order.lanes, tail="carry")
        if not any(order.lane_rows(lane) for lane in lanes_owned):
            return  # fewer rows than lanes: nothing will ever be needed of these, in no epoch
        yield from _epoch_windows(order, lanes_owned, position)
        epoch, position = epoch + 1, 0


def _epoch_windows(order: EpochOrder, lanes_owned: Sequence[int], position: int) -> Iterator[Window]:
    def needed(lane: int) -> Iterator[tuple[int, Window]]:
        from_row = lane_rows_before(order.rows, order.lanes, lane, position)
        for window in order.windows(lane, from_row):
            yield position_of(order.rows, order.lanes, lane, max(from_row, window.start)), window

    # Each position stands in one lane, so that no two windows compare equal.
    for _, window in heapq.merge(*map(needed, lanes_owned), key=lambda entry: entry[0]):
        yield window


@dataclass(frozen=True)
class DataState:
    """The whole state of a run's data stream: the same on all ranks, at every worker count.

    Attributes:
        version: of this record.
        samples: rows taken since the run began.
        epoch: epoch of the next row.
        position: samples taken in that epoch.
        global_batch: G of the step just taken.
        lanes: L.
        window: row groups per window.
        tail: policy at an epoch's end.
        seed: seed of the order.
        order_version: version of the order's definition.
        skipped_samples: rows that ``drop`` left out since the run began.
    """

    samples: int
    epoch: int
    position: int
    global_batch: int
    lanes: int
    window: int
    tail: Tail
    seed: int
    skipped_samples: int = 0
    order_version: int = ORDER_VERSION
    version: int = STATE_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> DataState:
        """Rebuilds a state.

        Raises:
            DamageError: a field is missing, unknown or of the wrong type, or a version is not this one's.
        """
        names = {f.name for f in fields(cls)}
        wrong = sorted(names ^ record.keys())
        wrong += [n for n in sorted(names & record.keys() - {"tail"}) if type(record[n]) is not int or record[n] < 0]
        wrong += [] if record.get("tail") in get_args(Tail) else ["tail"]
        if wrong:
            raise DamageError("data.state", f"data state has missing, unknown or invalid fields: {', '.join(wrong)}")
        state = cls(**record)
        if (state.version, state.order_version) != (STATE_VERSION, ORDER_VERSION):
            raise DamageError(
                "data.state-version",
                f"data state version {state.version} with order version {state.order_version}, "
                f"this Pliant has {STATE_VERSION} and {ORDER_VERSION}",
                hint="resume with the Pliant version that wrote it",
            )
        return state
