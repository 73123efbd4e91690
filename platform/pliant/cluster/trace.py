"""When what is done to which machine: traces of faults, made from a seed or written down. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from pliant.units import parse_seconds

Fault = Literal["kill", "kill-node", "drain", "vanish", "slow", "fill-disk", "corrupt", "cut-storage"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
ON_NODES: frozenset[Fault] = frozenset({"kill", "kill-node", "drain", "vanish", "slow"})
"""Those that hit a machine; the others hit the run's storage."""

DRIVER = "driver"
"""Names the node of the run's driver, which is hit only when it is asked for."""


@dataclass(frozen=True)
class Event:
    """A fault to come.

    Attributes:
        at_s: seconds from the beginning.
        node: which one to hit: the beginning of its id, its name, or ``driver``; empty: ``pick`` chooses.
        pick: in [0, 1): which of the nodes there then are, and which byte of a checkpoint.
    """

    at_s: float
    fault: Fault
    node: str = ""
    pick: float = 0.0


@dataclass(frozen=True)
class Target:
    """A node as the cluster shows it."""

    id: str
    name: str
    driver: bool

    def __str__(self) -> str:
        return f"{self.name} ({self.id[:8]})" if self.name else self.id[:8]


def random_trace(faults: Sequence[Fault], *, every_s: float, seed: int) -> Iterator[Event]:
    """Faults without end: the gaps are those of a memoryless process, each kind is as likely as it is often listed.

    Args:
        every_s: mean seconds between two of them.
        seed: the same one gives the same trace.
    """
    source = random.Random(seed)  # of its methods only random() gives the same numbers in every Python
    at_s = 0.0
    while True:
        at_s -= every_s * math.log(1.0 - source.random())
        fault = faults[int(source.random() * len(faults))]
        yield Event(at_s, fault, pick=source.random())


def parse_fault(text: str) -> Fault:
    """Raises ValueError that lists the faults there are."""
    for fault in FAULTS:
        if text == fault:
            return fault
    raise ValueError(f"{text!r} is no fault; there are {', '.join(FAULTS)}")


def parse_event(text: str, *, pick: float = 0.0) -> Event:
    """``30s:drain``, ``30s:drain:node-2``.

    Raises:
        ValueError: it is neither.
    """
    when, _, rest = text.partition(":")
    fault, colon, node = rest.partition(":")
    try:
        at_s = float(parse_seconds(when))
    except ValueError:
        raise ValueError(f"{text!r} does not begin with a time; write it as in 30s:drain or 2min:kill:node-2") from None
    if not 0 <= at_s < math.inf:
        raise ValueError(f"{text!r}: there is no time {when}")
    if colon and not node:
        raise ValueError(f"{text!r} names no node behind its last colon")
    parsed = parse_fault(fault)
    if node and parsed not in ON_NODES:
        raise ValueError(f"{text!r}: {fault} hits the run's storage, not a node")
    return Event(at_s, parsed, node, pick)


def choose(event: Event, nodes: Sequence[Target]) -> Target:
    """The node that an event hits.

    Raises:
        ValueError: none is left, or none or several are the one that is named.
    """
    ordered = sorted(nodes, key=lambda node: (node.name, node.id))
    if not event.node:
        others = [node for node in ordered if not node.driver]
        if not others:
            raise ValueError("there is no node beside the driver's")
        return others[int(event.pick * len(others))]
    named = [node for node in ordered if event.node == node.name or (event.node == DRIVER and node.driver)]
    found = named or [node for node in ordered if node.id.startswith(event.node)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{node}{' (the driver is there)' if node.driver else ''}" for node in ordered)
    raise ValueError(f"{'several nodes are' if found else 'no node is'} {event.node!r}; there are {there or 'none'}")
