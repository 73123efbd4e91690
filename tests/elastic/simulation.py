"""Spot machines that come and go, and a run that follows the policy. Pure: seeded, no clock, any size.

``python tests/elastic/simulation.py`` prints what 2,000 nodes, and years of a few, come to, and what a decision takes.

The run is a number of steps that goes up while a group trains. Whatever the policy must never do is looked for at every
decision and kept as text in ``Summary.violations``.
"""

from __future__ import annotations

import heapq
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from pliant.elastic.policy import (
    MARGIN_S,
    SLACK,
    Abandon,
    Group,
    Leave,
    Limits,
    Memory,
    Node,
    Progress,
    Start,
    idle,
    lane_steps,
    running,
    useful_workers,
)

DAY_S = 86_400.0
POLL_S = 1.0
"""How often a group is looked at while a notice stands."""


@dataclass(frozen=True, order=True)
class Event:
    """Something that happens to a node. ``deadline_s`` of a notice: seconds that it gives; None: it does not say."""

    time: float
    kind: Literal["join", "notice", "vanish", "lost", "found"] = field(compare=False)
    node: str = field(compare=False)
    room: int = field(default=1, compare=False)
    deadline_s: float | None = field(default=None, compare=False)


def spot_trace(seed: int, *, machines: int, life_s: float, down_s: float, room: int = 1) -> Iterator[Event]:
    """Endless events of spot machines, in order. A machine that comes back is another node.

    Of what ends a machine's life, half is announced by 5, 30 or 120 s or without a deadline, now and then for the
    machines beside it as well; some of these go earlier than they said. Some only do not answer for a while.
    """
    rng = random.Random(seed)
    queue = [(rng.expovariate(20 / life_s), machine) for machine in range(machines)]
    heapq.heapify(queue)
    pending: list[Event] = []
    lives: Counter[int] = Counter()
    up: dict[int, str] = {}
    while True:
        at, machine = heapq.heappop(queue)
        while pending and pending[0].time <= at:
            yield heapq.heappop(pending)
        if machine not in up:
            lives[machine] += 1
            up[machine] = f"m{machine}.{lives[machine]}"
            yield Event(at, "join", up[machine], room)
            heapq.heappush(queue, (at + rng.expovariate(1 / life_s), machine))
            continue
        kind = rng.choices(["notice", "vanish", "lost"], [5, 3, 2])[0]
        if kind == "lost":
            heapq.heappush(pending, Event(at, "lost", up[machine]))
            back = at + rng.uniform(3, 60)
            heapq.heappush(pending, Event(back, "found", up[machine]))
            heapq.heappush(queue, (back + rng.expovariate(1 / life_s), machine))
            continue
        beside = rng.randrange(1, 6) if rng.random() < 0.1 else 1
        for other in range(machine, min(machine + beside, machines)):
            if (name := up.pop(other, None)) is None:
                continue
            when = at + (rng.uniform(0, 3) if other != machine else 0.0)
            if kind == "notice":
                deadline_s = rng.choice([5.0, 30.0, 120.0, None])
                heapq.heappush(pending, Event(when, "notice", name, deadline_s=deadline_s))
                when += (deadline_s or 25.0) * (rng.random() if rng.random() < 0.1 else 1.0)
            heapq.heappush(pending, Event(when, "vanish", name))
            queue = [entry for entry in queue if entry[1] != other] if other != machine else queue
            heapq.heapify(queue)
            heapq.heappush(queue, (when + rng.expovariate(1 / down_s), other))


@dataclass(frozen=True)
class Job:
    """What is trained: a step takes ``lane_s`` for each lane of the busiest rank. Seconds."""

    limits: Limits
    steps: int = 10**12
    lane_s: float = 0.2
    save_s: float = 1.5
    restart_s: float = 9.0
    interval_s: float = 60.0

    def step_s(self, workers: int) -> float:
        return self.lane_s * lane_steps(self.limits.lanes, workers)


@dataclass
class Summary:
    """What a simulation came to. ``lost`` and ``ended``: steps done in vain, and groups, by why the group ended."""

    events: int = 0
    decisions: int = 0
    node_decisions: int = 0
    decision_s: float = 0.0
    seconds: dict[str, float] = field(default_factory=lambda: {"training": 0.0, "recovery": 0.0, "waiting": 0.0})
    lost: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    steps: float = 0.0
    violations: list[str] = field(default_factory=list)


@dataclass
class _Run:
    nodes: tuple[str, ...]
    trains_at: float
    gone_at: float | None = None  # it was asked to leave, and will have left then
    cause: str = ""


