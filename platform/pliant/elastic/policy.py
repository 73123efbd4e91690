"""How many workers a run has, on which nodes, and when a group leaves. Pure: the caller brings clock and nodes.

```
nodes ─► idle()     no group: Start with the best size, or Wait for machines
      └► running()  a group:  notice for one of its nodes ─► Leave, or Abandon where nothing can be saved
                              room for a faster size that has settled and pays ─► Leave
                              else Keep
```

A step takes ⌈L/W⌉ lanes' time, so only some worker counts are of use: the smallest of each such time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

MARGIN_S = 1.0
"""Seconds that remain before a deadline when a group leaves as late as it may: agreeing, committing, ending."""
SLACK = 0.25
"""Share by which steps and saves may take longer than their means did, where something is put off until a deadline."""
PAYS = 2.0
"""A resize has to save this many times what it costs."""


@dataclass(frozen=True)
class Node:
    """A node as the caller sees it now.

    Attributes:
        room: workers that its total resources hold, those that run there included.
        draining: it was announced to go away.
        deadline: when, in seconds on the caller's clock; None: not known.
        lost: it fails the liveness probe. No group is started on it; a group that runs there stays.
    """

    id: str
    room: int
    draining: bool = False
    deadline: float | None = None
    lost: bool = False

    @property
    def usable(self) -> bool:
        """Whether a group may be started on it."""
        return not self.draining and not self.lost and self.room > 0


@dataclass(frozen=True)
class Group:
    """The running group.

    Attributes:
        nodes: node of each rank.
        training: it is in the loop; False while it starts and loads, when there is nothing to save.
    """

    nodes: tuple[str, ...]
    training: bool


@dataclass(frozen=True)
class Progress:
    """What is left to do and how fast it goes: observed means in seconds, None where nothing was observed yet."""

    steps_left: int
    step_s: float | None
    save_s: float | None
    restart_s: float

    @property
    def leave_s(self) -> float:
        """Seconds from the wish to leave to the committed checkpoint; what is not known counts nothing."""
        return (self.step_s or 0.0) + (self.save_s or 0.0)


@dataclass(frozen=True)
class Limits:
    """Allowed sizes, and how calmly they change.

    Raises:
        ValueError: no size is allowed.
    """

    lanes: int
    min_workers: int
    max_workers: int
    settle_s: float
    resize_interval_s: float

    def __post_init__(self) -> None:
        if not 1 <= self.min_workers <= min(self.max_workers, self.lanes):
            raise ValueError(f"no size between {self.min_workers} and {self.max_workers} with {self.lanes} lanes")

    def best(self, fitting: int) -> int:
        """The best size of those that fit; 0 when none does."""
        return best_size(self.lanes, self.min_workers, self.max_workers, fitting=fitting)


@dataclass(frozen=True)
class Memory:
    """What is remembered from one decision to the next, across groups.

    Attributes:
        since: when each usable node was first seen; one that drains, is lost or vanishes begins anew.
        resized_at: when a group was last asked to leave for a better size.
        leaving: nodes of the ranks of the group that was asked to leave its machines.
    """

    since: Mapping[str, float] = field(default_factory=dict)
    resized_at: float | None = None
    leaving: tuple[str, ...] = ()


@dataclass(frozen=True)
class Keep:
    """Nothing to do."""

    reason: str = ""


@dataclass(frozen=True)
class Leave:
    """Agree on a stop step, save, leave together, start again.

    Attributes:
        deadline: by when the checkpoint has to be committed; None: none known.
        nodes: those that go away, or those that came.
    """

    cause: Literal["preemption", "resize"]
    text: str
    deadline: float | None
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Abandon:
    """Nothing can be saved in time, or nothing is there to save: end the group at once, start again."""

    cause: Literal["preemption"]
    text: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Start:
    """Start a group of this size; ``nodes`` are those that it may use."""

    workers: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Wait:
    """Too few machines; ``reason`` is for people."""

    reason: str


# ---------------------------------------------------------------- sizes


def lane_steps(lanes: int, workers: int) -> int:
    """Lanes of the busiest rank, ⌈L/W⌉: what a step's time is proportional to."""
    return -(-lanes // workers)


def useful_workers(lanes: int, minimum: int, maximum: int) -> list[int]:
    """Worker counts from which every further worker makes a step shorter: no W as fast as a smaller one."""
    counts: list[int] = []
    workers = minimum
    while workers <= min(maximum, lanes):
        counts.append(workers)
        faster = lane_steps(lanes, workers) - 1
        workers = lane_steps(lanes, faster) if faster else lanes + 1
    return counts


def best_size(lanes: int, minimum: int, maximum: int, *, fitting: int | None = None) -> int:
    """The largest useful worker count, or the largest of those that fit; 0 when none fits."""
    most = min(maximum, lanes) if fitting is None else min(maximum, lanes, fitting)
    if most < minimum:
        return 0
    return max(minimum, lane_steps(lanes, lane_steps(lanes, most)))


# ---------------------------------------------------------------- decisions


def idle(nodes: Sequence[Node], limits: Limits) -> Start | Wait:
    """What to do while no group runs: every usable node counts at once."""
    usable = [node for node in nodes if node.usable]
    room = sum(node.room for node in usable)
    workers = limits.best(room)
    if workers:
        return Start(workers, tuple(node.id for node in usable))
    fit = "no worker fits" if room == 0 else f"{room} worker{'s fit' if room > 1 else ' fits'}"
    draining = [node.id for node in nodes if node.draining and node.room]
    lost = [node.id for node in nodes if node.lost and not node.draining and node.room]
    parts = [f"{fit}, elastic.min_workers is {limits.min_workers}"]
    parts += [f"{_named(draining)} {_is(draining)} draining"] if draining else []
    parts += [f"{_named(lost)} {_does(lost)} not answer"] if lost else []
    return Wait("; ".join(parts))


def running(
    now: float, nodes: Sequence[Node], group: Group, progress: Progress, limits: Limits, memory: Memory
) -> tuple[Keep | Leave | Abandon, Memory]:
    """What to do with a group that runs. Linear in the number of nodes.

    What is to be remembered comes back with the decision; it holds for the groups that follow, too. A group that was
    asked to leave its machines is asked again until it is gone or its deadline has passed, with the deadline that is
    then the nearest; one that was asked for the sake of a better size is not.

    Args:
        now: seconds on the clock of the deadlines.
    """
    usable = [node for node in nodes if node.usable]
    memory = replace(memory, since={node.id: memory.since.get(node.id, now) for node in usable})
    members = frozenset(group.nodes)
    going = [node for node in nodes if node.draining and node.id in members]
    if going:
        decision = _notice(now, usable, going, group, progress, limits, memory)
        return decision, replace(memory, leaving=group.nodes) if isinstance(decision, Leave) else memory
    grown = _grow(now, usable, group, progress, limits, memory)
    return grown, replace(memory, resized_at=now) if isinstance(grown, Leave) else memory


def _notice(
    now: float,
    usable: Sequence[Node],
    going: Sequence[Node],
    group: Group,
    progress: Progress,
    limits: Limits,
    memory: Memory,
) -> Keep | Leave | Abandon:
    """The answer to a notice for nodes of the group."""
    ids = tuple(node.id for node in going)
    deadlines = [node.deadline for node in going if node.deadline is not None]
    deadline = min(deadlines, default=None)
    text = f"{_named(ids)} {_goes(ids)} away"
    leave = Leave("preemption", text if deadline is None else f"{text} in {_in(deadline - now)}", deadline, ids)
    left_s = float("inf") if deadline is None else deadline - now
    if memory.leaving == group.nodes:  # saving already: what is left of the time is not judged again
        return leave if left_s > 0 else Abandon("preemption", f"{text} now, before the group has left", ids)
    if len(deadlines) == len(going):
        if _finishes(progress, group, left_s):
            return Keep(f"{leave.text}, and the run is done before")
        too_few = not limits.best(sum(node.room for node in usable))
        if too_few and left_s > (1 + SLACK) * progress.leave_s + MARGIN_S:
            return Keep(f"{leave.text}; too few workers fit without, so the time is used")
    if not group.training:
        return Abandon("preemption", f"{leave.text}, and nothing is there to save", ids)
    if progress.leave_s > left_s:
        needed = f"a step and a save take {progress.leave_s:.1f} s"
        return Abandon("preemption", f"{leave.text}, and {needed}", ids)
    return leave


def _finishes(progress: Progress, group: Group, left_s: float) -> bool:
    """Whether the rest of the run surely fits into the time left."""
    if not group.training or progress.step_s is None:
        return False
    rest_s = progress.steps_left * progress.step_s + (progress.save_s or 0.0)
    return (1 + SLACK) * rest_s + MARGIN_S < left_s


def _grow(
    now: float, usable: Sequence[Node], group: Group, progress: Progress, limits: Limits, memory: Memory
) -> Keep | Leave:
    """Whether a larger group pays."""
    if not group.training or progress.step_s is None:
        return Keep()
    settled = [node for node in usable if now - memory.since[node.id] >= limits.settle_s]
    workers = len(group.nodes)
    target = limits.best(sum(node.room for node in settled))
    if target <= workers:
        return Keep()
    faster = 1 - lane_steps(limits.lanes, target) / lane_steps(limits.lanes, workers)
    saved_s = progress.steps_left * progress.step_s * faster
    grow = f"room for {target} workers"
    if saved_s <= PAYS * progress.restart_s:
        return Keep(f"{grow}: would save {max(saved_s, 0.0):.0f} s and cost about {progress.restart_s:.0f} s")
    if memory.resized_at is not None and now - memory.resized_at < limits.resize_interval_s:
        wait_s = memory.resized_at + limits.resize_interval_s - now
        return Keep(f"{grow}: elastic.resize_interval is over in {_in(wait_s)}")
    members = frozenset(group.nodes)
    return Leave("resize", grow, None, tuple(node.id for node in settled if node.id not in members))


def places(nodes: Sequence[Node], members: Collection[str], limits: Limits) -> dict[str, int]:
    """How many workers of a next group may start on each node: on those of the present one first."""
    left, found = limits.max_workers, dict[str, int]()
    for node in sorted(nodes, key=lambda node: node.id not in members):
        if node.usable and left:
            found[node.id] = min(node.room, left)
            left -= found[node.id]
    return found


# ---------------------------------------------------------------- words


def _named(ids: Sequence[str]) -> str:
    shown = [name[:8] for name in ids[:3]]
    more = [f"{len(ids) - 3} more"] if len(ids) > 3 else []
    return f"node{'s' if len(ids) > 1 else ''} {_list([*shown, *more])}"


def _list(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _is(ids: Sequence[str]) -> str:
    return "are" if len(ids) > 1 else "is"


def _does(ids: Sequence[str]) -> str:
    return "do" if len(ids) > 1 else "does"


def _goes(ids: Sequence[str]) -> str:
    return "go" if len(ids) > 1 else "goes"


def _in(seconds: float) -> str:
    return f"{max(seconds, 0.0):.0f} s"
