"""A Ray cluster of several nodes on this machine: to try out what happens when machines come and go.

Each node is a raylet of its own, a child of this process, in a directory of its own. All end with this process, also
when it is killed. Against ``ray start`` a child a node saves an interpreter's start each, and writes nothing outside
its folder; ``ray.cluster_utils.Cluster`` starts nodes the same way, but one after another, on the main thread only,
and announces itself to every other Ray on the machine.
"""

from __future__ import annotations

import logging
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from ray._private.authentication import authentication_token_setup as authentication
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray._private.utils import get_dashboard_dependency_error

ONE_PER_NODE = {"pliant_node": 1.0}
"""A resource that each node has once and a worker asks for beside its own: the CPUs that a node has for read tasks
would otherwise make room for a second worker."""

OBJECT_STORE_BYTES = 256 * 2**20
"""Most that the object store of a node takes: a window of rows or two pass through it at a time."""

RAYLET_SETTINGS = {
    # A node is asked for a sign of life every 0.5 s, and is dead when it gave none three times within 2 s each: a
    # killed raylet is noticed in about 1.5 s (Ray's default: 15 s), one that hangs in 7 s (65 s).
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
    # Idle worker processes up to this many stay: a group that starts again finds them.
    "num_workers_soft_limit": 4,
}
"""For Ray's ``_system_config``."""

_LOOK_EVERY_S = 0.2
_PATIENCE_S = 10.0
"""How long the end of a cluster waits for a node that is just being started."""
_log = logging.getLogger(__name__)


@dataclass
class _Member:
    """A node of the cluster: a place that a raylet runs at, or has run at.

    Attributes:
        node: its processes; None until it has started, as ``raylet``.
        gone_at: when it was seen to have ended, on the monotonic clock; None while it runs.
    """

    name: str
    folder: Path
    node: Node | None = None
    raylet: subprocess.Popen[bytes] | None = None
    gone_at: float | None = None

    @property
    def runs(self) -> bool:
        """Whether its raylet does."""
        return self.raylet is not None and self.raylet.poll() is None


