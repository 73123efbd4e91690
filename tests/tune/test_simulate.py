"""Whole sweeps on a virtual clock: what is decided does not depend on when, or how often, the driver is killed."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from pliant.tune.decisions import verify
from pliant.tune.draws import unit
from pliant.tune.simulate import Fault
from pliant.tune.sweep import Finished, Leg
from pliant.tune.table import Workers
from pliant.tune.types import Cause, Decision, End, Loss, Report, Resize
from tests.tune.sweeps import build, choices, interrupted, settings, simulation, uninterrupted

KINDS = ("none", "asha", "halving", "hyperband", "median", "pbt")
SYNCHRONOUS = ("halving", "hyperband", "pbt")
ALL = (*KINDS, "pb2")
MODELS = ("tpe", "bohb")
CAUSES: tuple[Cause, ...] = ("preemption", "infrastructure", "user", "out-of-memory")


def stateful(kind: str) -> bool:
    return kind in ("pbt", "pb2")


@pytest.mark.parametrize("kind", ALL)
def test_a_sweep_ends_and_the_best_is_what_was_reported_best(kind: str) -> None:
    sweep, log = uninterrupted(settings(kind, trials=8), simulation(slots=3, stateful=stateful(kind)))
    last = sweep.next_leg()
    assert isinstance(last, Finished)
    assert last.reason == "done"
    assert len(sweep.trials) >= 8
    assert all(trial.end is not None for trial in sweep.trials.values())
    assert any(end.how == "completed" for end in log.of(End))
    values = [report.value for report in log.of(Report) if report.value is not None]
    assert sweep.best is not None
    assert sweep.best.value == min(values)
    donor = next(r for r in log.of(Report) if r.value == sweep.best.value)
    assert (sweep.best.trial, sweep.best.samples, sweep.best.generation) == (
        donor.trial,
        donor.samples,
        donor.generation,
    )


@examples(max_examples=40)
@given(
    kind=st.sampled_from(KINDS),
    every=st.integers(1, 12),
    seed=st.integers(0, 30),
    trials=st.integers(4, 9),
    hours=st.none() | st.floats(0.1, 1.0),
    plateau=st.none() | st.integers(2, 4),
)
def test_killed_after_every_so_many_entries_with_one_slot_it_writes_the_same_log(
    kind: str, every: int, seed: int, trials: int, hours: float | None, plateau: int | None
) -> None:
    own = settings(kind, trials=trials, seed=seed, budget__worker_hours=hours, budget__plateau_trials=plateau)
    whole, log = uninterrupted(own, simulation(stateful=stateful(kind)))
    again, torn, kills = interrupted(own, simulation(stateful=stateful(kind)), every)
    assert kills > 0 or len(log.entries) <= every
    assert torn.entries == log.entries
    assert again.best == whole.best


@pytest.mark.parametrize(
    ("kind", "searcher"), [("pb2", "random"), ("asha", "tpe"), ("halving", "bohb"), ("none", "grid")]
)
def test_models_propose_the_same_after_a_kill(kind: str, searcher: str) -> None:
    own = settings(kind, trials=6, searcher=searcher, **({"searcher__startup_trials": 2} if searcher in MODELS else {}))
    _, log = uninterrupted(own, simulation(stateful=stateful(kind)))
    _, torn, kills = interrupted(own, simulation(stateful=stateful(kind)), 20)
    assert kills > 0
    assert torn.entries == log.entries


@examples(max_examples=12)
@given(kind=st.sampled_from(SYNCHRONOUS), every=st.integers(3, 15), seed=st.integers(0, 30), slots=st.integers(2, 5))
def test_killed_with_several_slots_a_synchronous_sweep_decides_the_same(
    kind: str, every: int, seed: int, slots: int
) -> None:
    own = settings(kind, trials=9, seed=seed)
    whole, log = uninterrupted(own, simulation(slots=slots, stateful=stateful(kind)))
    again, torn, kills = interrupted(own, simulation(slots=slots, stateful=stateful(kind)), every)
    assert kills > 0
    assert choices(torn) == choices(log)
    assert again.best == whole.best


@examples(max_examples=20)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 100), slots=st.integers(1, 6))
def test_what_was_decided_follows_from_the_log_with_any_number_of_slots(kind: str, seed: int, slots: int) -> None:
    own = settings(kind, trials=8, seed=seed)
    _, log, _ = interrupted(own, simulation(slots=slots, stateful=stateful(kind)), 15)
    assert verify(log.entries, lambda new, space: build(new)) is None


@examples(max_examples=20)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 100), slots=st.integers(1, 4), every=st.integers(3, 40))
def test_no_trial_is_lost_none_is_finished_twice(kind: str, seed: int, slots: int, every: int) -> None:
    own = settings(kind, trials=8, seed=seed)
    machines = simulation(slots=slots, stateful=stateful(kind), faults=_Losses(every=3))
    sweep, log, _ = interrupted(own, machines, every)
    assert sorted(end.trial for end in log.of(End)) == sorted(sweep.trials)
    reached = [(r.trial, r.generation, r.samples) for r in log.of(Report)]
    assert len(set(reached)) == len(reached)
    # A kill may come before each of the losses: then none is logged.
    assert all(end.how != "failed" for end in log.of(End))


class _Losses:
    """Every so many pieces of work a machine goes away, with notice: whoever works there is preempted."""

    def __init__(self, every: int) -> None:
        self._every, self._asked = every, 0

    def __call__(self, leg: Leg, samples: int) -> Fault | None:
        self._asked += 1
        return Fault("preemption") if self._asked % self._every == 0 else None


@examples(max_examples=40)
@given(
    kind=st.sampled_from(KINDS),
    sync=st.booleans(),
    seed=st.integers(0, 1000),
    slots=st.integers(1, 5),
    share=st.floats(0.05, 0.5),
)
def test_whatever_befalls_its_trials_a_sweep_ends_and_can_be_verified(
    kind: str, sync: bool, seed: int, slots: int, share: float
) -> None:
    given_sync = {"scheduler__sync": sync} if kind == "pbt" else {}
    own = settings(kind, trials=6, seed=seed, max_failures=1, **given_sync)
    asked = count()

    def faults(leg: Leg, samples: int) -> Fault | None:
        number = next(asked)
        if unit(seed, "whether", number) >= share:
            return None
        cause = CAUSES[int(unit(seed, "cause", number) * len(CAUSES))]
        return Fault(cause, 0.5, f"error {int(unit(seed, 'error', number) * 3)}")

    sweep, log, _ = interrupted(own, simulation(slots=slots, stateful=stateful(kind), faults=faults), 25)
    last = sweep.next_leg()
    assert isinstance(last, Finished)
    assert len(sweep.trials) <= 12
    if last.reason == "done":
        assert all(trial.end is not None for trial in sweep.trials.values())
    assert len({end.trial for end in log.of(End)}) == len(log.of(End))
    assert verify(log.entries, lambda new, space: build(new)) is None


def test_losses_change_no_decision_of_a_synchronous_sweep() -> None:
    own = settings("halving", trials=27)
    _, undisturbed = uninterrupted(own, simulation(slots=4))
    _, disturbed = uninterrupted(own, simulation(slots=4, faults=_Losses(every=4)))
    assert len(disturbed.of(Loss)) > 10
    assert choices(disturbed) == choices(undisturbed)


def test_more_slots_take_less_time_and_train_no_more() -> None:
    own = settings("halving", trials=27)
    alone, many = simulation(slots=1), simulation(slots=9)
    uninterrupted(own, alone)
    uninterrupted(own, many)
    assert many.samples == alone.samples
    assert many.now < alone.now / 2


def test_clones_go_on_from_their_donors_state() -> None:
    sweep, log = uninterrupted(settings("pbt", trials=6), simulation(slots=3, stateful=True))
    clones = [d for d in log.of(Decision) if d.action == "exploit"]
    assert clones
    for decision in clones:
        donor = next(p for p in sweep.trials[decision.donor].reports if p.samples == decision.donor_samples)
        clone = sweep.trials[decision.trial]
        first = next(p for p in clone.reports if p.generation > 0 and p.samples > decision.donor_samples)
        assert donor.value is not None
        assert first.value < donor.value  # with its own state it would be behind


def test_thousands_of_trials() -> None:
    sweep, log = uninterrupted(settings("asha", trials=2000), simulation(slots=16))
    assert len(sweep.trials) >= 2000
    assert len(log.of(End)) == len(sweep.trials)


def test_workers_that_nobody_needs_go_to_the_leaders() -> None:
    own, workers = settings("halving", trials=9), Workers(usual=1, most=4, lanes=8)
    fixed, grown = simulation(slots=9, workers=9), simulation(slots=9, workers=9)
    undisturbed, plain = uninterrupted(own, fixed)
    sweep, log = uninterrupted(own, grown, workers)
    assert choices(log) == choices(plain)
    assert grown.now < fixed.now
    assert {resize.workers for resize in log.of(Resize)} <= {1, 2, 4}
    assert sweep.best == undisturbed.best
