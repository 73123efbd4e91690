"""What becomes of a run when its groups end: with gates of ranks in this process, and errors as workers raise them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import ray

from pliant.elastic.brain import Brain
from pliant.elastic.control import Control, EndGroup, Hand
from pliant.elastic.gate import Gate
from pliant.elastic.settings import ElasticSettings
from pliant.errors import EXIT_INFRASTRUCTURE, EXIT_STOPPED, UserCodeError

USER = UserCodeError("pipeline.raised", "loss raised ValueError: no", location="rank 0, step 5")
DEAD = ray.exceptions.RayActorError(error_msg="killed")


class Ranks(Hand):
    """Reaches into gates that are here; a rank without one does not answer."""

    def __init__(self) -> None:
        self.gates: list[Gate | None] = []

    def ask(self, function: Callable[..., Any], *args: Any, timeout_s: float) -> dict[int, Any]:
        living = {rank: gate for rank, gate in enumerate(self.gates) if gate is not None}
        return {rank: getattr(gate, function.__name__)(*args) for rank, gate in living.items()}

    def ask_later(self, rank: int, function: Callable[..., Any]) -> Any:
        raise NotImplementedError

    def answer(self, call: Any) -> tuple[bool, Any]:
        raise NotImplementedError

    def keep_spares(self, wanted: Mapping[str, int]) -> bool:
        raise NotImplementedError

    def silent_since(self) -> dict[int, float]:
        raise NotImplementedError


class Watched:
    """A brain, its ranks, and what it tells."""

    def __init__(self, **elastic: Any) -> None:
        self.told: list[dict[str, Any]] = []
        self.committed: int | None = None
        self.ranks = Ranks()
        control = Control(
            elastic=ElasticSettings(**elastic), resources={"CPU": 1.0}, lanes=4, steps=100, tell=self.told.extend,
            stop_asked=lambda: False, committed_step=lambda: self.committed, patience_s=0.0, warm_up=lambda: None,
        )  # fmt: skip
        self.brain = Brain(control, self.ranks)

    def group(self, first: int, *steps: int) -> None:
        """A group starts after this step; of each rank the last step that it has done."""
        self.brain.started(tuple(f"node-{rank}" for rank in range(len(steps))))
        self.ranks.gates = [Gate() for _ in steps]
        for gate, last in zip(self.ranks.gates, steps, strict=True):
            assert gate is not None
            gate.open(first)
            for step in range(first + 1, last + 1):
                gate.stepped(step, 0.1)

    def kinds(self) -> list[str]:
        return [note["kind"] for note in self.told]


def test_a_users_error_is_known_again_though_nobody_has_heard_how_far_the_group_was() -> None:
    watched = Watched()
    watched.committed = 3
    watched.group(0, 4, 4)
    assert watched.brain.ended({0: USER})
    assert watched.told[-1]["text"].endswith("starting again (tried again once)")
    watched.group(3, 4, 4)
    assert not watched.brain.ended({1: USER})
    assert watched.brain.verdict is USER


def test_at_another_step_it_is_tried_again() -> None:
    watched = Watched()
    for step in (4, 5, 6):
        watched.committed = step
        watched.group(0, step)
        assert watched.brain.ended({0: USER})


def test_before_the_first_step_it_ends_the_run() -> None:
    watched = Watched()
    watched.group(0, 0)
    assert not watched.brain.ended({0: USER})
    assert watched.brain.verdict is USER


def test_steps_lost_are_counted_by_who_is_left() -> None:
    watched = Watched()
    watched.committed = 3
    watched.group(0, 7, 7)
    watched.ranks.gates[0] = None
    assert watched.brain.ended({0: DEAD})
    watched.group(3, 8, 8)
    watched.brain.finished()
    (event,) = (note for note in watched.told if note["kind"] == "recovered")
    assert (event["steps_lost"], event["workers"], event["cause"]) == (4, 2, "infrastructure")
    assert event["text"].startswith("2 workers: rank 0 died; from step 3, 4 steps lost, training again after ")


def test_a_run_that_has_nothing_left_to_do_says_that_it_came_back() -> None:
    watched = Watched()
    watched.committed = 9
    watched.group(0, 9)
    assert watched.brain.ended({0: DEAD})
    watched.group(9, 9)
    watched.brain.finished()
    assert watched.kinds() == ["failure", "recovered"]
    watched.brain.finished()
    assert watched.kinds() == ["failure", "recovered"], "once"


@pytest.mark.parametrize(
    "error",
    [
        DEAD,
        ray.exceptions.RayTaskError("init", "Connection closed by peer", RuntimeError("Connection closed by peer")),
        ray.exceptions.GetTimeoutError("no answer"),
    ],
    ids=["dead", "noticed", "silent"],
)
def test_a_group_that_cannot_be_started_is_a_loss(error: Exception) -> None:
    watched = Watched(max_failures_without_checkpoint=2)
    assert watched.brain.not_started(error, timed_out=False)
    assert (watched.told[-1]["kind"], watched.told[-1]["cause"]) == ("failure", "infrastructure")
    assert watched.told[-1]["text"].startswith("workers could not be started: ")
    assert "\n" not in watched.told[-1]["text"]
    assert not watched.brain.not_started(error, timed_out=False)
    assert watched.brain.verdict is not None
    assert watched.brain.verdict.exit_code == EXIT_STOPPED


def test_too_many_losses_are_of_the_infrastructure() -> None:
    watched = Watched(max_failures=1)
    for step in (5, 6):
        watched.committed = step
        watched.group(0, step + 1)
        again = watched.brain.ended({0: DEAD})
    assert not again
    assert watched.brain.verdict is not None
    assert (watched.brain.verdict.code, watched.brain.verdict.exit_code) == ("elastic.given-up", EXIT_INFRASTRUCTURE)


def test_what_ended_it_at_last_is_told_with_what_led_there() -> None:
    watched = Watched()
    watched.committed = 3
    watched.group(0, 4, 4)
    assert watched.brain.ended_by(EndGroup("preemption", "node abcd1234 goes away in 3 s, and nothing can be saved"))
    watched.group(3, 3)
    assert watched.brain.ended({0: DEAD})
    watched.group(3, 8)
    watched.brain.finished()
    text = watched.told[-1]["text"]
    assert text.startswith("2→1 workers: node abcd1234 goes away in 3 s, and nothing can be saved; rank 0 died; from")
