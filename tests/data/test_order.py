"""The order of rows, by property and against a pinned example."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.data.order import (
    ORDER_VERSION,
    EpochOrder,
    Window,
    lane_rows_before,
    lane_start,
    position_of,
    window_permutation,
)

sizes = st.lists(st.integers(1, 40), min_size=1, max_size=30)
lanes = st.integers(1, 9)
windows = st.integers(1, 6)


def make_order(rows_per_group, lanes, window, *, seed=7, epoch=3, shuffle=True) -> EpochOrder:
    return EpochOrder(rows_per_group, seed=seed, epoch=epoch, lanes=lanes, window=window, shuffle=shuffle)


def lane_ids(order: EpochOrder, lane: int, from_row: int = 0) -> list[tuple[int, int]]:
    """(row group, row in it) of every row of a lane in order, from the first row of the window that holds from_row."""
    ids = []
    for window in order.windows(lane, from_row):
        rows = [(p.row_group, r) for p in window.pieces for r in range(p.start, p.stop)]
        assert len(rows) == window.rows
        ids += [rows[i] for i in order.permutation(window)]
    return ids


@given(sizes, lanes, windows, st.booleans())
def test_each_row_stands_once_in_an_epoch(rows_per_group, lanes, window, shuffle):
    order = make_order(rows_per_group, lanes, window, shuffle=shuffle)
    ids = [i for lane in range(lanes) for i in lane_ids(order, lane)]
    assert sorted(ids) == [(g, r) for g, n in enumerate(rows_per_group) for r in range(n)]
    assert order.rows == sum(rows_per_group)
    if not shuffle:
        assert ids == sorted(ids)


@given(sizes, lanes, windows)
def test_lanes_are_cut_evenly_and_windows_follow_without_gaps(rows_per_group, lanes, window):
    order = make_order(rows_per_group, lanes, window)
    for lane in range(lanes):
        rows = order.lane_rows(lane)
        assert rows == lane_start(order.rows, lanes, lane + 1) - lane_start(order.rows, lanes, lane)
        assert rows - order.rows // lanes in (0, 1)
        edge = 0
        for index, found in enumerate(order.windows(lane)):
            assert (found.index, found.start, found.epoch, found.lane) == (index, edge, 3, lane)
            assert 1 <= len(found.pieces) <= window
            assert all(0 <= p.start < p.stop <= rows_per_group[p.row_group] for p in found.pieces)
            edge = found.stop
        assert edge == rows


@given(sizes, lanes, windows, st.data())
def test_seeking_finds_the_window_that_iterating_finds(rows_per_group, lanes, window, data):
    order = make_order(rows_per_group, lanes, window)
    lane = data.draw(st.sampled_from([j for j in range(lanes) if order.lane_rows(j)]))
    row = data.draw(st.integers(0, order.lane_rows(lane) - 1))
    found = order.window_at(lane, row)
    assert found.start <= row < found.stop
    assert found in list(order.windows(lane))
    assert next(order.windows(lane, row)) == found


@given(st.integers(1, 300), lanes)
def test_positions_go_round_the_lanes_and_end_with_the_longer_ones(rows, lanes):
    seen = []
    for lane in range(lanes):
        n = lane_start(rows, lanes, lane + 1) - lane_start(rows, lanes, lane)
        positions = [position_of(rows, lanes, lane, r) for r in range(n)]
        assert positions == sorted(positions)
        assert [lane_rows_before(rows, lanes, lane, p) for p in positions] == list(range(n))
        assert lane_rows_before(rows, lanes, lane, rows) == n
        assert all(p % lanes == lane and p // lanes == r for r, p in enumerate(positions) if r < rows // lanes)
        seen += positions
    assert sorted(seen) == list(range(rows))


def test_seed_and_epoch_change_the_order_and_nothing_else_does():
    sizes = [50] * 20
    base = lane_ids(make_order(sizes, 2, 4), 0)
    assert base == lane_ids(make_order(sizes, 2, 4), 0)
    assert base != lane_ids(make_order(sizes, 2, 4, seed=8), 0)
    assert base != lane_ids(make_order(sizes, 2, 4, epoch=4), 0)


def test_order_spreads_rows_over_windows_and_rows_within_them():
    order = make_order([100] * 64, 4, 4)
    groups = [p.row_group for w in order.windows(0) for p in w.pieces]
    assert np.abs(np.diff(groups)).mean() > 10  # row groups that follow each other on disk do not in the stream
    permutation = order.permutation(order.window_at(0, 0))
    assert np.abs(np.diff(permutation)).mean() > 100  # of 400: a third of the window on average


def test_permutation_is_that_of_the_window_alone():
    window = Window(epoch=1, lane=2, index=3, start=0, stop=64, pieces=())
    order = make_order([64], 1, 1, seed=5)
    assert sorted(window_permutation(5, window)) == list(range(64))
    assert list(order.permutation(window)) == list(window_permutation(5, window))
    assert list(make_order([64], 1, 1, shuffle=False).permutation(window)) == list(range(64))


def test_golden_order_pins_the_version():
    """A change here breaks every checkpoint in the world: raise ORDER_VERSION and pin the new order."""
    order = EpochOrder([5, 3, 8, 1, 9, 4], seed=2**62 + 11, epoch=2, lanes=3, window=2)
    assert ORDER_VERSION == 1
    assert [p.row_group for lane in range(3) for w in order.windows(lane) for p in w.pieces] == [2, 0, 0, 5, 1, 4, 3]
    text = repr([lane_ids(order, lane) for lane in range(3)])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "b1f413abc0a70dba"


def test_any_place_among_200_000_row_groups_is_found_by_binary_search(monkeypatch):
    order = make_order(np.random.default_rng(0).integers(1, 2000, 200_000), 8, 4)
    searches = []
    search = np.searchsorted
    monkeypatch.setattr(np, "searchsorted", lambda *a, **k: searches.append(1) or search(*a, **k))
    for lane, share in ((0, 0.0), (3, 0.5), (7, 0.999)):
        row = int(order.lane_rows(lane) * share)
        window = order.window_at(lane, row)
        assert window.start <= row < window.stop
    assert len(searches) == 6  # two a seek, whatever the position


@pytest.mark.parametrize(
    ("rows_per_group", "lanes", "window"), [([3, 0, 2], 2, 1), ([3], 0, 1), ([3], 1, 0), ([[3]], 1, 1)]
)
def test_impossible_orders_are_refused(rows_per_group, lanes, window):
    with pytest.raises(ValueError, match="row groups"):
        make_order(rows_per_group, lanes, window)


def test_rows_outside_a_lane_are_refused():
    order = make_order([4, 4], 3, 1)
    with pytest.raises(IndexError, match="lane 0 has 2 rows, no row 2"):
        order.window_at(0, 2)
    assert list(order.windows(0, 2)) == []
    assert make_order([1], 3, 1).lane_rows(0) == 0
