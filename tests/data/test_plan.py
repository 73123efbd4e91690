"""Batches, shares and schedules, by property."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.data.order import EpochOrder, lane_rows_before, position_of
from pliant.data.plan import (
    DataState,
    Share,
    batch_shares,
    default_lanes,
    owned_lanes,
    position_after,
    steps_in,
    window_schedule,
)
from pliant.elastic.policy import lane_steps
from pliant.errors import ConfigError, DamageError

tails = st.sampled_from(["carry", "pad", "drop"])


def positions_of(shares, rows, lanes) -> list[tuple[int, int]]:
    """(epoch, position) of every row of a batch, in stream order."""
    return sorted(
        (s.epoch, position_of(rows, lanes, s.lane, r)) for lane in shares for s in lane for r in range(s.start, s.stop)
    )


def expected(rows, global_batch, epoch, position, tail) -> list[tuple[int, int]]:
    """The same by stepping through positions one by one."""
    if tail == "drop" and rows - position < global_batch:
        epoch, position = epoch + 1, 0
    taken = []
    while len(taken) < global_batch:
        if position == rows:
            if tail == "pad" and taken:
                break
            epoch, position = epoch + 1, 0
        taken.append((epoch, position))
        position += 1
    return taken


@st.composite
def places(draw):
    lanes = draw(st.integers(1, 8))
    global_batch = lanes * draw(st.integers(1, 8))
    tail = draw(tails)
    rows = draw(st.integers(global_batch if tail == "drop" else 1, 200))
    return rows, lanes, global_batch, tail, draw(st.integers(0, rows))


@given(places())
def test_a_batch_is_the_next_positions(place):
    rows, lanes, global_batch, tail, position = place
    shares, epoch, after, taken = batch_shares(
        rows=rows, lanes=lanes, global_batch=global_batch, epoch=4, position=position, tail=tail
    )
    want = expected(rows, global_batch, 4, position, tail)
    assert positions_of(shares, rows, lanes) == want
    assert taken == len(want)
    last_epoch, last = want[-1]
    assert (epoch, after) == ((last_epoch, last + 1) if last + 1 < rows else (last_epoch + 1, 0))
    assert all(s.lane == lane and s.rows > 0 for lane, mine in enumerate(shares) for s in mine)
    if tail == "carry":
        assert taken == global_batch
    if position + global_batch <= rows // lanes * lanes:
        assert {sum(s.rows for s in mine) for mine in shares} == {global_batch // lanes}


@given(places(), st.integers(1, 12))
def test_union_of_the_ranks_is_the_batch_at_every_worker_count(place, world_size):
    rows, lanes, global_batch, tail, position = place
    world_size = min(world_size, lanes)
    shares, *_ = batch_shares(rows=rows, lanes=lanes, global_batch=global_batch, epoch=0, position=position, tail=tail)
    owned = [owned_lanes(rank, world_size, lanes) for rank in range(world_size)]
    assert sorted(j for mine in owned for j in mine) == list(range(lanes))
    assert max(map(len, owned)) == lane_steps(lanes, world_size)
    union = {s for mine in owned for j in mine for s in shares[j]}
    assert union == {s for lane in shares for s in lane}


@given(places(), st.integers(0, 40))
def test_position_after_is_repeated_batches(place, steps):
    rows, lanes, global_batch, tail, position = place
    epoch, at = 2, position
    for _ in range(steps):
        _, epoch, at, _ = batch_shares(
            rows=rows, lanes=lanes, global_batch=global_batch, epoch=epoch, position=at, tail=tail
        )
    found = position_after(rows=rows, global_batch=global_batch, tail=tail, steps=steps, epoch=2, position=position)
    assert found == ((epoch, at) if at < rows else (epoch + 1, 0))


@given(places(), st.integers(1, 4))
def test_steps_in_takes_every_row_of_its_epochs(place, epochs):
    rows, _, global_batch, tail, _ = place
    steps = steps_in(rows, global_batch, tail, epochs)
    before = position_after(rows=rows, global_batch=global_batch, tail=tail, steps=steps - 1)
    after = position_after(rows=rows, global_batch=global_batch, tail=tail, steps=steps)
    if tail == "drop":  # no further batch fits
        assert after == (epochs, 0) or (after[0] == epochs - 1 and rows - after[1] < global_batch)
    else:
        assert before < (epochs, 0) <= after


@pytest.mark.parametrize(
    ("rows", "global_batch", "tail", "epochs", "steps"),
    [
        (1003, 32, "carry", 1, 32),
        (1003, 32, "carry", 2, 63),
        (1003, 32, "pad", 2, 64),
        (1003, 32, "drop", 2, 62),
        (1003, 32, "carry", 0.5, 16),
        (100, 10, "drop", 1.55, 15),
        (10, 32, "carry", 1, 1),
        (10, 32, "pad", 0.01, 1),
    ],
)
def test_steps_in_examples(rows, global_batch, tail, epochs, steps):
    assert steps_in(rows, global_batch, tail, epochs) == steps


def test_1003_rows_in_8_lanes_carry_over_the_epochs_end():
    seen = []
    epoch = position = 0
    for _ in range(1003):  # 32 epochs exactly
        shares, epoch, position, taken = batch_shares(
            rows=1003, lanes=8, global_batch=32, epoch=epoch, position=position, tail="carry"
        )
        assert taken == 32
        seen += positions_of(shares, 1003, 8)
    assert (epoch, position) == (32, 0)
    assert seen == [(e, p) for e in range(32) for p in range(1003)]


def test_a_batch_may_span_several_epochs():
    shares, epoch, position, taken = batch_shares(rows=5, lanes=4, global_batch=12, epoch=0, position=3, tail="carry")
    assert (epoch, position, taken) == (3, 0, 12)
    assert shares[0] == (Share(1, 0, 0, 1), Share(2, 0, 0, 1))
    assert shares[3] == (Share(0, 3, 0, 2), Share(1, 3, 0, 2), Share(2, 3, 0, 2))  # lane 3 is the longer one


@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.integers(0, 99))
def test_changing_the_global_batch_leaves_the_stream_alone(factors, position):
    lanes, rows = 4, 101
    epoch, at, seen = 0, position, []
    for factor in factors:
        shares, epoch, at, _ = batch_shares(
            rows=rows, lanes=lanes, global_batch=lanes * factor, epoch=epoch, position=at, tail="carry"
        )
        seen += positions_of(shares, rows, lanes)
    flat = [divmod(position + i, rows) for i in range(lanes * sum(factors))]
    assert seen == flat


@pytest.mark.parametrize(
    ("rows", "lanes", "global_batch", "tail", "code", "hint"),
    [
        (31, 8, 32, "drop", "data.drop-all", "carry or pad"),
        (0, 8, 32, "carry", "data.empty", "data.path"),
        (100, 8, 30, "carry", "data.global-batch", "use 32"),
        (100, 8, 3, "carry", "data.global-batch", "use 8"),
    ],
)
def test_batches_that_cannot_be_planned_are_refused(rows, lanes, global_batch, tail, code, hint):
    with pytest.raises(ConfigError) as found:
        batch_shares(rows=rows, lanes=lanes, global_batch=global_batch, epoch=0, position=0, tail=tail)
    assert found.value.code == code
    assert hint in found.value.hint


def test_positions_outside_the_epoch_are_refused():
    with pytest.raises(ValueError, match="position 11 is outside the epoch's 10 rows"):
        position_after(rows=10, global_batch=2, tail="carry", steps=1, position=11)


def test_more_workers_than_lanes_is_refused_naming_the_lanes():
    with pytest.raises(ConfigError, match="5 workers over 4 lanes"):
        owned_lanes(0, 5, 4)


@pytest.mark.parametrize(("global_batch", "workers", "lanes"), [(32, 3, 4), (30, 4, 5), (7, 2, 7), (12, 1, 1)])
def test_default_lanes_is_the_smallest_divisor_that_suffices(global_batch, workers, lanes):
    assert default_lanes(global_batch, workers) == lanes


def test_default_lanes_refuses_more_workers_than_rows():
    with pytest.raises(ConfigError, match=r"max_workers 9 is above train\.global_batch 8"):
        default_lanes(8, 9)


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 6),
    st.data(),
)
def test_schedule_gives_every_window_left_in_order_of_need(rows_per_group, lanes, window, world_size, data):
    rows = sum(rows_per_group)
    position = data.draw(st.integers(0, rows - 1))
    world_size = min(world_size, lanes)

    def order_for(epoch):
        return EpochOrder(rows_per_group, seed=1, epoch=epoch, lanes=lanes, window=window)

    total = 0
    for rank in range(world_size):
        owned = owned_lanes(rank, world_size, lanes)
        found = list(window_schedule(order_for, owned, 5, position, end_epoch=7))
        assert all(w.lane in owned for w in found)
        needs = []
        for w in found:
            first = lane_rows_before(rows, lanes, w.lane, position) if w.epoch == 5 else 0
            assert w.stop > first
            total += w.stop - max(first, w.start)
            needs.append((w.epoch, position_of(rows, lanes, w.lane, max(first, w.start))))
        assert needs == sorted(needs)
        endless = window_schedule(order_for, owned, 5, position)
        assert list(islice(endless, len(found))) == found
    assert total == 2 * rows - position


def test_schedule_of_an_empty_dataset_is_refused():
    empty = EpochOrder(np.zeros(0, np.int64), seed=0, epoch=0, lanes=2, window=1)
    with pytest.raises(ConfigError, match="no rows"):
        next(window_schedule(lambda epoch: empty, [0], 0, 0))


STATE = DataState(samples=96, epoch=1, position=3, global_batch=32, lanes=8, window=4, tail="carry", seed=2**62)


def test_state_survives_json():
    assert DataState.from_dict(json.loads(json.dumps(STATE.to_dict()))) == STATE


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epoch": "1"}, "epoch"),
        ({"epoch": -1}, "epoch"),
        ({"lanes": True}, "lanes"),
        ({"tail": "wrap"}, "tail"),
        ({"cursor": 1}, "cursor"),
        ({"order_version": 99}, "order version 99"),
        ({"version": 99}, "state version 99"),
    ],
)
def test_states_that_are_not_exactly_one_are_refused(change, named):
    with pytest.raises(DamageError, match=named):
        DataState.from_dict(STATE.to_dict() | change)
    record = STATE.to_dict()
    del record["seed"]
    with pytest.raises(DamageError, match="seed"):
        DataState.from_dict(record)


def test_lanes_without_rows_need_no_window_ever() -> None:
    def order(epoch: int) -> EpochOrder:
        return EpochOrder(np.array([3]), seed=0, epoch=epoch, lanes=4, window=2)

    empty = [lane for lane in range(4) if order(0).lane_rows(lane) == 0]
    assert empty
    assert list(window_schedule(order, empty, 0, 0)) == []
