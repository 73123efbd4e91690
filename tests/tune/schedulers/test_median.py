"""Median stopping and none: reports at every tenth of 2,700 samples."""

from __future__ import annotations

import math

import pytest

from tests.tune.schedulers.driver import make, settings
from tests.tune.schedulers.steps import Steps, told


def test_what_is_worse_than_the_median_of_the_running_averages_stops() -> None:
    steps = Steps(make(settings("median", first_epochs=3.0)), begun=5)
    for number, values in enumerate([(1.0, 0.8), (2.0, 1.0), (3.0, 1.0)]):  # averages at 540: 0.9, 1.5, 2.0
        for samples, value in zip((270, 540), values, strict=True):
            assert told(steps.report(number, samples, value)) == [(number, "continue")]
    (early,) = steps.report(3, 270, 50.0)
    assert (early.action, early.why) == ("continue", "nothing is stopped before 300 samples")
    (worse,) = steps.report(3, 540, 1.6)
    assert (worse.action, worse.why) == ("stop", "worse than the median of 3 others at 540 samples")
    steps.report(4, 270, 1.4)
    (spared,) = steps.report(4, 540, 1.9)  # its best so far is what counts
    assert (spared.action, spared.why) == ("continue", "no worse than the median of 4 others at 540 samples")


def test_nothing_stops_before_three_others_have_come_as_far() -> None:
    steps = Steps(make(settings("median")), begun=4)
    for number in range(3):
        (decision,) = steps.report(number, 810, float(number))
        assert decision.action == "continue"
    assert decision.why == "compared with 3 others or more; 2 have come to 810 samples"
    assert told(steps.report(3, 810, 1.5)) == [(3, "stop")]


@pytest.mark.parametrize("kind", ["median", "none"])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("samples", [270, 2700])
def test_no_value_stops_at_once(kind: str, value: float | None, samples: int) -> None:
    steps = Steps(make(settings(kind, every_epochs=2.7)), begun=1)
    assert told(steps.report(0, samples, value)) == [(0, "stop")]


def test_none_trains_everything_to_its_end() -> None:
    own = settings("none", every_epochs=10.0)
    steps = Steps(make(own), begun=1)
    assert steps.scheduler.milestones == (1000, 2000, 2700)
    assert make(settings("none")).milestones == (2700,)
    (first,) = steps.report(0, 1000, 9.0)
    assert (first.action, first.why) == ("continue", "1,000 samples of 2,700")
    (last,) = steps.report(0, 2720, 9.0)
    assert (last.action, last.why) == ("continue", "full length, 2,720 samples")
