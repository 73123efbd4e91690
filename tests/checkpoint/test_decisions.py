"""Retention and interval, by property."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pliant.checkpoint.interval import Losses, losses_of, next_interval, save_cost
from pliant.checkpoint.retention import Removal, Stored, plan_removal
from pliant.storage.layout import CheckpointRef
from pliant.storage.snapshot import AttemptInfo
from pliant.storage.types import ObjectInfo
from pliant.storage.view import Claim

_REFS = st.builds(CheckpointRef, st.integers(0, 40), st.integers(1, 3))
_STORED = st.lists(
    st.builds(Stored, _REFS, st.none() | st.floats(allow_nan=True, allow_infinity=True), st.booleans(), st.booleans()),
    unique_by=lambda s: s.ref,
    max_size=20,
)
_RULES = st.fixed_dictionaries(
    {
        "keep_last": st.integers(1, 4),
        "keep_best": st.integers(0, 3),
        "better": st.sampled_from(["min", "max"]),
        "keep_every_steps": st.none() | st.integers(1, 7),
    }
)


@given(_STORED, _RULES, st.sets(_REFS, max_size=3))
def test_what_is_kept(stored: list[Stored], rules: dict, pinned: set[CheckpointRef]) -> None:
    removal = plan_removal(stored, **rules, pinned=pinned)
    gone = set(removal.mark) | set(removal.delete)
    newest_first = sorted(stored, key=lambda s: s.ref, reverse=True)
    assert not gone & pinned
    assert not gone & {s.ref for s in newest_first[:1]}
    assert not gone & {s.ref for s in stored if not s.intact}
    assert not gone & {s.ref for s in [s for s in newest_first if s.intact][: rules["keep_last"]]}
    if every := rules["keep_every_steps"]:
        assert all(ref.step % every for ref in gone)
    measured = [s for s in stored if s.intact and s.metric is not None and not math.isnan(s.metric)]
    sign = 1 if rules["better"] == "min" else -1
    for lost in (s for s in measured if s.ref in gone):
        better = [s for s in measured if s.ref not in gone and sign * s.metric <= sign * lost.metric]
        assert len(better) >= rules["keep_best"]


@given(_STORED, _RULES)
def test_removal_has_two_phases(stored: list[Stored], rules: dict) -> None:
    removal = plan_removal(stored, **rules)
    marked = {s.ref for s in stored if s.marked}
    assert set(removal.delete) <= marked
    assert not set(removal.mark) & marked
    after = [Stored(s.ref, s.metric, s.marked or s.ref in removal.mark, s.intact) for s in stored]
    later = plan_removal([s for s in after if s.ref not in removal.delete], **rules)
    assert later == Removal(mark=(), delete=removal.mark)


@given(_STORED, _RULES)
def test_no_more_is_kept_than_asked_for(stored: list[Stored], rules: dict) -> None:
    removal = plan_removal(stored, **(rules | {"keep_every_steps": None}))
    kept = sum(s.intact for s in stored) - len(removal.mark) - len(removal.delete)
    assert kept <= 1 + rules["keep_last"] + rules["keep_best"]


def test_of_equally_good_ones_the_newer_is_kept() -> None:
    stored = [Stored(CheckpointRef(step, 1), metric=0.5) for step in range(1, 5)]
    removal = plan_removal(stored, keep_last=1, keep_best=1, better="max", keep_every_steps=None)
    assert removal.mark == tuple(CheckpointRef(step, 1) for step in (1, 2, 3))


_SECONDS = st.just(0.0) | st.floats(1e-6, 1e4)  # below, products lose their digits


@given(st.lists(_SECONDS, max_size=5), st.floats(0.001, 0.5), _SECONDS, st.floats(0.1, 1e4), st.none() | _SECONDS)
def test_the_interval_keeps_within_the_overhead_or_says_so(
    costs: list[float], overhead: float, shortest: float, longest: float, between: float | None
) -> None:
    bounds = {"overhead": overhead, "min_interval": shortest, "max_interval": longest}
    interval = next_interval(costs, **bounds, between_losses_s=between)
    calm = next_interval(costs, **bounds)
    assert interval.seconds >= calm.seconds  # losses never make saves cost more
    assert interval.over_budget == calm.over_budget
    assert interval.seconds <= longest
    assert interval.seconds >= min(shortest, longest)
    assert interval.over_budget or interval.overhead <= overhead * (1 + 1e-9)
    if interval.over_budget:
        assert interval.seconds == longest
        assert interval.overhead > overhead * (1 - 1e-9)
    mean = sum(costs) / len(costs) if costs else 0.0
    assert interval.overhead * interval.seconds >= mean * (1 - 1e-9)


def test_interval_examples() -> None:
    bounds = {"overhead": 0.035, "min_interval": 10.0, "max_interval": 600.0}
    assert next_interval([], **bounds).seconds == 10.0
    assert next_interval([0.7], **bounds).seconds == 0.7 / 0.035
    assert next_interval([42.0], **bounds) == next_interval([42.0, 42.0], **bounds)
    assert next_interval([42.0], **bounds).over_budget
    assert next_interval([42.0], **bounds).overhead == 0.07


def test_the_interval_follows_the_losses() -> None:
    bounds = {"overhead": 0.035, "min_interval": 10.0, "max_interval": 600.0}
    often = next_interval([0.7], **bounds, between_losses_s=60.0)
    assert often == next_interval([0.7], **bounds)  # √(2 · 0.7 · 60) s is less than saves of 0.7 s may cost
    daily = next_interval([0.7], **bounds, between_losses_s=86_400.0)
    assert daily.seconds == math.sqrt(2 * 0.7 * 86_400.0)
    assert daily.overhead < 0.0021
    assert next_interval([0.7], **bounds, between_losses_s=1e7).seconds == 600.0
    assert next_interval([], **bounds, between_losses_s=60.0).seconds == 10.0


@given(st.floats(0.01, 10), st.floats(10, 1e5))
def test_no_other_interval_costs_less(cost: float, between: float) -> None:
    """Saves, and half an interval for each loss, at √(2CM) and a little beside it."""
    best = next_interval([cost], overhead=0.99, min_interval=0, max_interval=1e9, between_losses_s=between).seconds

    def share(seconds: float) -> float:
        return cost / seconds + seconds / 2 / between

    if best > cost / 0.99:
        assert share(best) <= min(share(0.9 * best), share(1.1 * best))


def _attempt(number: int, kind: str, driver: int, began: float, **ends: float) -> AttemptInfo:
    objects = {"claim.json": began, **{f"{name}.json": at for name, at in ends.items()}}
    found = {name: ObjectInfo(name, 1, at) for name, at in objects.items()}
    return AttemptInfo(Claim(number, "driver" if kind == "driver" else "group", driver), found)


def test_losses_are_counted_over_the_time_that_groups_ran() -> None:
    first = [
        _attempt(1, "driver", 1, 0.0, heartbeat=500.0),
        _attempt(2, "group", 1, 10.0),  # lost; the next one began at 110
        _attempt(3, "group", 1, 110.0, stop=210.0),  # left for a resize
        _attempt(4, "group", 1, 215.0),  # lost with its driver, last heard of at 500
    ]
    later = [_attempt(5, "driver", 5, 90_000.0, heartbeat=90_060.0), _attempt(6, "group", 5, 90_010.0)]
    losses = losses_of([*first, *later])  # the newest is the one that asks
    assert losses == Losses(2, 100.0 + 100.0 + 285.0)
    assert losses.mean_time_between() == 485.0 / 2
    assert losses.mean_time_between(more_s=15.0) == 250.0
    assert losses_of(first[:2]) == losses_of([]) == Losses()
    assert Losses(0, 1000.0).mean_time_between(10.0) is None


def test_cost_is_stall_and_slower_steps() -> None:
    assert save_cost(0.5, 10, 1.25, 1.0) == 3.0
    assert save_cost(0.5, 10, 0.9, 1.0) == 0.5  # faster steps are chance, not gain
