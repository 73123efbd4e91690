"""A cluster of several nodes on this machine: nodes come, go and come back, and nothing stays behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.train.scratch import scratch_directory
from tests.cluster.nodes import Nodes, gone_all, until

pytestmark = pytest.mark.slow


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch_directory("pliant-ray-") as folder:
        yield Path(folder)
    assert not Path(folder).exists()


def test_nodes_come_go_and_come_back(folder: Path) -> None:
    before = set(folder.parent.iterdir())
    with Nodes(folder, nodes=2, back_after=0.2) as nodes:
        assert sorted(nodes.alive().values()) == ["node-1", "node-2"]
        head, second = nodes.raylets()
        os.killpg(nodes.process.pid, signal.SIGTERM)  # as timeout(1) does: it is for the owner alone
        added = nodes.ask("add")
        assert list(nodes.raylets()) == [head, second, added]
        assert nodes.alive()[added] == "node-3"

        os.kill(nodes.raylets()[second], signal.SIGKILL)
        again = until(lambda: next((i for i, name in nodes.alive().items() if name == "node-2" and i != second), None))
        until(lambda: second not in nodes.alive())
        until(lambda: set(nodes.raylets()) == {head, added, again})

        nodes.ask("kill", added)
        until(lambda: added not in nodes.alive() and "node-3" in nodes.alive().values())
        until(lambda: len(nodes.raylets()) == 3)
        assert next(iter(nodes.raylets())) == head
    assert set(folder.parent.iterdir()) - before == set(), "nothing outside of its folder"


@pytest.mark.long  # Ray's agents try for a minute to tell a controller that is gone as well
def test_a_node_that_shall_stay_away_does_and_all_end_with_an_owner_that_is_killed(folder: Path) -> None:
    with Nodes(folder, nodes=2, back_after=None) as nodes:
        head, second = nodes.raylets()
        assert nodes.ask("worker", second) == second
        below = nodes.descendants()
        assert len(below) > 6
        nodes.ask("kill", second)
        until(lambda: list(nodes.alive()) == [head])
        assert list(nodes.raylets()) == [head]
        nodes.process.kill()
        nodes.process.wait(10)
        gone_all(below)
