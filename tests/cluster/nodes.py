"""A local cluster in a process of its own, which a test talks to: a test's process may be in another one already.

As a program: ``python nodes.py FOLDER NODES BACK_AFTER``; a question a line on stdin, a JSON answer a line on stdout.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.command import ROOT


class Nodes:
    """The cluster, started with ``with``. Its processes are known to the test, to be hit and to be waited for."""

    def __init__(self, folder: Path, *, nodes: int, back_after: float | None) -> None:
        self._command = [sys.executable, __file__, str(folder), str(nodes), json.dumps(back_after)]

    def __enter__(self) -> Nodes:
        self.process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.address = self._answer()
        return self

    def __exit__(self, *exc: object) -> None:
        started = self.descendants()
        assert self.process.stdin is not None
        self.process.stdin.close()  # which ends it
        self.process.wait(30)
        gone_all(started)

    def descendants(self) -> list[psutil.Process]:
        """All that it has started and that these have."""
        return psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []

    def raylets(self) -> dict[str, int]:
        """Process ids by node id, the head's first."""
        return self.ask("processes")

    def alive(self) -> dict[str, str]:
        """Names of the nodes that Ray takes for alive, by id."""
        return self.ask("alive")

    def draining(self) -> dict[str, int]:
        """Deadline in ms since the epoch of each node that drains, by id."""
        return self.ask("draining")

    def ask(self, *question: Any) -> Any:
        """An answer of the program below."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def until(holds: Callable[[], Any], within_s: float = 30.0) -> Any:
    """The first true value of a question that is asked again and again."""
    end = time.monotonic() + within_s
    while not (value := holds()):
        assert time.monotonic() < end, "it has not come"
        time.sleep(0.05)
    return value


def title(process: psutil.Process) -> str:
    """Its command line; empty when it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def gone_all(processes: list[psutil.Process], within_s: float = 120.0) -> None:
    """Returns when all of them have ended."""
    _, left = psutil.wait_procs(processes, timeout=within_s)
    remaining = [title(process) for process in left if title(process)]
    assert not remaining, remaining


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"}


def _main(folder: str, nodes: str, back_after: str) -> None:
    import ray
    from ray._raylet import GcsClient

    from pliant.cluster.local import LocalCluster

    class RayTrainWorker:  # what Ray Train calls its workers, whose processes have it in their title
        def node(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray says on stdout when a node is lost
    signal.signal(signal.SIGTERM, lambda *_: None)
    workers = []
    with LocalCluster(
        nodes=int(nodes), resources={"CPU": 1}, folder=folder, back_after=json.loads(back_after)
    ) as cluster:
        controller = GcsClient(address=cluster.address)

        def answer(kind: str, *rest: Any) -> Any:
            if kind == "processes":
                return cluster.processes
            if kind == "alive":
                infos = controller.get_all_node_info(timeout=10).values()
                return {info.node_id.hex(): info.node_name for info in infos if info.state == 0}
            if kind == "add":
                return cluster.add()
            if kind == "kill":
                return cluster.kill(*rest)
            ray.is_initialized() or ray.init(address=cluster.address, log_to_driver=False)
            if kind == "draining":
                return ray._private.state.state.get_draining_nodes()
            worker = ray.remote(num_cpus=0, label_selector={"ray.io/node-id": rest[0]})(RayTrainWorker).remote()
            workers.append(worker)
            return ray.get(worker.node.remote())

        print(json.dumps(cluster.address), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(*json.loads(line))), file=answers, flush=True)
        if ray.is_initialized():
            ray.shutdown()


if __name__ == "__main__":
    _main(*sys.argv[1:])