class Simulation:
    """A cluster and a run, moved from event to event and from wake-up to wake-up."""

    def __init__(self, job: Job) -> None:
        self.job, self.summary = job, Summary()
        self.nodes: dict[str, Node] = {}
        self.noticed: dict[str, float] = {}
        self.now = 0.0
        self.group: _Run | None = None
        self.memory = Memory()
        self.steps = self.saved = self.saved_at = 0.0
        self.resizes: list[tuple[float, int]] = []
        self.changed_at = 0.0
        self.wakes: list[float] = []

    def run(self, trace: Iterator[Event], *, events: int | None = None, until: float = float("inf")) -> Summary:
        """Follows the trace to its ``events``-th event, to ``until`` seconds or to the end of the run."""
        for event in trace:
            self._sleep(min(event.time, until))
            if event.time > until or self.summary.events == events or self._done():
                break
            self.summary.events += 1
            self.changed_at = self.now
            self._happen(event)
            self._decide()
        return self.summary

    # ------------------------------------------------------------ time

    def _sleep(self, until: float) -> None:
        """Moves to a moment, deciding at each wake-up on the way."""
        while self.wakes and self.wakes[0] <= until and not self._done():
            self._advance(heapq.heappop(self.wakes))
            while self.wakes and self.wakes[0] <= self.now:
                heapq.heappop(self.wakes)
            self._decide()
        self._advance(until)
        self._no_growth_missed()

    def _advance(self, to: float) -> None:
        passed, group = to - self.now, self.group
        doing = "waiting" if group is None else "training" if group.trains_at <= self.now else "recovery"
        self.summary.seconds[doing] += passed
        if group is not None and doing == "training":
            rate = 1 / self.job.step_s(len(group.nodes))
            self.steps = min(self.steps + passed * rate, float(self.job.steps))
            if group.gone_at is None and (saves := int((to - self.saved_at) / self.job.interval_s)):
                self.saved_at += saves * self.job.interval_s
                self.saved = max(self.saved, self.steps - (to - self.saved_at) * rate)
        self.now = to
        self.summary.steps = self.steps

    def _done(self) -> bool:
        return self.steps >= self.job.steps

    def _wake(self, at: float) -> None:
        heapq.heappush(self.wakes, at)

    # ------------------------------------------------------------ what happens

    def _happen(self, event: Event) -> None:
        node = self.nodes.get(event.node)
        if event.kind == "join":
            self.nodes[event.node] = Node(event.node, event.room)
            self._wake(self.now + self.job.limits.settle_s)
        elif node is not None and event.kind == "notice":
            deadline = None if event.deadline_s is None else self.now + event.deadline_s
            self.nodes[node.id] = replace(node, draining=True, deadline=deadline)
            self.noticed[node.id] = self.now
        elif node is not None and event.kind in ("lost", "found"):
            self.nodes[node.id] = replace(node, lost=event.kind == "lost")
            self._wake(self.now + self.job.limits.settle_s)
        elif node is not None:
            del self.nodes[node.id]
            if self.group is not None and node.id in self.group.nodes:
                if node.draining and node.deadline is not None and self.now >= node.deadline:
                    self.summary.violations.append(f"{self.now}: a group stands on {node} after its deadline")
                self._end("vanished" if not node.draining else "vanished before the deadline")

    def _end(self, cause: str) -> None:
        """The group is gone; what it has not saved is lost."""
        self.summary.ended[cause] += 1
        self.summary.lost[cause] += self.steps - self.saved
        self.steps, self.group = self.saved, None

    # ------------------------------------------------------------ decisions

    def _decide(self) -> None:
        if self.group is not None and self.group.gone_at is not None and self.group.gone_at <= self.now:
            self.saved = self.steps
            self._end(self.group.cause)
        if self.group is None:
            self._start()
        else:
            self._look_at(self.group)

    def _start(self) -> None:
        limits, nodes = self.job.limits, list(self.nodes.values())
        decision = idle(nodes, limits)
        self._count(nodes)
        useful = useful_workers(limits.lanes, limits.min_workers, limits.max_workers)
        room = sum(node.room for node in nodes if not node.draining and not node.lost)
        best = max((size for size in useful if size <= room), default=0)
        if (decision.workers if isinstance(decision, Start) else 0) != best:
            self.summary.violations.append(f"{self.now}: {decision}, but {best} of {room} is the best size")
        if not isinstance(decision, Start):
            return
        ranks: list[str] = []
        for name in decision.nodes:
            if self.nodes[name].draining or self.nodes[name].lost:
                self.summary.violations.append(f"{self.now}: a start on {self.nodes[name]}")
            ranks += [name] * self.nodes[name].room
        if self.resizes and self.resizes[-1][0] >= self.changed_at:
            before = self.resizes[-1][1]
            if lane_steps(limits.lanes, decision.workers) >= lane_steps(limits.lanes, before):
                self.summary.violations.append(f"{self.now}: resized {before}→{decision.workers}, no faster")
        self.group = _Run(tuple(ranks[: decision.workers]), self.now + self.job.restart_s)
        self.saved_at = self.group.trains_at
        self.summary.sizes[decision.workers] += 1
        self._wake(self.group.trains_at)
        self._wake(self.group.trains_at + limits.settle_s)

    def _look_at(self, run: _Run) -> None:
        job, nodes = self.job, list(self.nodes.values())
        step_s, training = job.step_s(len(run.nodes)), run.trains_at <= self.now
        progress = Progress(int(job.steps - self.steps), step_s, job.save_s, job.restart_s)
        begun = time.perf_counter()
        decision, self.memory = running(self.now, nodes, Group(run.nodes, training), progress, job.limits, self.memory)
        self.summary.decision_s += time.perf_counter() - begun
        self._count(nodes)
        if isinstance(decision, Abandon):
            self._check_abandon(run, decision, training, step_s)
            self._end("abandoned")
            self._start()
        elif isinstance(decision, Leave):
            if decision.cause == "resize":
                self._check_resize(run)
            if run.gone_at is None:
                run.gone_at, run.cause = self.now + step_s + job.save_s, decision.cause
                self._wake(run.gone_at)
        if self.group is run and any(self.nodes[name].draining for name in run.nodes):
            self._wake(self.now + POLL_S)

    def _count(self, nodes: list[Node]) -> None:
        self.summary.decisions += 1
        self.summary.node_decisions += len(nodes)

    # ------------------------------------------------------------ what must hold

    def _check_abandon(self, run: _Run, decision: Abandon, training: bool, step_s: float) -> None:
        """Steps are given up only where no notice left the time for a step and a save since the group trains."""
        known = [(deadline, name) for name in decision.nodes if (deadline := self.nodes[name].deadline) is not None]
        if training and known:
            deadline, name = min(known)
            given_s = deadline - max(self.noticed[name], run.trains_at)
            if given_s > (1 + SLACK) * (step_s + self.job.save_s) + MARGIN_S + POLL_S:
                self.summary.violations.append(f"{self.now}: {decision}, after {given_s:.1f} s to save in")

    def _check_resize(self, run: _Run) -> None:
        limits = self.job.limits
        if self.resizes and self.now - self.resizes[-1][0] < limits.resize_interval_s:
            self.summary.violations.append(f"{self.now}: resized at {self.resizes[-1][0]} already")
        self.resizes.append((self.now, len(run.nodes)))
        self._wake(self.now + limits.resize_interval_s)

    def _no_growth_missed(self) -> None:
        """After a long time without an event a group has the best size that there is room for."""
        limits, run = self.job.limits, self.group
        calm_s = limits.settle_s + 2 * limits.resize_interval_s + 4 * self.job.restart_s
        if run is None or self.now - self.changed_at < calm_s or self._done():
            return
        best = limits.best(sum(node.room for node in self.nodes.values() if node.usable))
        faster = 1 - lane_steps(limits.lanes, max(best, 1)) / lane_steps(limits.lanes, len(run.nodes))
        left_s = (self.job.steps - self.steps) * self.job.step_s(len(run.nodes))
        if faster * left_s > 4 * self.job.restart_s:
            self.summary.violations.append(f"{self.now}: still {len(run.nodes)} workers with room for {best}")


