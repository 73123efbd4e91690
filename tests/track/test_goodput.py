"""The goodput ledger: every second of a run is in exactly one category, whatever its record says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.track.causes import CAUSE_MEANINGS, CAUSES
from pliant.track.goodput import CATEGORIES, CAUSED, MEANINGS, Life, Steps, by_cause, goodput, ledger, totals

BEGIN = 1000.0


def steps(first: int, last: int, *, at: float, data_s: float = 1.0, step_s: float = 3.0, every: int = 1) -> Steps:
    """Steps one after the other, the work on the first beginning at ``at``."""
    number = np.arange(first - 1 + every, last + 1, every, dtype=float)
    ended = at + (number - first + 1) * (data_s + step_s)
    return Steps(number, ended, np.full(len(number), data_s), np.full(len(number), step_s))


def test_an_uninterrupted_run() -> None:
    # 10 s until the first step, 5 steps of 4 s, an evaluation of 6 s after them, a save of 2 s, 3 s to the end
    kept = steps(1, 5, at=BEGIN + 10)
    group = Life(2, 1, BEGIN + 4, BEGIN + 40, kept=kept, evaluations=[(BEGIN + 36, 6.0)], stalls=[(5, 2.0)])
    (account,) = ledger([Life(1, 1, BEGIN, BEGIN + 41), group])
    assert account.seconds == pytest.approx(
        {"init": 10, "data": 5, "step": 15, "evaluation": 6, "checkpoint": 2, "other": 3}
    )
    assert goodput([account]) == pytest.approx(15 / 41)


def test_a_killed_run_that_went_on() -> None:
    # saved after step 5, killed in step 8 without a word; 100 s later another start, which does 6 to 8 again
    lives = [
        Life(1, 1, BEGIN, BEGIN + 45),
        Life(2, 1, BEGIN, None, kept=steps(1, 5, at=BEGIN + 10), lost=steps(6, 7, at=BEGIN + 30)),
        Life(3, 3, BEGIN + 145, BEGIN + 165),
        Life(4, 3, BEGIN + 145, BEGIN + 165, from_step=5, kept=steps(6, 8, at=BEGIN + 150)),
    ]
    first, gap, second = ledger(lives)
    assert first.seconds == pytest.approx({"init": 10, "data": 5, "step": 15, "replayed": 15})
    assert (gap.attempt, gap.seconds) == (None, pytest.approx({"down": 100}))
    assert second.seconds == pytest.approx({"recovery": 5, "data": 3, "step": 9, "other": 3})
    assert by_cause([first, gap, second]) == {
        "replayed": {"driver": 15}, "recovery": {"driver": 5}, "waiting": {}, "down": {"driver": 100}
    }  # fmt: skip


def test_two_groups_of_one_driver() -> None:
    lives = [
        Life(1, 1, BEGIN, BEGIN + 100),
        Life(2, 1, BEGIN + 2, BEGIN + 30, kept=steps(1, 5, at=BEGIN + 10)),
        Life(3, 1, BEGIN + 40, BEGIN + 100, from_step=5, kept=steps(6, 15, at=BEGIN + 60)),
    ]
    (account,) = ledger(lives)
    assert account.seconds == pytest.approx({"init": 10, "data": 15, "step": 45, "recovery": 30})


def test_each_recovery_has_its_cause() -> None:
    lives = [
        Life(1, 1, BEGIN, BEGIN + 200, ended="stop"),
        # machines go away: saved, left at 30; the next group starts at 40, trains from 44 on
        Life(2, 1, BEGIN, BEGIN + 30, kept=steps(1, 5, at=BEGIN + 10), ended="preemption"),
        # a worker is killed at 70 in step 12, which nobody noticed until 75; nothing was saved since step 9
        Life(
            3, 1, BEGIN + 40, None, from_step=5, ended="infrastructure", gone=BEGIN + 70,
            kept=steps(6, 9, at=BEGIN + 44), lost=steps(10, 11, at=BEGIN + 60),
        ),
        # this one does not come to a step: 80 to 85
        Life(4, 1, BEGIN + 80, None, from_step=9, ended="user", gone=BEGIN + 85),
        Life(5, 1, BEGIN + 90, BEGIN + 150, from_step=9, kept=steps(10, 21, at=BEGIN + 92), ended="resize"),
        Life(6, 1, BEGIN + 160, BEGIN + 200, from_step=21, kept=steps(22, 30, at=BEGIN + 164), ended="stop"),
        Life(7, 7, BEGIN + 300, BEGIN + 320),
        Life(8, 7, BEGIN + 304, BEGIN + 320, from_step=30, kept=steps(31, 33, at=BEGIN + 308)),
    ]  # fmt: skip
    accounts = ledger(lives)
    assert by_cause(accounts) == {
        "replayed": {"infrastructure": 10},
        "recovery": {"preemption": 14, "infrastructure": 15, "user": 7, "resize": 14, "stop": 8},
        "waiting": {},
        "down": {"stop": 100},
    }
    assert sum(totals(accounts).values()) == 320


def test_waiting_for_machines() -> None:
    lives = [
        # too few machines at first, from 5 on; then again, from 42 on; and in the end, from 90 on
        Life(1, 1, BEGIN, BEGIN + 100, waits=[BEGIN + 5, BEGIN + 12, BEGIN + 42, BEGIN + 90]),
        Life(2, 1, BEGIN + 20, BEGIN + 40, kept=steps(1, 5, at=BEGIN + 20), ended="preemption"),
        Life(
            3, 1, BEGIN + 60, None, from_step=5, kept=steps(6, 10, at=BEGIN + 65), ended="infrastructure",
            gone=BEGIN + 85,
        ),
    ]  # fmt: skip
    (account,) = ledger(lives)
    assert account.seconds == pytest.approx(
        {"init": 5, "waiting": 15 + 18 + 10, "data": 10, "step": 30, "recovery": 2 + 5, "other": 5}
    )
    assert account.causes == {
        "waiting": {"start": 15, "preemption": 18, "infrastructure": 10}, "recovery": {"preemption": 7}
    }  # fmt: skip
    assert goodput([account]) == pytest.approx(30 / (100 - 43))


def test_starts_that_never_came_to_a_step() -> None:
    lives = [Life(1, 1, BEGIN, BEGIN + 9), Life(2, 2, BEGIN + 9, BEGIN + 20), Life(3, 2, BEGIN + 12, None)]
    assert totals(ledger(lives)) == pytest.approx({**dict.fromkeys(CATEGORIES, 0.0), "init": 20})
    assert goodput([]) is None
    assert ledger([]) == []


def test_a_record_that_stands_for_several_steps() -> None:
    kept = steps(1, 40, at=BEGIN, every=10)
    (account,) = ledger([Life(1, 1, BEGIN, BEGIN + 160), Life(2, 1, BEGIN, BEGIN + 160, kept=kept)])
    assert account.seconds == pytest.approx({"data": 40, "step": 120})


def test_a_driver_that_was_taken_over_while_it_lived() -> None:
    lives = [Life(1, 1, BEGIN, BEGIN + 500), Life(2, 2, BEGIN + 50, BEGIN + 80)]
    assert [(a.begin, a.end) for a in ledger(lives)] == [(BEGIN, BEGIN + 50), (BEGIN + 50, BEGIN + 80)]


def test_every_category_is_explained() -> None:
    assert set(MEANINGS) == set(CATEGORIES)
    assert set(CAUSE_MEANINGS) == set(CAUSES)


seconds = st.floats(0, 1e4, allow_nan=False)
moments = st.floats(0, 1e6, allow_nan=False)


@st.composite
def recorded(draw: st.DrawFn) -> Steps:
    count = draw(st.integers(0, 6))
    number = sorted(draw(st.sets(st.integers(1, 1000), min_size=count, max_size=count)))
    return Steps(
        np.array(number, dtype=float),
        np.array(sorted(draw(st.lists(moments, min_size=count, max_size=count)))),
        np.array(draw(st.lists(seconds, min_size=count, max_size=count))),
        np.array(draw(st.lists(seconds, min_size=count, max_size=count))),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Life]:
    """Any attempts at any times, contradictions included: clocks of hosts differ."""
    lives: list[Life] = []
    driver = 0
    for number in range(1, draw(st.integers(1, 8)) + 1):
        is_driver = driver == 0 or draw(st.booleans())
        driver = number if is_driver else driver
        lives.append(
            Life(
                number,
                driver,
                draw(moments),
                draw(moments if is_driver else st.none() | moments),
                from_step=draw(st.integers(0, 500)),
                kept=Steps() if is_driver else draw(recorded()),
                lost=Steps() if is_driver else draw(recorded()),
                evaluations=[] if is_driver else draw(st.lists(st.tuples(moments, seconds), max_size=3)),
                stalls=[] if is_driver else draw(st.lists(st.tuples(st.integers(1, 1000), seconds), max_size=3)),
                ended=draw(st.none() | st.sampled_from(CAUSES)),
                gone=None if is_driver else draw(st.none() | moments),
                waits=draw(st.lists(moments, max_size=3)) if is_driver else [],
            )
        )
    return lives


@given(histories())
def test_every_second_is_accounted_for_once(lives: list[Life]) -> None:
    accounts = ledger(lives)
    drivers = [life for life in lives if life.number == life.driver]
    assert [a.attempt for a in accounts if a.attempt is not None] == [d.number for d in drivers]
    assert accounts[0].begin == drivers[0].begin
    for account, after in pairwise(accounts):
        assert account.end == after.begin
    for account in accounts:
        assert all(value > 0 for value in account.seconds.values())
        assert sum(account.seconds.values()) == pytest.approx(account.end - account.begin, rel=1e-9, abs=1e-6)
        assert set(account.causes) == set(account.seconds) & set(CAUSED)
        for category, causes in account.causes.items():
            assert sum(causes.values()) == pytest.approx(account.seconds[category])
    share = goodput(accounts)
    assert share is None or 0 <= share <= 1 + 1e-9
