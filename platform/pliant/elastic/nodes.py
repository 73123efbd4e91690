"""The nodes of the cluster as they are now: what they hold, which of them drain, which of them answer."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import ray
from ray._private.state import state as cluster_state

from pliant.elastic.policy import Node

PROBE_TIMEOUT_S = 2.0
_PROBES_AT_ONCE = 64
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a gRPC client says first (RFC 9113, 3.4): the preface and an empty SETTINGS frame. A server answers at once with
settings of its own, before anybody is authenticated."""


@dataclass(frozen=True)
class Address:
    """Where a node's raylet listens."""

    host: str
    port: int


@dataclass(frozen=True)
class Nodes:
    """All living nodes at one moment, by Ray's own account.

    Attributes:
        nodes: in the order of their ids.
        addresses: of their raylets, by id.
    """

    nodes: tuple[Node, ...]
    addresses: Mapping[str, Address]

    def without(self, lost: Iterable[str]) -> tuple[Node, ...]:
        """The nodes, with those that do not answer marked."""
        gone = frozenset(lost)
        return tuple(replace(node, lost=True) if node.id in gone else node for node in self.nodes)


def look(resources: Mapping[str, float], *, free: bool = False) -> Nodes:
    """Asks the cluster's control service, which knows of a drain at once and of a loss after its health checks.

    Args:
        resources: what one worker needs.
        free: count what is free now, instead of what a node has in all.

    Returns:
        nodes whose deadlines are seconds on the clock of ``time.time``.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]
    draining = cluster_state.get_draining_nodes()
    available = cluster_state.available_resources_per_node() if free else {}
    nodes = []
    for one in alive:
        name = one["NodeID"]
        has = available.get(name, {}) if free else one["Resources"]
        deadline_ms = draining.get(name, 0)
        nodes.append(
            Node(name, room(has, resources), name in draining, deadline_ms / 1000 if deadline_ms > 0 else None)
        )
    addresses = {one["NodeID"]: Address(one["NodeManagerAddress"], one["NodeManagerPort"]) for one in alive}
    return Nodes(tuple(sorted(nodes, key=lambda node: node.id)), addresses)


def drains(node: str) -> bool:
    """Whether a node goes away, by its hexadecimal id."""
    return node in cluster_state.get_draining_nodes()


def room(has: Mapping[str, float], need: Mapping[str, float]) -> int:
    """Workers that these resources hold."""
    return min((int(has.get(name, 0.0) / amount + 1e-9) for name, amount in need.items() if amount > 0), default=0)


def silent(addresses: Mapping[str, Address], *, timeout_s: float = PROBE_TIMEOUT_S) -> frozenset[str]:
    """Those of these nodes that do not answer: they refuse, they are cut off, or their raylet stands still."""
    if not addresses:
        return frozenset()
    names = sorted(addresses)
    with ThreadPoolExecutor(min(len(names), _PROBES_AT_ONCE)) as pool:
        heard = pool.map(lambda name: answers(addresses[name], timeout_s), names)
        return frozenset(name for name, ok in zip(names, heard, strict=True) if not ok)


def answers(address: Address, timeout_s: float) -> bool:
    """Whether a raylet answers within this time: a connection alone the kernel would accept for a stopped one, too."""
    until = time.monotonic() + timeout_s
    try:
        with socket.create_connection((address.host, address.port), timeout=timeout_s) as link:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return True  # it waits for a client's certificate before it says a word
            link.sendall(_HTTP2_HELLO)
            link.settimeout(max(0.05, until - time.monotonic()))
            return bool(link.recv(1))
    except OSError:
        return False


def named(nodes: Sequence[str]) -> str:
    """Nodes for people."""
    return ", ".join(node[:8] for node in sorted(nodes))


def going(members: Sequence[str], nodes: Sequence[Node], lost: Iterable[str]) -> dict[int, str]:
    """Ranks on nodes that drain, are lost, or are no nodes any more, and that in words.

    Args:
        members: node of each rank.
    """
    away = {name: f"node {name[:8]} is gone" for name in set(members) - {node.id for node in nodes}}
    away.update({name: f"node {name[:8]} does not answer" for name in lost})
    away.update({node.id: f"node {node.id[:8]} goes away" for node in nodes if node.draining})
    return {rank: away[name] for rank, name in enumerate(members) if name in away}
