"""What ends a sweep before it is done, what a resume changes, and who gets workers that are free."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from pliant.tune.decisions import replay, verify
from pliant.tune.simulate import Fault
from pliant.tune.sweep import Finished, Leg, Wait
from pliant.tune.table import Workers
from pliant.tune.types import Change, Close, Decision, End, Halt, Report, Resize, Suggestion
from tests.tune.sweeps import LENGTH, Hand, build, interrupted, settings, simulation, started, uninterrupted

# ---------------------------------------------------------------- budgets


def test_a_budget_ends_a_sweep_and_a_resume_with_more_goes_on_with_all_of_its_trials() -> None:
    own = settings("none", trials=4, scheduler__every_epochs=9, budget__worker_hours=1.0)
    hand = started(own)
    hand.legs(2)
    assert hand.report("t0000", 900, worker_seconds=1800.0) == "continue"
    assert hand.report("t0001", 900, worker_seconds=1801.0) == "leave"
    assert hand.log.entries[-1] == Halt("worker-hours", "sweep.budget.worker_hours is used up: 1 of 1")
    hand.sweep.left("t0001")
    assert hand.sweep.answer("t0000") == "leave"
    assert hand.report("t0000", 1800, worker_seconds=60.0) == "leave"  # its work is paid for, and counts
    assert isinstance(hand.sweep.next_leg(), Wait)
    hand.sweep.left("t0000")
    assert hand.sweep.next_leg() == Finished("limit", hand.sweep.halt.text)
    assert {hand.status("t0000"), hand.status("t0001")} == {"limit"}

    same = Hand(own, hand.log)
    same.sweep.begin(own)
    assert isinstance(same.sweep.next_leg(), Finished)
    more = own.model_copy(update={"budget": own.budget.model_copy(update={"worker_hours": 2.0})})
    again = Hand(more, hand.log)
    again.sweep.begin(more)
    assert [again.sweep.halt, again.legs(3)] == [None, ["t0000", "t0001", "t0002"]]
    assert [type(entry) for entry in hand.log.entries[-4:]] == [Change, Halt, Change, Suggestion]


def test_time_is_that_of_a_start() -> None:
    own = settings("none", trials=4, budget__time=60)
    hand = started(own)
    hand.leg()
    hand.sweep.elapsed(59.0)
    assert hand.sweep.halt is None
    hand.sweep.elapsed(61.5)
    hand.sweep.elapsed(62.0)
    assert hand.log.of(Halt) == [Halt("time", "sweep.budget.time is used up: 62 of 60 s")]
    again = Hand(own, hand.log)
    again.sweep.begin(own)
    assert again.leg().trial == "t0000"


def test_a_sweep_ends_when_nothing_gets_better() -> None:
    hand = started(settings("none", trials=20, budget__plateau_trials=3))
    for value in (3.0, 2.0, 2.0, 2.5):
        hand.report(hand.leg().trial, LENGTH, value)
        hand.sweep.left(list(hand.sweep.trials)[-1])
        assert hand.sweep.halt is None
    hand.report(hand.leg().trial, LENGTH, 2.1)
    assert hand.sweep.halt == Halt("plateau", "3 trials in a row ended without a better best value")
    assert hand.sweep.best.trial == "t0001"


@examples(max_examples=25)
@given(
    kind=st.sampled_from(["none", "asha", "halving", "median"]),
    slots=st.integers(1, 5),
    hours=st.floats(0.05, 2.0),
    seed=st.integers(0, 50),
)
def test_a_budget_is_exceeded_by_no_more_than_a_report_of_each_leg(
    kind: str, slots: int, hours: float, seed: int
) -> None:
    own = settings(kind, trials=9, seed=seed, budget__worker_hours=hours)
    sweep, log = uninterrupted(own, simulation(slots=slots))
    if (end := next((n for n, entry in enumerate(log.entries) if isinstance(entry, Halt)), None)) is None:
        assert sweep.worker_seconds < hours * 3600
        return
    later = [entry for entry in log.entries[end:] if isinstance(entry, Report)]
    assert len({report.trial for report in later}) == len(later) <= slots - 1
    assert not [entry for entry in log.entries[end:] if isinstance(entry, Suggestion)]
    last = next(entry for entry in reversed(log.entries[:end]) if isinstance(entry, Report))
    spent = sum(report.worker_seconds for report in [*later, last])
    assert sweep.worker_seconds - spent < hours * 3600


@pytest.mark.parametrize("kind", ["none", "asha", "halving", "hyperband", "median"])
@pytest.mark.parametrize("slots", [1, 4])
def test_a_sweep_that_is_extended_goes_on_with_new_trials_only(kind: str, slots: int) -> None:
    machines, own, more = simulation(slots=slots), settings(kind, trials=9), settings(kind, trials=18)
    sweep, log = uninterrupted(own, machines)
    before = list(log.entries)
    again = build(more, record=log.record)
    replay(log.entries, again)
    again.begin(more)
    machines.run(again)
    added = log.entries[len(before) :]
    assert added[0] == Change(more.model_dump(mode="json"))
    old = set(sweep.trials)
    assert not [entry for entry in added if getattr(entry, "trial", None) in old]
    assert len(again.trials) >= 18
    assert all(trial.end is not None for trial in again.trials.values())
    assert verify(log.entries, lambda new, space: build(new)) is None


# ---------------------------------------------------------------- the end of what there is to try


def test_a_synchronous_rung_that_a_grid_cannot_fill_is_decided_with_what_there_is() -> None:
    sweep, log = uninterrupted(settings("halving", searcher="grid", trials=20), simulation(slots=3))
    assert len(sweep.trials) == 8
    assert log.of(Close) == [Close("nothing is left to try")]
    assert sweep.closed
    assert [end.how for end in log.of(End)].count("completed") == 1


def test_nobody_waits_forever_for_a_scheduler_that_decides_nothing() -> None:
    hand = started(settings("halving", trials=2))
    hand.sweep._scheduler.decide = list  # type: ignore[method-assign]
    hand.leg()
    hand.sweep.apply(Report("t0000", 100, 1.0, {}))
    hand.sweep.apply(Decision("t0000", 100, "pause", "waits"))
    hand.sweep.left("t0000")
    hand.leg()
    hand.sweep.ended(End("t0001", "failed", 0, "x"))
    assert isinstance(hand.sweep.next_leg(), Finished)
    assert hand.sweep.trials["t0000"].why == "nothing is left that it could be compared with"


# ---------------------------------------------------------------- workers


def test_free_workers_go_to_the_leader_at_its_next_report_when_nobody_else_can_use_them() -> None:
    hand = started(settings("none", trials=3, scheduler__every_epochs=3), workers=Workers(1, 6, 8))
    hand.legs(2)
    for trial, value in (("t0000", 3.0), ("t0001", 2.0)):
        hand.report(trial, 300, value)
    assert hand.sweep.grow(4) == []  # a third trial may begin
    hand.leg()
    assert hand.sweep.grow(0) == []
    grown = hand.sweep.grow(4)
    assert [(resize.trial, resize.workers) for resize in grown] == [
        ("t0001", 4),
        ("t0000", 2),
    ]  # 5 are no faster than 4
    assert hand.log.entries[-2:] == grown
    assert hand.report("t0001", 600, 1.9) == "leave"
    hand.sweep.left("t0001")
    assert hand.leg(6).workers == 4
    hand.lose("t0000")  # it waits: what has grown gives back at its next report
    assert hand.sweep.grow(1) == []
    assert hand.report("t0001", 900, 1.8) == "leave"
    assert hand.log.of(Resize)[-1] == Resize("t0001", 1, "others wait for the workers")


def test_a_trial_that_has_grown_takes_no_more_workers_than_are_free() -> None:
    hand = started(settings("none", trials=1, scheduler__every_epochs=3), workers=Workers(2, 8, 8))
    assert hand.sweep.next_leg(1) == Wait("a trial has 2 workers, and 1 are free")
    hand.leg(8)
    hand.report("t0000", 300)
    assert [resize.workers for resize in hand.sweep.grow(6)] == [8]
    hand.lose("t0000")
    assert hand.leg(5).workers == 4
    assert hand.log.of(Resize)[-1] == Resize("t0000", 4, "no more workers are free")


def test_nobody_grows_for_its_last_stretch() -> None:
    hand = started(settings("none", trials=1, scheduler__every_epochs=20), workers=Workers(1, 8, 8))
    hand.leg()
    assert hand.sweep.grow(7) == []  # nothing is known of it yet
    hand.report("t0000", 2000)
    assert hand.sweep.grow(7) == []


# ---------------------------------------------------------------- the table


def test_the_table_is_the_same_for_who_reads_the_log() -> None:
    class Faults:
        asked = 0

        def __call__(self, leg: Leg, samples: int) -> Fault | None:
            self.asked += 1
            return Fault("infrastructure", 0.25) if self.asked % 7 == 0 else None

    own = settings("pbt", trials=6)
    sweep, log, _ = interrupted(own, simulation(slots=3, stateful=True, faults=Faults()), 40)
    reader = build(own)
    replay(log.entries, reader)
    assert reader.trials == sweep.trials
    for name in ("best", "decisions", "worker_seconds", "since_best", "halt", "closed", "settings"):
        assert getattr(reader, name) == getattr(sweep, name)
    assert any(trial.losses for trial in reader.trials.values())
    assert any(trial.generation for trial in reader.trials.values())
    spent = sum(trial.worker_seconds for trial in reader.trials.values())
    assert spent == pytest.approx(reader.worker_seconds)
    for trial in reader.trials.values():
        values = [point.value for point in trial.reports if point.value is not None]
        assert trial.best is not None
        assert trial.best.value == min(values)
        assert trial.end is not None
        assert trial.params == trial.generations[trial.generation].params
