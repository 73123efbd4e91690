"""ASHA: rungs at 100, 300 and 900 of 2,700 samples, the best third of those that came goes on."""

from __future__ import annotations

import random

import pytest

from tests.tune.schedulers.driver import Sweep, make, settings
from tests.tune.schedulers.steps import Steps, told

ASHA = settings("asha", first_epochs=1.0)


def test_the_best_third_of_those_that_have_come_goes_on() -> None:
    steps = Steps(make(ASHA), begun=6)
    assert told(steps.report(0, 100, 0.5)) == [(0, "pause")]
    assert told(steps.report(1, 100, 0.4)) == [(1, "pause")]
    first = steps.report(2, 100, 0.6)
    assert told(first) == [(2, "stop"), (1, "resume")]
    assert first[0].why == "rung 1 of 3 (100 samples): 3rd of 3, the best one goes on"
    assert first[1].why == "rung 1 of 3 (100 samples): 1st of 3, the best one goes on"
    assert told(steps.report(3, 100, 0.3)) == [(3, "continue")]
    assert told(steps.report(4, 100, 0.45)) == [(4, "pause"), (0, "stop")], "0 is 4th of 5"
    (late,) = steps.report(5, 100, 0.7)
    assert (late.action, late.why) == ("stop", "rung 1 of 3 (100 samples): 6th of 6, the best 2 go on")


def test_one_that_waits_goes_on_once_enough_worse_ones_have_come() -> None:
    steps = Steps(make(ASHA), begun=6)
    decisions = [told(steps.report(number, 100, value)) for number, value in enumerate([1.0, 2.0, 3.0, 9.0, 9.5, 9.6])]
    assert decisions[2] == [(2, "stop"), (0, "resume")]
    assert decisions[5] == [(5, "stop"), (1, "resume")]


def test_one_that_waits_stops_once_it_is_too_far_behind() -> None:
    steps = Steps(make(ASHA), begun=5)
    assert told(steps.report(0, 100, 5.0)) == [(0, "pause")]
    assert told(steps.report(1, 100, 4.0)) == [(1, "pause")]
    assert told(steps.report(2, 100, 3.0)) == [(2, "continue"), (0, "stop")]


def test_of_equals_the_one_with_the_lower_number_is_the_better() -> None:
    steps = Steps(make(ASHA), begun=3)
    steps.report(2, 100, 0.5)
    steps.report(1, 100, 0.5)
    assert told(steps.report(0, 100, 0.5)) == [(0, "continue"), (2, "stop")]


def test_a_larger_value_is_better_where_it_should_be() -> None:
    steps = Steps(make(ASHA, mode="max"), begun=3)
    steps.report(0, 100, 0.9)
    steps.report(1, 100, 0.8)
    assert told(steps.report(2, 100, 0.7)) == [(2, "stop"), (0, "resume")]


def test_no_value_is_the_worst_of_all_and_stops() -> None:
    for mode in ("min", "max"):
        steps = Steps(make(ASHA, mode=mode), begun=3)
        (first,) = steps.report(0, 100, None)
        assert (first.action, first.why) == ("stop", "no finite value at 100 samples")
        assert told(steps.report(1, 100, float("nan"))) == [(1, "stop")]
        assert told(steps.report(2, 100, 1.0)) == [(2, "continue")], "the best of three that have come"


def test_one_that_failed_counts_as_the_worst_at_its_next_rung() -> None:
    steps = Steps(make(ASHA), begun=3)
    assert steps.end(0, "failed") == []
    assert steps.end(1, "out-of-memory") == []
    assert told(steps.report(2, 100, 5.0)) == [(2, "continue")]
    assert told(steps.report(2, 300, 5.0)) == [(2, "pause")]
    assert steps.end(2, "limit") == []
    assert steps.close() == []


def test_a_large_batch_that_passes_two_rungs_stands_at_both() -> None:
    steps = Steps(make(ASHA), begun=6)
    assert told(steps.report(0, 320, 0.1)) == [(0, "pause")]
    steps.report(1, 100, 0.2)
    third = steps.report(2, 100, 0.3)
    assert told(third) == [(2, "stop")], "0 has won the first rung, and waits at the second"
    assert told(steps.report(3, 100, 0.05)) == [(3, "continue")]
    (at_second,) = steps.report(3, 300, 0.05)
    assert (at_second.action, at_second.why) == (
        "pause",
        "rung 2 of 3 (300 samples): 1st of 2, none goes on yet: waits",
    )


def test_when_no_more_come_the_best_that_came_furthest_goes_on_to_the_end() -> None:
    steps = Steps(make(ASHA), begun=3)
    for number in range(3):
        steps.report(number, 100, float(number))
    assert told(steps.report(0, 300, 1.0)) == [(0, "pause")]
    assert told(steps.close()) == [(0, "resume"), (1, "stop")]
    assert told(steps.report(0, 900, 1.0)) == [(0, "continue")]
    (last,) = steps.report(0, 2700, 1.0)
    assert (last.action, last.why) == ("continue", "full length, 2,700 samples")


def test_a_sweep_that_is_extended_after_that_goes_on_with_what_came_before() -> None:
    steps = Steps(make(ASHA), begun=3)
    for number in range(3):
        steps.report(number, 100, float(number))
    steps.close()
    steps.begin()
    assert told(steps.report(3, 100, 0.5)) == [(3, "pause")], "second of four, one of whom goes on"


def test_brackets_are_dealt_in_turn_and_leave_out_the_first_rungs() -> None:
    own = settings("asha", first_epochs=1.0, brackets=3)
    steps = Steps(make(own), begun=6)
    (early,) = steps.report(1, 100, 9.0)
    assert (early.action, early.why) == ("continue", "first rung at 300 samples")
    assert told(steps.report(2, 100, 9.0)) == [(2, "continue")]
    assert told(steps.report(0, 100, 9.0)) == [(0, "pause")]
    (second,) = steps.report(1, 300, 9.0)
    assert second.why == "rung 1 of 2 (300 samples): 1st of 1, none goes on yet: waits"
    (other,) = steps.report(4, 300, 8.0)
    assert other.why == "rung 1 of 2 (300 samples): 1st of 2, none goes on yet: waits"


@pytest.mark.parametrize("order", range(3))
def test_most_of_the_training_goes_to_the_best(order: int) -> None:
    """81 trials whose values at each rung are those of the end, in a random order: the best is found for a fraction."""
    values = list(range(81))
    random.Random(order).shuffle(values)
    own = settings("asha", trials=81, first_epochs=1.0)
    sweep = Sweep(make(own), own, order=order, train=lambda state, params, before, now: (state, params["value"]))
    sweep.drawn = lambda number: {"value": float(values[number])}  # type: ignore[method-assign]
    sweep.run()
    ends = {trial.params["value"]: trial.samples for trial in sweep.trials.values()}
    assert ends[0.0] == 2700
    assert sum(ends.values()) < 0.2 * 81 * 2700
    assert sum(samples == 100 for samples in ends.values()) >= 81 // 2