class LocalCluster:
    """The cluster, from ``with`` to its end; this process may connect to it or not.

    The first node is the head: it holds Ray's own services and, as every other node, one worker. A driver that
    connects from this machine sits there.

    Args:
        nodes: how many to start with, at least 1.
        resources: Ray's resources of each node: ``CPU``, ``GPU``, ``memory`` (bytes) and others.
        folder: an empty directory with a short path: Ray's sockets are below it.
        back_after: seconds after which a node that has ended (killed, or drained) is started again; None: never.
    """

    def __init__(
        self, *, nodes: int, resources: Mapping[str, float], folder: str | Path, back_after: float | None = None
    ) -> None:
        self._resources, self._folder, self._back_after = resources, Path(folder), back_after
        self._members = [_Member(f"node-{i + 1}", self._folder / str(i + 1)) for i in range(nodes)]
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._keeper = threading.Thread(target=self._keep, name="pliant-nodes", daemon=True)

    def __enter__(self) -> LocalCluster:
        authentication.enable_token_auth_by_default()
        authentication.ensure_token_if_auth_enabled(create_token_if_missing=True)
        head, *others = self._members
        _settle_optional_imports()
        try:
            self._begin(head).result()
            for started in [self._begin(member) for member in others]:
                started.result()
        except BaseException:
            self.close()
            raise
        self._keeper.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """For ``ray.init``: ``HOST:PORT``."""
        head = self._members[0].node
        if head is None:
            raise RuntimeError("the cluster has not been started")
        return str(head.gcs_address)

    @property
    def processes(self) -> dict[str, int]:
        """The raylet's process id of each node that runs, by node id; the head's first."""
        return {
            str(member.node.node_id): member.raylet.pid
            for member in self._members
            if member.node is not None and member.raylet is not None and member.runs
        }

    def add(self) -> str:
        """Starts one more node; its node id, once Ray knows it."""
        with self._lock:
            name = len(self._members) + 1
            member = _Member(f"node-{name}", self._folder / str(name))
            self._members.append(member)
        self._begin(member).result()
        return str(member.node.node_id) if member.node else ""

    def kill(self, node_id: str) -> None:
        """Ends a node as a machine that loses its power: nothing of it is asked, all its processes are gone at once."""
        for member in self._members:
            if member.node is not None and member.node.node_id == node_id:
                _end(member.node)

    def close(self) -> None:
        """Ends all nodes, the head last."""
        self._closing.set()
        if self._keeper.ident is not None:
            self._keeper.join(_PATIENCE_S)
        for member in reversed(self._members):
            if member.node is not None:
                _end(member.node)

    def _begin(self, member: _Member) -> Future[None]:
        """Starts a node in a thread of its own, which stays as long as the raylet: what dies with its parent dies when
        the thread ends that has started it. It keeps nobody: a start may hang for minutes when the head is gone."""
        started: Future[None] = Future()

        def run() -> None:
            _block_signals()
            try:
                self._start(member)
            except BaseException as error:
                started.set_exception(error)
                return
            started.set_result(None)
            if member.raylet is not None:
                member.raylet.wait()

        threading.Thread(target=run, name=f"pliant-{member.name}", daemon=True).start()
        return started

    def _start(self, member: _Member) -> None:
        head = member is self._members[0]
        share = len(self._members)
        free = psutil.virtual_memory().available
        resources = dict(self._resources)
        params = RayParams(
            node_name=member.name,
            temp_dir=str(member.folder),
            gcs_address=None if head else self.address,
            num_cpus=math.ceil(resources.pop("CPU", 0)),
            num_gpus=math.ceil(resources.pop("GPU", 0)),
            memory=resources.pop("memory", free / share),
            object_store_memory=min(OBJECT_STORE_BYTES, free // (4 * share)),
            resources=resources | ONE_PER_NODE,
            node_manager_port=0,
            dashboard_agent_listen_port=0,
            include_dashboard=False,
            include_log_monitor=False,
            no_monitor=True,
            _system_config=dict(RAYLET_SETTINGS) if head else None,
        )
        # Ray would end this process's children when this process ends, but by handlers of the main thread.
        member.node = Node(params, head=head, shutdown_at_exit=False, spawn_reaper=True)
        member.raylet = member.node.all_processes["raylet"][0].process
        member.gone_at = None

    def _keep(self) -> None:
        """Clears away behind nodes that have ended, and brings them back."""
        while not self._closing.wait(_LOOK_EVERY_S) and self._members[0].runs:
            for member in self._members[1:]:
                if member.node is None or member.runs:
                    continue
                if member.gone_at is None:
                    member.gone_at = time.monotonic()
                    _end(member.node)
                if self._back_after is not None and time.monotonic() - member.gone_at >= self._back_after:
                    try:
                        self._begin(member).result()
                    except Exception as error:  # Ray's own, of many kinds: tried again after as long
                        _log.warning("%s did not come back: %s", member.name, str(error).partition("\n")[0])
                        member.gone_at = time.monotonic()


def _block_signals() -> None:
    """What this thread starts, and all below it, hears neither SIGTERM nor SIGHUP: they are for the owner, but
    timeout(1), a closed terminal and service managers send them to every process of its group."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})


def _settle_optional_imports() -> None:
    """Ray asks by importing, once for each node, whether the dashboard's dependencies are there. Of two threads that
    import a module which is not, one can be told that it is: its node's agent fails then, and the raylet with it."""
    name = "ray.dashboard.optional_deps"
    if get_dashboard_dependency_error() is not None:
        sys.modules[name] = None  # type: ignore[assignment]  # importlib's way to say: not there


def _end(node: Any) -> None:
    """Kills what a node has started and all that these have started, and waits for it."""
    own = [info.process.pid for infos in node.all_processes.values() for info in infos]
    below: list[psutil.Process] = []
    for pid in own:
        try:
            below += psutil.Process(pid).children(recursive=True)
        except psutil.NoSuchProcess:
            continue
    node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
    for process in below:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(below, timeout=5)
