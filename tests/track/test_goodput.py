"""The goodput ledger: every second of a run is in exactly one category, whatever its record says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.track.goodput import CATEGORIES, MEANINGS, Life, Steps, goodput, ledger, totals

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


def test_two_groups_of_one_driver() -> None:
    lives = [
        Life(1, 1, BEGIN, BEGIN + 100),
        Life(2, 1, BEGIN + 2, BEGIN + 30, kept=steps(1, 5, at=BEGIN + 10)),
        Life(3, 1, BEGIN + 40, BEGIN + 100, from_step=5, kept=steps(6, 15, at=BEGIN + 60)),
    ]
    (account,) = ledger(lives)
    assert account.seconds == pytest.approx({"init": 10, "data": 15, "step": 45, "recovery": 30})


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
    share = goodput(accounts)
    assert share is None or 0 <= share <= 1 + 1e-9
