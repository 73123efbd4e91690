"""Synchronous halving and hyperband."""

from __future__ import annotations

import pytest

from pliant.tune.types import Suggestion
from tests.tune.schedulers.driver import Sweep, make, settings
from tests.tune.schedulers.steps import Steps, told

HALVING = settings("halving", first_epochs=3.0)  # rungs at 300 and 900 of 2,700


def first_rung(steps: Steps, values: list[float | None]) -> list[tuple[int, str]]:
    """All trials come to it and no more begin; the decisions on those that wait."""
    for number, value in enumerate(values):
        decisions = told(steps.report(number, 300, value))
        assert decisions == [(number, "pause" if value is not None else "stop")]
    return told(steps.close())


def test_the_best_third_goes_on_when_all_are_in() -> None:
    steps = Steps(make(HALVING), begun=6)
    assert steps.scheduler.milestones == (300, 900, 2700)
    decided = first_rung(steps, [6.0, 2.0, 4.0, 1.0, 5.0, 3.0])
    assert decided == [(3, "resume"), (1, "resume"), (5, "stop"), (2, "stop"), (4, "stop"), (0, "stop")]
    (waits,) = steps.report(1, 900, 0.5)
    assert (waits.action, waits.why) == ("pause", "rung 2 of 2 (900 samples): waits")
    last = steps.report(3, 900, 0.7)
    assert told(last) == [(3, "pause"), (1, "resume"), (3, "stop")]
    assert last[2].why == "rung 2 of 2 (900 samples): 2nd of 2, the best one goes on"
    assert told(steps.report(1, 2700, 0.4)) == [(1, "continue")]


def test_a_trial_that_fails_takes_no_place_away() -> None:
    steps = Steps(make(HALVING), begun=9)
    for number in range(3):
        assert steps.end(number, "failed") == []
    steps.report(3, 300, None)
    for number in range(4, 9):
        steps.report(number, 300, float(number))
    assert told(steps.close()) == [(4, "resume"), (5, "resume"), (6, "resume"), (7, "stop"), (8, "stop")]
    assert steps.end(4, "failed", 300) == []
    steps.report(5, 900, 2.0)
    assert told(steps.report(6, 900, 1.0))[1:] == [(6, "resume"), (5, "stop")]


def test_the_last_one_awaited_may_fail() -> None:
    steps = Steps(make(HALVING), begun=3)
    assert steps.close() == []
    steps.report(0, 300, 1.0)
    steps.report(1, 300, 2.0)
    assert told(steps.end(2, "diverged")) == [(0, "resume"), (1, "stop")]


def test_all_may_fail() -> None:
    steps = Steps(make(HALVING), begun=2)
    steps.report(0, 300, None)
    steps.end(1, "failed")
    assert steps.close() == []
    assert steps.scheduler.wants_more()


def test_a_bracket_that_was_closed_short_stays_closed() -> None:
    """Extended, a sweep has a bracket more; the first one is not decided anew."""
    steps = Steps(make(HALVING), begun=3)
    assert first_rung(steps, [1.0, 2.0, 3.0]) == [(0, "resume"), (1, "stop"), (2, "stop")]
    assert not steps.scheduler.wants_more(), "the first bracket has not finished"
    steps.report(0, 900, 1.0)
    steps.report(0, 2700, 1.0)
    assert steps.scheduler.wants_more()
    for _ in range(3):
        steps.begin()
    for number in (3, 4, 5):
        assert told(steps.report(number, 300, 0.1 * number)) == [(number, "pause")]
    assert told(steps.close()) == [(3, "resume"), (4, "stop"), (5, "stop")]


def test_one_that_passed_two_rungs_at_once_waits_at_the_second() -> None:
    steps = Steps(make(HALVING), begun=6)
    assert told(steps.report(0, 1000, 1.0)) == [(0, "pause")]
    for number in range(1, 6):
        steps.report(number, 300, 1.0 + number)
    assert told(steps.close()) == [(1, "resume"), (2, "stop"), (3, "stop"), (4, "stop"), (5, "stop")]
    assert told(steps.report(1, 900, 0.5)) == [(1, "pause"), (1, "resume"), (0, "stop")]


def test_brackets_of_hyperband_are_those_of_its_paper() -> None:
    """Li et al. 2018, table 1: R = 81, eta = 3."""
    own = settings("hyperband", trials=1000, first_epochs=1.0)
    scheduler = make(own, length=8100)
    assert scheduler.milestones == (100, 300, 900, 2700, 8100)
    sweep = Sweep(scheduler, own.model_copy(update={"trials": 143}), train=lambda s, p, b, n: (s, p["optim.lr"]))
    sweep.run()
    begun = [entry.number for entry in sweep.log if isinstance(entry, Suggestion)]
    assert len(begun) == 81 + 34 + 15 + 8 + 5
    ends = [sum(trial.samples >= milestone for trial in sweep.trials.values()) for milestone in scheduler.milestones]
    whole = [list(sweep.trials.values())[start:stop] for start, stop in ((0, 81), (81, 115), (115, 130), (130, 138))]
    reached = [[sum(trial.samples >= m for trial in bracket) for m in scheduler.milestones] for bracket in whole]
    assert reached == [[81, 27, 9, 3, 1], [34, 34, 11, 3, 1], [15, 15, 15, 5, 1], [8, 8, 8, 8, 2]]
    assert ends[-1] == 1 + 1 + 1 + 2 + 5


@pytest.mark.parametrize("trials", [1, 2, 28, 30, 40])
def test_hyperband_finishes_at_any_number_of_trials(trials: int) -> None:
    own = settings("hyperband", trials=trials)
    sweep = Sweep(make(own), own, train=lambda state, params, before, now: (state, params["optim.lr"])).run()
    assert len(sweep.trials) == trials
    assert max(trial.samples for trial in sweep.trials.values()) == 2700


def test_the_next_bracket_begins_when_the_one_before_has_finished() -> None:
    own = settings("hyperband", trials=100)
    steps = Steps(make(own))
    begun = 0
    while steps.scheduler.wants_more():
        steps.begin()
        begun += 1
    assert begun == 27
