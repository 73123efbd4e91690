"""Nodes as the cluster has them, and whether they answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from pliant.elastic.nodes import Address, answers, going, look, room, silent
from pliant.elastic.policy import Node


@pytest.fixture
def mute() -> Iterator[Address]:
    """A port that takes connections and says nothing, as that of a process which was stopped."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Address("127.0.0.1", server.getsockname()[1])


@pytest.fixture
def closed() -> Address:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return Address("127.0.0.1", port)


def test_a_port_that_says_nothing_does_not_answer(mute: Address, closed: Address) -> None:
    assert not answers(mute, timeout_s=0.05)
    assert not answers(closed, timeout_s=0.05)


def test_all_are_asked_at_once(mute: Address, closed: Address) -> None:
    asked = {f"mute-{i}": mute for i in range(40)} | {"closed": closed}
    before = set(threading.enumerate())
    assert silent(asked, timeout_s=0.2) == frozenset(asked)
    assert silent({}) == frozenset()
    assert not [thread for thread in threading.enumerate() if thread not in before]


def test_room_is_what_the_scarcest_resource_holds() -> None:
    assert room({"CPU": 8.0, "GPU": 2.0}, {"CPU": 1.0, "GPU": 1.0}) == 2
    assert room({"CPU": 0.3}, {"CPU": 0.1}) == 3
    assert room({"CPU": 8.0}, {"CPU": 1.0, "GPU": 1.0}) == 0


@pytest.mark.ray
@pytest.mark.slow
def test_a_raylet_answers(ray_cluster: None) -> None:
    found = look({"CPU": 1.0})
    (node,) = found.nodes
    assert (node.room, node.draining, node.deadline, node.lost) == (4, False, None, False)
    assert silent(found.addresses) == frozenset()
    assert [n.lost for n in found.without([node.id])] == [True]
    assert look({"CPU": 3.0}, free=True).nodes[0].room == 1


def test_ranks_whose_nodes_go_away_or_do_not_answer() -> None:
    nodes = [Node("a" * 12, 1, draining=True), Node("b" * 12, 1), Node("c" * 12, 1, draining=True)]
    members = ("b" * 12, "a" * 12, "d" * 12, "c" * 12, "f" * 12)
    assert going(members, nodes, lost=["d" * 12, "c" * 12, "e" * 12]) == {
        1: "node aaaaaaaa goes away",
        2: "node dddddddd does not answer",
        3: "node cccccccc goes away",
        4: "node ffffffff is gone",
    }
