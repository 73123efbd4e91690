"""Processes that stand by: as many as are wanted, where they are wanted, and only those that answer become workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import ray

from pliant.elastic.spares import Spares

pytestmark = [pytest.mark.ray, pytest.mark.slow]

HERE, ELSEWHERE = "node-a", "node-b"
"""Names of nodes for the bookkeeping; all processes run on the one node there is."""


class Process:
    """What is asked of Ray Train's worker actors."""

    def execute(self, function: Callable[[], Any]) -> Any:
        return function()

    def get_metadata(self) -> int:
        return os.getpid()


def nothing() -> None: ...


def fails() -> None:
    raise ModuleNotFoundError("no such pipeline")


def pid(actor: Any) -> int:
    return int(ray.get(actor.get_metadata.remote()))


def gone(number: int) -> bool:
    psutil.wait_procs([psutil.Process(number)] if psutil.pid_exists(number) else [], timeout=30)
    return not psutil.pid_exists(number)


@pytest.fixture
def made(ray_cluster: None) -> Iterator[list[tuple[str, Any]]]:
    """Node and actor of all that were made, in order."""
    made: list[tuple[str, Any]] = []
    yield made
    for _, actor in made:
        ray.kill(actor)


def spares_of(made: list[tuple[str, Any]], warm_up: Callable[[], None] = nothing) -> Spares:
    def make(node: str) -> Any:
        made.append((node, ray.remote(num_cpus=0)(Process).remote()))
        return made[-1][1]

    return Spares(make, warm_up)


def ready(spares: Spares, made: list[tuple[str, Any]]) -> list[int]:
    """Their process ids, once all of them are ready."""
    numbers = [pid(actor) for _, actor in made]
    assert not spares.getting_ready, "what was asked first is answered first"
    return numbers


def test_as_many_as_are_wanted_and_no_more(made: list[tuple[str, Any]]) -> None:
    spares = spares_of(made)
    spares.keep({HERE: 2})
    spares.keep({HERE: 2})
    assert [node for node, _ in made] == [HERE, HERE]
    first, second = ready(spares, made)
    spares.keep({HERE: 1, ELSEWHERE: 1})
    assert [node for node, _ in made] == [HERE, HERE, ELSEWHERE]
    assert gone(second)
    spares.keep({})
    assert gone(first)
    assert spares.take({0: HERE, 1: ELSEWHERE}) == {}


def test_those_that_answer_are_taken_once(made: list[tuple[str, Any]]) -> None:
    spares = spares_of(made)
    spares.keep({HERE: 1, ELSEWHERE: 1})
    numbers = ready(spares, made)
    taken = spares.take({3: ELSEWHERE, 5: HERE, 7: HERE})
    assert {place: about for place, (_, about) in taken.items()} == {3: numbers[1], 5: numbers[0]}
    assert pid(taken[3][0]) == numbers[1]
    assert spares.take({0: HERE, 1: ELSEWHERE}) == {}


def test_one_that_was_killed_since_is_not_taken(made: list[tuple[str, Any]]) -> None:
    spares = spares_of(made)
    spares.keep({HERE: 2})
    numbers = ready(spares, made)
    os.kill(numbers[0], signal.SIGKILL)
    assert gone(numbers[0])
    taken = spares.take({0: HERE, 1: HERE})
    assert [about for _, about in taken.values()] == [numbers[1]]


def test_one_that_could_not_get_ready_makes_way_for_another(made: list[tuple[str, Any]]) -> None:
    spares = spares_of(made, fails)
    spares.keep({HERE: 1})
    (failed,) = ready(spares, made)
    spares.keep({HERE: 1})
    assert len(made) == 2
    assert gone(failed)
