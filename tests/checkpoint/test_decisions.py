"""Retention and interval, by property."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pliant.checkpoint.interval import next_interval, save_cost
from pliant.checkpoint.retention import Removal, Stored, plan_removal
from pliant.storage.layout import CheckpointRef

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


_SECONDS = st.floats(0, 1e4)


@given(st.lists(_SECONDS, max_size=5), st.floats(0.001, 0.5), _SECONDS, st.floats(0.1, 1e4))
def test_the_interval_keeps_within_the_overhead_or_says_so(
    costs: list[float], overhead: float, shortest: float, longest: float
) -> None:
    interval = next_interval(costs, overhead=overhead, min_interval=shortest, max_interval=longest)
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


def test_cost_is_stall_and_slower_steps() -> None:
    assert save_cost(0.5, 10, 1.25, 1.0) == 3.0
    assert save_cost(0.5, 10, 0.9, 1.0) == 0.5  # faster steps are chance, not gain