def two_thousand_nodes() -> Summary:
    """10,000 events, half a day: a notice or a loss every few seconds."""
    limits = Limits(lanes=8192, min_workers=1000, max_workers=2000, settle_s=2.0, resize_interval_s=60.0)
    trace = spot_trace(1, machines=2000, life_s=8 * 3600.0, down_s=1.6 * 3600.0)
    return Simulation(Job(limits)).run(trace, events=10_000)


def years(count: float, *, machines: int, min_workers: int, seed: int) -> Summary:
    """Years of a few machines, each up for half a day on average."""
    limits = Limits(lanes=16, min_workers=min_workers, max_workers=16, settle_s=2.0, resize_interval_s=60.0)
    trace = spot_trace(seed, machines=machines, life_s=12 * 3600.0, down_s=4 * 3600.0)
    return Simulation(Job(limits)).run(trace, until=count * 365 * DAY_S)


def storm(days: float, *, seed: int, min_workers: int = 2, steps: int = 10**12) -> Summary:
    """Machines that last 20 minutes: something happens every 45 s."""
    limits = Limits(lanes=12, min_workers=min_workers, max_workers=12, settle_s=2.0, resize_interval_s=60.0)
    trace = spot_trace(seed, machines=12, life_s=1200.0, down_s=300.0)
    return Simulation(Job(limits, steps=steps)).run(trace, until=days * DAY_S)


def _lines(title: str, summary: Summary) -> str:
    total = sum(summary.seconds.values())
    shares = ", ".join(f"{what} {seconds / total:.2%}" for what, seconds in summary.seconds.items())
    lost = ", ".join(f"{cause} {round(steps)}" for cause, steps in summary.lost.items())
    ended = ", ".join(f"{cause} {count}" for cause, count in summary.ended.items())
    return (
        f"{title}: {summary.events:,} events, {summary.decisions:,} decisions of "
        f"{1e3 * summary.decision_s / summary.decisions:.3f} ms, {total / DAY_S:,.1f} days\n"
        f"  {shares}\n  groups ended: {ended}\n  steps lost: {lost}\n  violations: {summary.violations[:5]}\n"
    )


if __name__ == "__main__":
    sys.stdout.write(_lines("2,000 nodes", two_thousand_nodes()))
    sys.stdout.write(_lines("3 years of 24 nodes", years(3, machines=24, min_workers=4, seed=2)))
    sys.stdout.write(_lines("3 years of 8 nodes, at least 6", years(3, machines=8, min_workers=6, seed=3)))
    sys.stdout.write(_lines("30 days of 12 nodes that last 20 min", storm(30, seed=4)))
