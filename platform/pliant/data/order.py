"""The order of rows: a pure function of (row group sizes, seed, epoch, lanes, window).

    row groups ── permuted ──▶ one sequence of N rows ── cut at ⌊jN/L⌋ ──▶ L lanes ── every P row groups ──▶ windows

*Row group*: ordinal among the non-empty row groups of the manifest. *Lane*: one of L virtual shards of the epoch.
*Window*: up to P consecutive row groups of a lane, clipped at the lane's ends, whose rows are shuffled together.
*Position*: place of a row in the epoch. Positions go round the lanes: p is row ``p // L`` of lane ``p % L``; the
``N % L`` rows left over follow, one from each longer lane, in lane order.

Nothing here is stored or iterated: any place is found by a binary search. Numpy keeps the bit stream of Philox
forever but not what its generators make of it, so permutations are stable argsorts of raw words; whatever changes
the order must raise ``ORDER_VERSION``, which stands in every checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ORDER_VERSION = 1

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """Rows ``[start, stop)`` of one row group; ``row_group`` counts the non-empty ones."""

    row_group: int
    start: int
    stop: int


@dataclass(frozen=True)
class Window:
    """Rows ``[start, stop)`` of a lane: ``pieces`` in this order, then shuffled. ``index`` counts per lane."""

    epoch: int
    lane: int
    index: int
    start: int
    stop: int
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        """Number of rows, at least 1."""
        return self.stop - self.start


def lane_start(rows: int, lanes: int, lane: int) -> int:
    """First row of a lane in the epoch's sequence of ``rows`` rows; ``lane == lanes`` gives the end of the last."""
    return lane * rows // lanes


def lane_rows_before(rows: int, lanes: int, lane: int, position: int) -> int:
    """How many of the positions ``[0, position)`` fall into a lane: the lane row that comes next."""
    even = rows // lanes
    if position <= even * lanes:
        return (position - lane + lanes - 1) // lanes
    left_over = _longer_lanes_before(rows, lanes, lane)
    is_longer = _longer_lanes_before(rows, lanes, lane + 1) > left_over
    return even + (is_longer and left_over < position - even * lanes)


def position_of(rows: int, lanes: int, lane: int, lane_row: int) -> int:
    """The position at which a row of a lane stands. Inverse of counting with :func:`lane_rows_before`."""
    even = rows // lanes
    if lane_row < even:
        return lane_row * lanes + lane
    return even * lanes + _longer_lanes_before(rows, lanes, lane)


def _longer_lanes_before(rows: int, lanes: int, lane: int) -> int:
    return lane_start(rows, lanes, lane) - lane * (rows // lanes)


def _permutation(n: int, *key: object) -> Int64Array:
    """A permutation of ``range(n)``, shape (n,), that depends on the key alone. Ties keep their order."""
    message = ":".join(map(str, ("pliant.order", ORDER_VERSION, *key))).encode()
    words = np.frombuffer(hashlib.blake2b(message, digest_size=16).digest(), dtype="<u8").astype(np.uint64)
    return np.argsort(np.random.Philox(key=words).random_raw(n), kind="stable").astype(np.int64, copy=False)


def window_permutation(seed: int, window: Window) -> Int64Array:
    """Maps output order to row of the window's concatenated pieces, int64, shape (window.rows,)."""
    return _permutation(window.rows, seed, window.epoch, "rows", window.lane, window.index)


class EpochOrder:
    """The order of one epoch.

    Args:
        rows_per_group: rows of every non-empty row group in manifest order, shape (groups,), all positive.
        seed: seed of the run, ≥ 0.
        epoch: which epoch, ≥ 0.
        lanes: number of lanes L, ≥ 1. Lanes are empty where there are fewer rows than lanes.
        window: row groups per window P, ≥ 1.
        shuffle: False keeps row groups and rows in manifest order.

    Raises:
        ValueError: a row group is empty, or lanes or window is below 1.
    """

    def __init__(
        self,
        rows_per_group: npt.ArrayLike,
        *,
        seed: int,
        epoch: int,
        lanes: int,
        window: int,
        shuffle: bool = True,
    ) -> None:
        sizes = np.asarray(rows_per_group, dtype=np.int64)
        if sizes.ndim != 1 or (sizes < 1).any() or lanes < 1 or window < 1:
            raise ValueError(
                f"row groups {sizes.shape} (smallest {sizes.min(initial=1)}), lanes {lanes}, window {window}: "
                "row groups must be a list of positive sizes, lanes and window at least 1"
            )
        self.seed = seed
        self.epoch = epoch
        self.lanes = lanes
        self.window = window
        self.shuffle = shuffle
        groups = len(sizes)
        self._groups = _permutation(groups, seed, epoch, "groups") if shuffle else np.arange(groups, dtype=np.int64)
        self._ends = np.cumsum(sizes[self._groups])  # (groups,) end of each permuted row group in the sequence
        self.rows = int(self._ends[-1]) if groups else 0

    def lane_rows(self, lane: int) -> int:
        """Rows of a lane in this epoch: ⌊N/L⌋ or one more."""
        return lane_start(self.rows, self.lanes, lane + 1) - lane_start(self.rows, self.lanes, lane)

    def window_at(self, lane: int, lane_row: int) -> Window:
        """The window of a lane that holds a row, by binary search.

        Raises:
            IndexError: the lane has no such row.
        """
        if not 0 <= lane_row < self.lane_rows(lane):
            raise IndexError(f"lane {lane} has {self.lane_rows(lane)} rows, no row {lane_row}")
        first_group = self._group_at(lane_start(self.rows, self.lanes, lane))
        group = self._group_at(lane_start(self.rows, self.lanes, lane) + lane_row)
        return self._window(lane, first_group, (group - first_group) // self.window)

    def windows(self, lane: int, from_row: int = 0) -> Iterator[Window]:
        """The windows of a lane in order, beginning with the one that holds ``from_row``; none at or past the end."""
        if from_row >= self.lane_rows(lane):
            return
        window = self.window_at(lane, from_row)
        first_group = self._group_at(lane_start(self.rows, self.lanes, lane))
        yield window
        while window.stop < self.lane_rows(lane):
            window = self._window(lane, first_group, window.index + 1)
            yield window

    def permutation(self, window: Window) -> Int64Array:
        """As :func:`window_permutation`; the identity without ``shuffle``."""
        return window_permutation(self.seed, window) if self.shuffle else np.arange(window.rows, dtype=np.int64)

    def _group_at(self, row: int) -> int:
        return int(np.searchsorted(self._ends, row, side="right"))

    def _window(self, lane: int, first_group: int, index: int) -> Window:
        lane_from = lane_start(self.rows, self.lanes, lane)
        lane_to = lane_start(self.rows, self.lanes, lane + 1)
        group = first_group + index * self.window
        ends = self._ends[group : group + self.window].tolist()
        begin = int(self._ends[group - 1]) if group else 0
        pieces = []
        start = max(begin, lane_from)
        stop = start
        for ordinal, end in zip(self._groups[group : group + self.window].tolist(), ends, strict=True):
            if begin >= lane_to:
                break
            stop = min(end, lane_to)
            pieces.append(Piece(ordinal, max(begin, lane_from) - begin, stop - begin))
            begin = end
        return Window(self.epoch, lane, index, start - lane_from, stop - lane_from, tuple(pieces))
