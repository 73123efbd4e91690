"""Nodes that do not answer count as gone when they were asked twice, and come back when they answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pliant.elastic.nodes import Address
from pliant.elastic.silence import Silence


@contextmanager
def listening(*, answers: bool) -> Iterator[Address]:
    """A port that says a word to everyone who connects, or takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # closed
                    return
                with connection:
                    connection.sendall(b"x")

        if answers:
            threading.Thread(target=talk, daemon=True).start()
        yield Address("127.0.0.1", server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def alive() -> Iterator[Address]:
    with listening(answers=True) as address:
        yield address


@pytest.fixture
def mute() -> Iterator[Address]:
    with listening(answers=False) as address:
        yield address


def looks(silence: Silence, nodes: set[str], addresses: dict[str, Address], count: int) -> list[frozenset[str]]:
    """What comes of so many rounds of asking."""
    found = []
    for _ in range(count):
        if silence._answer is not None:
            silence._answer.result()
        found.append(silence.look(nodes, addresses))
    return found


def test_gone_is_what_does_not_answer_twice(alive: Address, mute: Address) -> None:
    silence, addresses = Silence(), {"a": alive, "b": mute}
    assert looks(silence, {"a", "b"}, addresses, 3) == [frozenset(), frozenset(), frozenset("b")]
    assert silence.lost == {"b"}


def test_a_group_that_answers_again_is_left_alone(mute: Address) -> None:
    silence = Silence()
    assert looks(silence, {"b"}, {"b": mute}, 2) == [frozenset(), frozenset()]
    assert looks(silence, set(), {"b": mute}, 1) == [frozenset()]
    assert silence.lost == frozenset()


def test_what_was_asked_about_another_group_means_nothing(mute: Address) -> None:
    silence = Silence()
    looks(silence, {"b"}, {"b": mute}, 2)
    silence.begin()
    assert looks(silence, {"b"}, {"b": mute}, 2) == [frozenset(), frozenset()]


def test_lost_nodes_that_answer_again_count_as_new_room(mute: Address) -> None:
    silence = Silence()
    silence.ask({"b": mute, "c": mute})
    assert silence.lost == {"b", "c"}
    looks(silence, set(), {"b": mute}, 1)
    assert silence.lost == {"b"}, "the other one is no node any more"
    with listening(answers=True) as again:
        silence.begin()
        looks(silence, set(), {"b": again}, 2)
        assert silence.lost == frozenset()
