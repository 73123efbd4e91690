"""Traces of faults: the same seed gives the same one, and what is written is what happens."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.cluster.trace import FAULTS, Event, Target, choose, parse_event, parse_fault, random_trace

NODES = [Target("c3", "node-3", False), Target("a1", "node-1", True), Target("b2", "node-2", False)]


@given(st.integers(), st.sampled_from([["kill"], ["kill", "drain"], list(FAULTS)]))
def test_a_seed_gives_one_trace(seed: int, faults: list) -> None:
    first, second = (list(islice(random_trace(faults, every_s=60, seed=seed), 50)) for _ in range(2))
    assert first == second
    assert all(a.at_s < b.at_s for a, b in pairwise(first))
    assert all(event.fault in faults and 0 <= event.pick < 1 and not event.node for event in first)


def test_the_mean_gap_is_the_one_that_is_asked_for() -> None:
    events = list(islice(random_trace(["kill", "kill", "drain"], every_s=60, seed=7), 20_000))
    assert events[-1].at_s / len(events) == pytest.approx(60, rel=0.03)
    assert sum(event.fault == "kill" for event in events) / len(events) == pytest.approx(2 / 3, rel=0.03)


def test_the_numbers_of_a_trace_stay_what_they_are() -> None:
    events = islice(random_trace(["kill", "drain"], every_s=60, seed=1), 4)
    assert [(round(event.at_s, 3), event.fault, round(event.pick, 3)) for event in events] == [
        (8.657, "drain", 0.764),
        (26.325, "kill", 0.449),
        (89.588, "drain", 0.094),
        (91.314, "drain", 0.433),
    ]


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("0s:kill", Event(0, "kill")),
        ("30s:drain:node-2", Event(30, "drain", "node-2")),
        ("2min:vanish:driver", Event(120, "vanish", "driver")),
        ("1.5:corrupt", Event(1.5, "corrupt")),
    ],
)
def test_an_event_is_read(text: str, event: Event) -> None:
    assert parse_event(text) == event


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drain", "'drain' does not begin with a time; write it as in 30s:drain or 2min:kill:node-2"),
        ("soon:drain", "'soon:drain' does not begin with a time; write it as in 30s:drain or 2min:kill:node-2"),
        ("-1s:drain", "'-1s:drain' does not begin with a time; write it as in 30s:drain or 2min:kill:node-2"),
        ("30s:drown", f"'drown' is no fault; there are {', '.join(FAULTS)}"),
        ("30s:drain:", "'30s:drain:' names no node behind its last colon"),
        ("30s:corrupt:node-2", "'30s:corrupt:node-2': corrupt hits the run's storage, not a node"),
    ],
)
def test_what_is_no_event_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        parse_event(text)
    assert str(raised.value) == message


def test_every_fault_is_read() -> None:
    assert [parse_fault(name) for name in FAULTS] == list(FAULTS)


@given(st.floats(0, 1, exclude_max=True), st.permutations(NODES))
def test_the_drivers_node_is_never_picked_and_the_order_of_nodes_is_nothing(pick: float, nodes: list[Target]) -> None:
    found = choose(Event(0, "kill", pick=pick), nodes)
    assert not found.driver
    assert found == choose(Event(0, "kill", pick=pick), NODES)


@pytest.mark.parametrize(
    ("name", "id"), [("node-2", "b2"), ("c", "c3"), ("driver", "a1"), ("node-1", "a1"), ("a1", "a1")]
)
def test_a_node_is_named_by_name_by_the_beginning_of_its_id_or_as_the_drivers(name: str, id: str) -> None:
    assert choose(Event(0, "drain", name), NODES).id == id


def test_who_cannot_be_hit_is_said() -> None:
    listed = "there are node-1 (a1) (the driver is there), node-2 (b2), node-3 (c3)"
    with pytest.raises(ValueError, match=r"^there is no node beside the driver's$"):
        choose(Event(0, "kill"), NODES[1:2])
    with pytest.raises(ValueError, match="node-9") as raised:
        choose(Event(0, "kill", "node-9"), NODES)
    assert str(raised.value) == f"no node is 'node-9'; {listed}"
    with pytest.raises(ValueError, match=r"^several nodes are 'b'; "):
        choose(Event(0, "kill", "b"), [*NODES, Target("b9", "node-4", False)])
    with pytest.raises(ValueError, match=r"there are none$"):
        choose(Event(0, "kill", "b"), [])
