"""Sizes, notices and growth: by property, case by case, and simulated at sizes no machine here has."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.elastic.policy import (
    MARGIN_S,
    SLACK,
    Abandon,
    Group,
    Keep,
    Leave,
    Limits,
    Memory,
    Node,
    Progress,
    Start,
    Wait,
    best_size,
    idle,
    lane_steps,
    places,
    running,
    useful_workers,
)
from tests.elastic.simulation import Summary, storm, two_thousand_nodes, years

NOW = 1000.0
LIMITS = Limits(lanes=4, min_workers=1, max_workers=4, settle_s=2.0, resize_interval_s=60.0)
PROGRESS = Progress(steps_left=10_000, step_s=0.5, save_s=1.5, restart_s=8.0)
LEAVE_S = 2.0  # a step and a save
THREE = tuple(Node(name, 1) for name in "abc")
GROUP = Group(("a", "b", "c"), training=True)

_TIMES = st.none() | st.floats(NOW - 5, NOW + 200)
_SECONDS = st.none() | st.floats(0, 30)
_NODES = st.lists(
    st.builds(Node, st.sampled_from("abcdefgh"), st.integers(0, 3), st.booleans(), _TIMES, st.booleans()),
    unique_by=lambda node: node.id,
)
_GROUPS = st.builds(Group, st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8).map(tuple), st.booleans())
_PROGRESS = st.builds(Progress, st.integers(0, 10_000), _SECONDS, _SECONDS, st.floats(0, 60))
_MEMORY = st.builds(
    Memory,
    st.dictionaries(st.sampled_from("abcdefgh"), st.floats(NOW - 10, NOW)),
    st.none() | st.floats(NOW - 100, NOW),
    st.just(()) | st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8).map(tuple),
)


@st.composite
def _limits(draw: st.DrawFn) -> Limits:
    lanes = draw(st.integers(1, 12))
    low = draw(st.integers(1, lanes))
    return Limits(lanes, low, draw(st.integers(low, 16)), draw(st.floats(0, 5)), draw(st.floats(0, 60)))


def decide(nodes: Any, group: Group = GROUP, progress: Progress = PROGRESS, limits: Limits = LIMITS) -> Any:
    """The first decision about a group."""
    return running(NOW, nodes, group, progress, limits, Memory())[0]


def going(deadline: float | None, *names: str) -> tuple[Node, ...]:
    """Three nodes of which some are to go."""
    return tuple(replace(node, draining=node.id in names, deadline=deadline) for node in THREE)


# ---------------------------------------------------------------- sizes


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
def test_useful_sizes_are_each_faster_than_all_smaller_ones(lanes: int, minimum: int, maximum: int) -> None:
    useful = useful_workers(lanes, minimum, maximum)
    allowed = range(minimum, min(maximum, lanes) + 1)
    times = [lane_steps(lanes, workers) for workers in allowed]
    assert useful == [w for w, time in zip(allowed, times, strict=True) if time < min(times[: w - minimum], default=99)]
    for fitting in (None, *range(lanes + 2)):
        fits = [w for w in useful if fitting is None or w <= fitting]
        assert best_size(lanes, minimum, maximum, fitting=fitting) == max(fits, default=0)


@given(_NODES, _limits())
def test_a_start_takes_the_best_size_of_usable_nodes(nodes: list[Node], limits: Limits) -> None:
    usable = [node for node in nodes if not node.draining and not node.lost and node.room]
    best = best_size(limits.lanes, limits.min_workers, limits.max_workers, fitting=sum(node.room for node in usable))
    decision = idle(nodes, limits)
    if best:
        assert decision == Start(best, tuple(node.id for node in usable))
    else:
        assert isinstance(decision, Wait)
        assert f"elastic.min_workers is {limits.min_workers}" in decision.reason


def test_waiting_says_what_is_missing() -> None:
    limits = replace(LIMITS, min_workers=4)
    nodes = [*THREE, Node("0123456789", 1, draining=True), Node("d", 1, lost=True), Node("e", 2, lost=True)]
    nodes += [Node("head", 0, draining=True)]
    assert idle(nodes, limits) == Wait(
        "3 workers fit, elastic.min_workers is 4; node 01234567 is draining; nodes d and e do not answer"
    )
    assert idle(THREE[:1], limits) == Wait("1 worker fits, elastic.min_workers is 4")
    many = [Node(name, 1, draining=True) for name in "abcde"]
    assert idle(many, limits) == Wait("no worker fits, elastic.min_workers is 4; nodes a, b, c and 2 more are draining")


def test_limits_that_allow_no_size_are_refused() -> None:
    with pytest.raises(ValueError, match="no size between 5 and 8 with 4 lanes"):
        Limits(lanes=4, min_workers=5, max_workers=8, settle_s=0, resize_interval_s=0)


# ---------------------------------------------------------------- what holds always


@given(_NODES, _GROUPS, _PROGRESS, _limits(), _MEMORY)
def test_whatever_happens(nodes: list[Node], group: Group, progress: Progress, limits: Limits, memory: Memory) -> None:
    decision, after = running(NOW, nodes, group, progress, limits, memory)
    gone = tuple(node.id for node in nodes if node.draining and node.id in group.nodes)
    assert set(after.since) == {node.id for node in nodes if node.usable}
    assert all(after.since[name] == memory.since.get(name, NOW) for name in after.since)
    if isinstance(decision, Abandon) or (isinstance(decision, Leave) and decision.cause == "preemption"):
        assert decision.nodes == gone != ()
        assert all(name in decision.text for name in gone[:3])
    elif isinstance(decision, Leave):
        start = idle(nodes, limits)
        assert not gone
        assert isinstance(start, Start)
        assert lane_steps(limits.lanes, start.workers) < lane_steps(limits.lanes, len(group.nodes))
        assert group.training
        assert set(decision.nodes).isdisjoint(group.nodes)
        assert after.resized_at == NOW
    else:
        assert after.resized_at == memory.resized_at
    if gone and group.training and not any(node.deadline for node in nodes if node.id in gone):
        assert isinstance(decision, Leave)


@given(_NODES, _GROUPS, _PROGRESS, _limits(), _MEMORY)
def test_a_probe_alone_never_ends_a_group(
    nodes: list[Node], group: Group, progress: Progress, limits: Limits, memory: Memory
) -> None:
    lost = [replace(node, draining=False, lost=node.id in group.nodes or node.lost) for node in nodes]
    other = sum(node.room for node in lost if not node.lost)
    decision, _ = running(NOW, lost, group, progress, limits, memory)
    assert not isinstance(decision, Abandon)
    if isinstance(decision, Leave):  # for a larger size, without the lost ones
        assert decision.cause == "resize"
        assert limits.best(other) > len(group.nodes)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.integers(1, 4),
    st.floats(0, 10),
    st.none() | st.floats(0, 120),
    st.integers(0, 200),
    st.integers(4, 12),
)
def test_a_group_grows_when_and_only_when_it_should(
    rooms: list[int], workers: int, age_s: float, resized_s: float | None, steps_left: int, lanes: int
) -> None:
    nodes = [Node(f"n{i}", room) for i, room in enumerate(rooms)]
    limits = replace(LIMITS, lanes=lanes, max_workers=lanes)
    memory = Memory(
        {node.id: NOW - age_s for node in nodes if node.room}, None if resized_s is None else NOW - resized_s
    )
    group = Group(("n0",) * workers, training=True)
    decision, after = running(NOW, nodes, group, replace(PROGRESS, steps_left=steps_left), limits, memory)
    useful = [size for size in useful_workers(lanes, 1, lanes) if size <= sum(rooms)]
    target = max(useful, default=0)
    faster = 1 - lane_steps(lanes, target) / lane_steps(lanes, workers) if target else 0.0
    pays = steps_left * 0.5 * faster > 2 * 8.0
    calm = age_s >= 2.0 and (resized_s is None or resized_s >= 60.0)
    assert isinstance(decision, Leave) == (target > workers and pays and calm)
    assert after.resized_at == (NOW if isinstance(decision, Leave) else memory.resized_at)


# ---------------------------------------------------------------- notices


def test_a_notice_is_obeyed_at_once() -> None:
    leave = decide(going(NOW + 120, "b"))
    assert leave == Leave("preemption", "node b goes away in 120 s", NOW + 120, ("b",))
    assert decide(going(None, "a", "c")) == Leave("preemption", "nodes a and c go away", None, ("a", "c"))


def test_a_notice_for_another_node_is_none_of_the_groups_business() -> None:
    assert decide((*THREE, Node("d", 1, draining=True, deadline=NOW + 5))) == Keep()
    assert decide(going(NOW + 5, "c"), Group(("a", "b"), training=True)) == Keep()


def test_work_that_is_done_before_the_deadline_is_finished() -> None:
    few = replace(PROGRESS, steps_left=20)
    rest_s = (1 + SLACK) * (20 * 0.5 + 1.5) + MARGIN_S
    decision = decide(going(NOW + rest_s + 0.1, "a"), progress=few)
    assert decision == Keep("node a goes away in 15 s, and the run is done before")
    assert isinstance(decide(going(NOW + rest_s - 0.1, "a"), progress=few), Leave)
    assert isinstance(decide(going(NOW + 999, "a"), progress=replace(few, step_s=None)), Leave)
    assert isinstance(decide(going(None, "a"), progress=few), Leave)


def test_below_the_minimum_the_time_until_the_deadline_is_used() -> None:
    limits = replace(LIMITS, min_workers=3)
    last_s = (1 + SLACK) * LEAVE_S + MARGIN_S
    kept = decide(going(NOW + last_s + 0.1, "a"), limits=limits)
    assert kept == Keep("node a goes away in 4 s; too few workers fit without, so the time is used")
    assert isinstance(decide(going(NOW + last_s - 0.1, "a"), limits=limits), Leave)
    assert isinstance(decide(going(None, "a"), limits=limits), Leave)
    spare = (*going(NOW + 99, "a"), Node("d", 1))
    assert isinstance(decide(spare, limits=limits), Leave)
    one_unknown = (replace(THREE[0], draining=True), replace(THREE[1], draining=True, deadline=NOW + 99), THREE[2])
    assert isinstance(decide(one_unknown, limits=limits), Leave)


def test_what_cannot_be_saved_in_time_is_abandoned() -> None:
    tight = decide(going(NOW + LEAVE_S - 0.1, "a"))
    assert tight == Abandon("preemption", "node a goes away in 2 s, and a step and a save take 2.0 s", ("a",))
    assert isinstance(decide(going(NOW + LEAVE_S + 0.1, "a")), Leave)
    starting = decide(going(NOW + 120, "a"), Group(GROUP.nodes, training=False))
    assert starting == Abandon("preemption", "node a goes away in 120 s, and nothing is there to save", ("a",))
    unknown = Progress(steps_left=9, step_s=None, save_s=None, restart_s=8.0)
    assert isinstance(decide(going(NOW + 1, "a"), progress=unknown), Leave)  # trying costs nothing


def test_leaving_goes_on_while_its_time_runs_out() -> None:
    """A save under way is not judged again by how long a save takes; at the deadline it is too late."""
    nodes, memory = going(NOW + 5, "a"), Memory()
    for passed in (0.0, 3.0, 4.9):
        decision, memory = running(NOW + passed, nodes, GROUP, PROGRESS, LIMITS, memory)
        assert isinstance(decision, Leave)
    second = (nodes[0], replace(nodes[1], draining=True, deadline=NOW + 4.95), nodes[2])
    decision, memory = running(NOW + 4.9, second, GROUP, PROGRESS, LIMITS, memory)
    assert isinstance(decision, Leave)
    assert (decision.deadline, decision.nodes) == (NOW + 4.95, ("a", "b"))
    decision, memory = running(NOW + 5, second, GROUP, PROGRESS, LIMITS, memory)
    assert decision == Abandon("preemption", "nodes a and b go away now, before the group has left", ("a", "b"))
    smaller = Group(("c",), training=True)
    assert running(NOW + 5, second, smaller, PROGRESS, LIMITS, memory)[0] == Keep()


# ---------------------------------------------------------------- growing


def test_growing_waits_until_capacity_has_settled() -> None:
    group, memory = Group(("a", "b"), training=True), Memory()
    nodes = [*THREE[:2], Node("c", 1), Node("d", 1)]
    decision, memory = running(NOW, nodes, group, PROGRESS, LIMITS, memory)
    assert decision == Keep()
    decision, memory = running(NOW + 1.9, nodes, group, PROGRESS, LIMITS, memory)
    assert decision == Keep()
    blip, memory = running(NOW + 2, [*nodes[:3], replace(nodes[3], lost=True)], group, PROGRESS, LIMITS, memory)
    assert blip == Keep()  # 3 workers still have 2 of 4 lanes
    decision, memory = running(NOW + 3, nodes, group, PROGRESS, LIMITS, memory)
    assert decision == Keep()
    decision, memory = running(NOW + 5, nodes, group, PROGRESS, LIMITS, memory)
    assert decision == Leave("resize", "room for 4 workers", None, ("c", "d"))
    assert memory.resized_at == NOW + 5


def test_growing_waits_out_the_interval_and_has_to_pay() -> None:
    group, four = Group(("a", "b"), training=True), [*THREE, Node("d", 1)]
    memory = Memory(since=dict.fromkeys("abcd", NOW - 9), resized_at=NOW - 59)
    kept, after = running(NOW, four, group, PROGRESS, LIMITS, memory)
    assert kept == Keep("room for 4 workers: elastic.resize_interval is over in 1 s")
    assert after.resized_at == NOW - 59
    assert isinstance(running(NOW + 1, four, group, PROGRESS, LIMITS, memory)[0], Leave)
    memory = replace(memory, resized_at=None)
    poor = replace(PROGRESS, steps_left=64)  # half of 64 steps of 0.5 s are 16 s, and twice 8 s are 16 s
    kept, _ = running(NOW, four, group, poor, LIMITS, memory)
    assert kept == Keep("room for 4 workers: would save 16 s and cost about 8 s")
    assert isinstance(running(NOW, four, group, replace(poor, steps_left=65), LIMITS, memory)[0], Leave)
    assert running(NOW, four, group, replace(PROGRESS, step_s=None), LIMITS, memory)[0] == Keep()
    assert running(NOW, four, replace(group, training=False), PROGRESS, LIMITS, memory)[0] == Keep()


# ---------------------------------------------------------------- simulated


def _check(summary: Summary, *, causes: set[str]) -> None:
    assert summary.violations == []
    assert causes <= set(summary.ended)  # the trace had it all
    assert summary.lost["preemption"] == summary.lost["resize"] == 0
    assert summary.steps > 0


CAUSES = {"preemption", "resize", "vanished", "abandoned"}


def test_2000_nodes() -> None:
    summary = two_thousand_nodes()
    assert summary.events == 10_000
    _check(summary, causes={*CAUSES, "vanished before the deadline"})


@pytest.mark.parametrize(("machines", "min_workers", "seed"), [(24, 4, 2), (8, 6, 3), (3, 1, 4)])
def test_years_of_spot_machines(machines: int, min_workers: int, seed: int) -> None:
    summary = years(1, machines=machines, min_workers=min_workers, seed=seed)
    _check(summary, causes=CAUSES)
    assert summary.seconds["training"] > 50 * summary.seconds["recovery"]
    if min_workers == 6:
        assert summary.seconds["waiting"] > 0.1 * summary.seconds["training"]  # often too few machines


def test_a_storm() -> None:
    _check(storm(20, seed=4), causes=CAUSES)
    scarce = storm(20, seed=5, min_workers=9)
    _check(scarce, causes=CAUSES)
    assert scarce.seconds["waiting"] > 0


def test_short_runs_end_in_a_storm() -> None:
    """Each with another trace; some of them are done before the deadline of a notice."""
    for seed in range(40):
        summary = storm(1, seed=seed, min_workers=1, steps=400)
        assert summary.violations == []
        assert summary.steps == 400


def test_a_decision_is_linear_in_the_nodes() -> None:
    """Counted in lines executed, for a notice, for growing and for a start."""

    def lines(count: int, case: str) -> int:
        nodes = [Node(f"n{i}", 1, draining=case == "notice" and i % 9 == 0, deadline=NOW + 60) for i in range(count)]
        limits = Limits(count, count // 2 if case != "notice" else count - 1, count, 0.0, 60.0)
        group = Group(tuple(node.id for node in nodes[: count - 1 if case == "notice" else count // 2]), training=True)
        executed = 0

        def trace(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal executed
            executed += event in ("line", "call")
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            if case == "start":
                idle(nodes, limits)
            else:
                running(NOW, nodes, group, PROGRESS, limits, Memory())
        finally:
            sys.settrace(before)
        return executed

    for case in ("notice", "grow", "start"):
        costs = [lines(count, case) for count in (500, 1000, 2000)]
        assert costs[0] > 500
        assert all(large < 2.1 * small for small, large in pairwise(costs))


def test_processes_stand_by_where_the_group_is_and_where_it_may_be() -> None:
    nodes = [Node("a", 1), Node("b", 2, draining=True), Node("c", 3), Node("d", 2), Node("e", 1, lost=True)]
    assert places(nodes, {"d"}, LIMITS) == {"d": 2, "a": 1, "c": 1}
    assert places(nodes, set(), replace(LIMITS, max_workers=1)) == {"a": 1}
