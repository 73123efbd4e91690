"""What a sweep does next: whose turn it is, what a failure costs, when it stops, what a resume changes."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.tune.sweep import Finished, Leg, Wait
from pliant.tune.types import Decision, End, Halt, Loss, Report
from tests.tune.sweeps import LENGTH, Hand, Log, settings, started

# ---------------------------------------------------------------- the line


def test_a_lost_trial_is_the_next_and_others_keep_their_places() -> None:
    hand = started(settings("none", trials=4), slots=2)
    assert hand.legs(2) == ["t0000", "t0001"]
    assert hand.sweep.next_leg() == Wait("all 2 slots are taken")
    hand.lose("t0001")
    hand.lose("t0000")
    first, second = hand.leg(), hand.leg()
    assert [first.trial, second.trial] == ["t0001", "t0000"]
    assert (first.leg, first.begin, first.samples, first.run) == (1, "resume", 0, "t0001")
    hand.report("t0001", LENGTH)
    hand.sweep.left("t0001")
    assert hand.leg().trial == "t0002"


def test_a_stopped_sweep_goes_on_in_the_same_order() -> None:
    hand = started(settings("none", trials=4))
    hand.legs(3)
    for trial in ("t0002", "t0000", "t0001"):
        hand.lose(trial, "stopped")
    again = Hand(settings("none", trials=4), hand.log)
    again.sweep.begin()
    assert again.legs(4) == ["t0000", "t0001", "t0002", "t0003"]
    assert all(trial.failures == 0 for trial in again.sweep.trials.values())


def test_a_killed_sweep_logs_nothing_at_its_next_start_and_begins_with_what_ran() -> None:
    hand = started(settings("none", trials=3))
    hand.legs(2)
    hand.report("t0000", LENGTH)
    again = Hand(settings("none", trials=3), hand.log)
    before = list(hand.log.entries)
    again.sweep.begin(settings("none", trials=3))
    assert hand.log.entries == before
    assert again.legs(2) == ["t0001", "t0002"]


def test_what_a_torn_log_lacks_is_decided_at_the_next_start() -> None:
    hand = started(settings("none", trials=3))
    hand.leg()
    hand.report("t0000", LENGTH)
    assert [type(entry) for entry in hand.log.entries[2:]] == [Report, Decision, End]
    for most in (3, 4):
        torn = Log()
        torn.entries = hand.log.entries[:most]
        Hand(settings("none", trials=3), torn).sweep.begin()
        assert torn.entries == hand.log.entries


def test_a_report_that_stands_in_the_log_is_not_logged_again_and_answered_as_things_stand() -> None:
    hand = started(settings("none", trials=9, scheduler__every_epochs=9))
    hand.legs(2)
    assert hand.report("t0000", 900, 1.0) == "continue"
    entries = len(hand.log.entries)
    assert hand.report("t0000", 900, 9.0) == "continue"
    assert hand.report("t0000", 600, 9.0) == "continue"
    assert len(hand.log.entries) == entries
    assert hand.sweep.trials["t0000"].last.value == 1.0
    assert hand.report("t0001", 900, None) == "leave"
    assert hand.report("t0001", 900, 0.1) == "leave"
    hand.sweep.left("t0001")
    assert hand.status("t0001") == "diverged"
    assert len(hand.log.entries) == entries + 3


def test_a_leg_of_an_earlier_generation_reports_nothing() -> None:
    hand = started(settings("pbt", trials=4, scheduler__every_epochs=9))
    hand.legs(4)
    for number, trial in enumerate(hand.sweep.trials):
        hand.report(trial, 900, float(number))
    clone = hand.sweep.trials["t0003"]
    assert (clone.generation, clone.run, clone.seen) == (1, "t0003.g1", 900)
    assert hand.report("t0003", 1800, 0.0) == "leave"
    assert clone.samples == 900
    hand.sweep.left("t0003")
    leg = hand.leg()
    assert (leg.trial, leg.begin, leg.generation, leg.leg) == ("t0003", "clone", 1, 1)
    assert (leg.donor, leg.donor_run, leg.donor_samples, leg.samples) == ("t0000", "t0000", 900, 900)
    hand.lose("t0003")
    assert hand.leg().begin == "clone"  # nothing is known of its own yet
    assert hand.report("t0003", 1800, 0.5, generation=1) == "leave"
    hand.sweep.left("t0003")
    for trial in ("t0000", "t0001", "t0002"):
        hand.report(trial, 1800, 1.0)
    assert (hand.leg().begin, clone.samples) == ("resume", 1800)


def test_who_was_let_go_on_behind_others_leaves_its_slot_to_them() -> None:
    hand = started(settings("pbt", trials=4), slots=1)
    for trial in ("t0000", "t0001", "t0002"):
        hand.leg()
        assert hand.report(trial, 270, float(trial[1:])) == "leave"
        hand.sweep.left(trial)
    hand.leg()
    assert hand.report("t0003", 270, 0.5) == "leave"  # its generation is decided at once, and it is the last of four
    hand.sweep.left("t0003")
    assert hand.leg().trial == "t0000"


# ---------------------------------------------------------------- failures


def test_preemptions_are_free() -> None:
    hand = started(settings("none", trials=2))
    for _ in range(20):
        hand.lose(hand.leg().trial)
    assert hand.sweep.trials["t0000"].failures == 0
    assert hand.leg().leg == 20
    assert hand.status("t0000") == "running"


def test_a_trial_is_given_up_when_it_was_lost_too_often() -> None:
    hand = started(settings("none", trials=2, max_failures=2))
    for _ in range(3):
        hand.lose(hand.leg().trial, "infrastructure", "node 7 is gone")
    assert hand.status("t0000") == "failed"
    text = "it failed 3 times, sweep.max_failures is 2; the last: node 7 is gone"
    assert hand.sweep.trials["t0000"].why == text
    assert hand.leg().trial == "t0001"


def test_with_no_failures_allowed_the_first_is_the_end() -> None:
    hand = started(settings("none", trials=2, max_failures=0, max_identical_failures=1, scheduler__every_epochs=9))
    hand.lose(hand.leg().trial, "infrastructure", "node 7 is gone")
    assert hand.sweep.trials["t0000"].why == "it failed once, sweep.max_failures is 0; the last: node 7 is gone"
    assert hand.sweep.halt is None  # a machine's failure is no error of the user's
    hand.lose(hand.leg().trial, "user", "ValueError: x", "x")
    assert hand.sweep.halt == Halt("failures", "a trial ended with an error:\nValueError: x")


def test_an_error_before_the_first_report_is_the_end_of_the_trial() -> None:
    hand = started(settings("none", trials=3))
    hand.lose(hand.leg().trial, "user", "ValueError: x", "x")
    assert [type(entry) for entry in hand.log.entries[-2:]] == [Loss, End]
    assert (hand.status("t0000"), hand.sweep.trials["t0000"].why) == ("failed", "ValueError: x")


def test_an_error_after_a_report_is_tried_again_and_the_same_at_the_same_place_is_the_end() -> None:
    hand = started(settings("none", trials=3, scheduler__every_epochs=9, max_failures=9))
    hand.leg()
    hand.report("t0000", 900)
    hand.lose("t0000", "user", "ValueError: x", "x")
    assert hand.leg().trial == "t0000"
    hand.lose("t0000", "user", "KeyError: y", "y")
    hand.leg()
    hand.report("t0000", 1800)
    hand.lose("t0000", "user", "ValueError: x", "x")  # the same error elsewhere
    hand.leg()
    assert hand.status("t0000") == "running"
    hand.lose("t0000", "user", "ValueError: x", "x")
    assert hand.status("t0000") == "failed"


def test_what_befalls_a_leg_that_was_told_to_leave_is_no_loss() -> None:
    hand = started(settings("halving", trials=3))
    hand.leg()
    assert hand.report("t0000", 100) == "leave"
    hand.lose("t0000", "user", "ValueError: x", "x")
    assert hand.log.of(Loss) == []
    assert hand.status("t0000") == "paused"


@pytest.mark.parametrize("cause", ["out-of-memory", "diverged"])
def test_a_trial_that_never_reported_a_value_is_replaced(cause: Any) -> None:
    hand = started(settings("none", trials=2))
    first = hand.leg().trial
    if cause == "diverged":
        hand.sweep.ended(End(first, "diverged", 0, "the loss is NaN"))
    else:
        hand.lose(first, cause, "killed for its memory", "oom")
    assert hand.status(first) == cause
    for trial in hand.legs(2):
        hand.report(trial, LENGTH)
        hand.sweep.left(trial)
    assert hand.sweep.next_leg() == Finished("done", "all 3 trials have ended")


def test_replacements_have_an_end() -> None:
    hand = started(settings("none", trials=4))
    begun = 0
    while isinstance(leg := hand.sweep.next_leg(), Leg):
        hand.sweep.ended(End(leg.trial, "diverged", 0, "the loss is NaN"))
        begun += 1
    assert begun == 8
    assert leg.reason == "done"
    assert hand.sweep.best is None


def test_a_value_that_is_no_number_is_never_best_and_ends_its_trial() -> None:
    hand = started(settings("none", trials=3, scheduler__every_epochs=9))
    hand.legs(2)
    assert hand.report("t0000", 900, None) == "leave"
    assert hand.status("t0000") == "diverged"
    hand.report("t0001", 900, 7.0)
    assert hand.report("t0001", 1800, None) == "leave"
    assert hand.sweep.best.value == 7.0
    assert hand.status("t0001") == "diverged"
    assert hand.sweep.allowed == 4  # the second has reported a value and counts


def test_a_member_of_a_population_that_diverges_clones_another() -> None:
    hand = started(settings("pbt", trials=4, scheduler__every_epochs=9))
    hand.legs(4)
    for trial in ("t0000", "t0001", "t0002"):
        hand.report(trial, 900, 1.0 + int(trial[1:]))
        hand.sweep.left(trial)
    hand.sweep.ended(End("t0003", "diverged", 0, "the loss of step 7 is NaN", worker_seconds=5.0))
    assert hand.log.of(End) == []
    assert hand.sweep.trials["t0003"].reports[0].value is None
    clone = hand.sweep.trials["t0003"]
    assert (clone.generation, clone.generations[-1].donor, clone.worker_seconds) == (1, "t0000", 5.0)
    legs = [hand.leg() for _ in range(4)]
    assert next(leg for leg in legs if leg.trial == "t0003").begin == "clone"
    hand.report("t0000", 1800, 0.5)
    hand.sweep.ended(End("t0000", "diverged", 1800, "the loss of step 99 is NaN"))  # nothing is left to clone for
    assert (hand.status("t0000"), hand.sweep.best.trial) == ("diverged", "t0000")


def test_trials_in_a_row_with_the_same_error_stop_the_sweep_and_are_replaced_once_it_is_mended() -> None:
    hand = started(settings("none", trials=5, max_identical_failures=3))
    hand.legs(5)
    hand.lose("t0000", "user", "KeyError: y", "y")
    for trial in ("t0001", "t0002"):
        hand.lose(trial, "user", "ValueError: x", "x")
    hand.report("t0004", LENGTH)  # a trial that works comes in between
    hand.sweep.left("t0004")
    hand.lose("t0003", "user", "ValueError: x", "x")
    assert hand.sweep.halt is None
    assert isinstance(hand.sweep.next_leg(), Finished)

    hand = started(settings("none", trials=5, max_identical_failures=3))
    hand.legs(4)
    for trial in ("t0000", "t0001", "t0002"):
        hand.lose(trial, "user", "Traceback …\nValueError: x", "x")
    assert hand.sweep.next_leg() == Wait(hand.sweep.halt.text)
    assert hand.report("t0003", LENGTH) == "leave"
    hand.sweep.left("t0003")
    finished = hand.sweep.next_leg()
    assert isinstance(finished, Finished)
    assert finished.reason == "user"
    assert finished.text == "3 trials in a row ended with one error:\nTraceback …\nValueError: x"
    again = Hand(settings("none", trials=5), hand.log)
    again.sweep.begin()
    assert again.legs(4) == ["t0004", "t0005", "t0006", "t0007"]
    assert isinstance(again.sweep.next_leg(), Wait)


def test_memory_that_suffices_for_no_trial_stops_the_sweep() -> None:
    hand = started(settings("none", trials=9))
    for _ in range(3):
        hand.lose(hand.leg().trial, "out-of-memory", "killed for its memory", "oom")
    assert hand.sweep.halt.what == "failures"
    hand = started(settings("none", trials=9))
    hand.report(hand.leg().trial, LENGTH)
    hand.sweep.left("t0000")
    for _ in range(4):
        hand.lose(hand.leg().trial, "out-of-memory", "killed for its memory", "oom")
    assert hand.sweep.halt is None
