"""Worker processes that stand by, with everything imported: a restart is mostly the start of processes otherwise.

A spare is an actor of the kind that Ray Train makes workers of, on a node of the group, without resources of its own:
when it becomes a worker, the group's placement group has reserved them. It costs memory for an interpreter with torch.
Not for GPUs: which of them a process sees is settled when it starts.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray

_READY_S = 2.0
"""How long a spare may take to say that it is there; then a new process is the better choice."""


@dataclass(frozen=True)
class Spare:
    """A process that stands by. ``ready`` is the call that ends when it has imported everything."""

    actor: Any
    node: str
    ready: Any


class Spares:
    """Those of one controller; they end with it.

    Args:
        make: makes an actor on a node: ``make(node_id)``.
        warm_up: sent into each of them: imports what a worker needs.
    """

    def __init__(self, make: Callable[[str], Any], warm_up: Callable[[], None]) -> None:
        self._make, self._warm_up = make, warm_up
        self._waiting: list[Spare] = []

    def keep(self, wanted: Mapping[str, int]) -> None:
        """Has as many on each node; those of other nodes end, so that a node which drains can become idle."""
        have: Counter[str] = Counter()
        for spare in list(self._waiting):
            if have[spare.node] >= wanted.get(spare.node, 0) or _failed(spare):
                self._waiting.remove(spare)
                ray.kill(spare.actor)
            else:
                have[spare.node] += 1
        for node, count in wanted.items():
            for _ in range(count - have[node]):
                actor = self._make(node)
                self._waiting.append(Spare(actor, node, actor.execute.remote(self._warm_up)))

    @property
    def getting_ready(self) -> bool:
        """Whether one of them is still at it."""
        calls = [spare.ready for spare in self._waiting]
        return bool(calls) and len(ray.wait(calls, num_returns=len(calls), timeout=0)[0]) < len(calls)

    def take(self, nodes: Mapping[int, str]) -> dict[int, tuple[Any, Any]]:
        """Actors for these places, those that are ready and answer: place and its node to place, actor and what Ray
        Train wants to know of it."""
        taken: dict[int, Spare] = {}
        for place, node in nodes.items():
            spare = next((s for s in self._waiting if s.node == node), None)
            if spare is not None:
                self._waiting.remove(spare)
                taken[place] = spare
        asked = {spare.actor.get_metadata.remote(): place for place, spare in taken.items()}
        done = ray.wait(list(asked), num_returns=len(asked), timeout=_READY_S)[0] if asked else []
        ready = {}
        for call in done:
            with contextlib.suppress(ray.exceptions.RayError):  # it has ended meanwhile
                place = asked[call]
                ready[place] = (taken[place].actor, ray.get(call))
        for place, spare in taken.items():
            if place not in ready:
                ray.kill(spare.actor)
        return ready


def _failed(spare: Spare) -> bool:
    """Whether it has ended, or could not import what it should; while it is at it, it has not."""
    done, _ = ray.wait([spare.ready], timeout=0)
    if not done:
        return False
    try:
        ray.get(done[0])
    except Exception:
        return True
    return False
