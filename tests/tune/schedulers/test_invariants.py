"""What holds for every scheduler, at any order of arrivals, with trials that die, diverge or skip a milestone.

The driver checks at every step: see there.
"""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from pliant.tune.schedulers import KINDS
from pliant.tune.settings import SchedulerSettings
from pliant.tune.types import Decision, End, How, Report
from tests.tune.schedulers.driver import Sweep, make, settings

SYNCHRONOUS: list[dict[str, Any]] = [
    {"kind": "halving"},
    {"kind": "hyperband"},
    {"kind": "pbt", "population": 6},
    {"kind": "pb2", "population": 6, "every_epochs": 5.0},
]
ALL: list[dict[str, Any]] = [
    *SYNCHRONOUS,
    {"kind": "none"},
    {"kind": "none", "every_epochs": 4.0},
    {"kind": "asha"},
    {"kind": "asha", "brackets": 3, "eta": 2, "first_epochs": 1.0},
    {"kind": "median"},
    {"kind": "pbt", "population": 6, "sync": False},
    {"kind": "pb2", "population": 5, "sync": False, "quantile": 0.5, "every_epochs": 5.0},
]
_HOWS: tuple[How, ...] = ("failed", "diverged", "out-of-memory")
_DEATHS = st.dictionaries(st.tuples(st.integers(0, 20), st.integers(0, 3)), st.sampled_from(_HOWS), max_size=8)
_BATCHES = st.sampled_from(
    [lambda number: 10, lambda number: (10, 64, 128)[number % 3], lambda number: 10 + 600 * number]
)


def _name(kind: dict[str, Any]) -> str:
    return " ".join(str(value) for value in kind.values())


def test_every_kind_of_the_settings_is_registered_and_checked_here() -> None:
    kinds = set(get_args(SchedulerSettings.model_fields["kind"].annotation))
    assert kinds == set(KINDS) == {kind["kind"] for kind in ALL}


@pytest.mark.parametrize("kind", ALL, ids=_name)
@given(order=st.integers(0, 10**6), slots=st.integers(1, 8), trials=st.integers(6, 20), deaths=_DEATHS, batch=_BATCHES)
@budget(max_examples=25)
def test_everybody_is_decided_once_and_nobody_is_left(
    kind: dict[str, Any], order: int, slots: int, trials: int, deaths: dict[tuple[int, int], How], batch: Any
) -> None:
    own = settings(trials=trials, slots=slots, **kind)
    sweep = Sweep(make(own), own, order=order, dies=deaths, batch=batch).run()
    ends = [entry.trial for entry in sweep.log if isinstance(entry, End)]
    assert sorted(ends) == sorted(sweep.trials)  # each ends, and once
    assert len(ends) >= min(trials, kind.get("population", trials))
    for entry, after in zip(sweep.log, sweep.log[1:], strict=False):
        if isinstance(entry, Report):
            assert isinstance(after, Decision)
            assert after.trial == entry.trial


@pytest.mark.parametrize("kind", ALL, ids=_name)
@given(data=st.data(), seed=st.integers(0, 3))
@budget(max_examples=15)
def test_a_sweep_cut_anywhere_and_replayed_goes_on_as_if_it_had_not_been(
    kind: dict[str, Any], data: st.DataObject, seed: int
) -> None:
    own = settings(trials=12, seed=seed, slots=1, **kind)
    whole = Sweep(make(own), own).run()
    cut = data.draw(st.integers(0, len(whole.log)))
    again = Sweep(make(own), own).replay(whole.log[:cut], ask=data.draw(st.booleans())).run()
    assert again.log == whole.log


@pytest.mark.parametrize("kind", ALL, ids=_name)
@given(order=st.integers(0, 10**6), cut=st.floats(0, 1))
@budget(max_examples=15)
def test_recorded_reports_give_the_recorded_decisions(kind: dict[str, Any], order: int, cut: float) -> None:
    own = settings(trials=12, **kind)
    log = Sweep(make(own), own, order=order).run().log
    again = Sweep(make(own), own)
    for entry in log[: int(cut * len(log))]:
        if isinstance(entry, Decision):
            assert again.scheduler.decide()[0] == entry
        again.tell(entry)


@pytest.mark.parametrize("kind", SYNCHRONOUS, ids=_name)
@given(
    orders=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    slots=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    deaths=_DEATHS,
    batch=_BATCHES,
)
@budget(max_examples=25)
def test_synchronous_schedulers_decide_the_same_in_the_same_order_whoever_is_faster(
    kind: dict[str, Any],
    orders: tuple[int, int],
    slots: tuple[int, int],
    deaths: dict[tuple[int, int], How],
    batch: Any,
) -> None:
    own = settings(trials=20, **kind)
    one, other = (
        Sweep(make(own), own.model_copy(update={"slots": n}), order=order, dies=deaths, batch=batch).run()
        for order, n in zip(orders, slots, strict=True)
    )
    assert one.together() == other.together()
    assert len(one.together()) >= 3
    assert set(map(repr, one.decisions())) == set(map(repr, other.decisions()))


@pytest.mark.parametrize("kind", ALL, ids=_name)
def test_what_is_logged_is_followed_whatever_would_have_been_decided(kind: dict[str, Any]) -> None:
    """An older version decided otherwise: those that it stopped are stopped, and everybody comes to an end."""
    own = settings(trials=12, **kind)
    log = Sweep(make(own), own, order=5).run(most=60).log
    last = next(i for i in range(len(log) - 1, -1, -1) if isinstance(log[i], Decision) and log[i].action != "stop")
    assert isinstance(log[last], Decision)
    stop = Decision(log[last].trial, log[last].samples, "stop", "an older rule")
    sweep = Sweep(make(own), own).replay([*log[:last], stop])
    assert stop.trial not in [decision.trial for decision in sweep.scheduler.decide()]
    sweep.run()
    assert [decision for decision in sweep.decisions() if decision.trial == stop.trial][-1] == stop
