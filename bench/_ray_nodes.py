"""Ray nodes that are started, drained and killed one by one: on this machine, or one on each host of a network.

A node is a ``ray start --block`` of its own; the first is the head. They share a token, in a file.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
from _netns import Host

_RAY = str(Path(sys.executable).parent / "ray")
_STORE_BYTES = 80 * 2**20
_READY_WITHIN_S = 60.0


class RayNodes:
    """A cluster of nodes named ``node-0`` (the head), ``node-1``, …

    Args:
        folder: short path; Ray's own files go there.
        hosts: where node i runs; empty: all on this machine.
        config: settings of Ray's daemons other than their defaults.
        env: more environment for nodes and commands.
        cpus: of each node.
    """

    def __init__(
        self,
        folder: Path,
        *,
        hosts: Sequence[Host] = (),
        config: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        cpus: int = 1,
    ) -> None:
        self._folder, self._hosts, self._config, self._cpus = folder, hosts, dict(config or {}), cpus
        self._head_address = hosts[0].address if hosts else "127.0.0.1"
        self._port = _free_ports(1)[0]
        self._nodes: dict[int, subprocess.Popen[str]] = {}
        token = uuid.uuid4().hex
        for place in [host.folder / "tmp" / "home" for host in hosts] or [folder]:
            (place / ".ray").mkdir(parents=True, exist_ok=True)
            (place / ".ray" / "auth_token").write_text(token)
        # Ray reads its token from there; on this machine HOME stays what it is.
        own = {} if hosts else {"RAY_AUTH_TOKEN_PATH": str(folder / ".ray" / "auth_token")}
        self.env = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0", **own, **(env or {})}

    @property
    def address(self) -> str:
        """What ``ray.init`` takes."""
        return f"{self._head_address}:{self._port}"

    def start(self, count: int) -> None:
        """The head and the next nodes, ``count`` in all; returns when the cluster has them."""
        self.begin(0)
        self.ask("wait", "--count", "1")
        for index in range(1, count):
            self.begin(index)
        self.ask("wait", "--count", str(count))

    def begin(self, index: int) -> float:
        """Starts one node and does not wait for it. Returns when that was (Unix time)."""
        address = self._hosts[index].address if self._hosts else "127.0.0.1"
        command = [
            _RAY,
            "start",
            "--block",
            f"--num-cpus={self._cpus}",
            f"--node-name=node-{index}",
            f"--node-ip-address={address}",
        ]
        command += [f"--object-store-memory={_STORE_BYTES}", "--disable-usage-stats"]
        if index == 0:
            command += ["--head", f"--port={self._port}", "--include-dashboard=false"]
            command += [f"--system-config={json.dumps(self._config)}"] if self._config else []
        else:
            command += [f"--address={self.address}"]
        if not self._hosts:
            # Nodes that share a directory and start together wait for each other's ports.
            command += [f"--temp-dir={self._folder}/{index}", f"--dashboard-agent-listen-port={_free_ports(1)[0]}"]
        at = time.time()
        with open(self._folder / f"node-{index}.log", "ab") as log:
            self._nodes[index] = self.popen(command, index=index, stdout=log, stderr=log)
        return at

    def popen(self, command: Sequence[str], *, index: int = 0, **options: Any) -> subprocess.Popen[str]:
        """Starts a command where node ``index`` runs, able to join the cluster."""
        if self._hosts:
            return self._hosts[index].popen(command, env=self.env, **options)
        options = {"env": {**os.environ, **self.env}, "text": True, **options}
        return subprocess.Popen(command, start_new_session=True, **options)

    def ask(self, *question: str) -> dict[str, Any]:
        """Runs this file's own command line on the head; see ``main``."""
        command = [sys.executable, str(Path(__file__).resolve()), "--address", self.address, *question]
        process = self.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=_READY_WITHIN_S + 30)
        if process.returncode:
            logs = "".join(p.read_text(errors="replace")[-1500:] for p in sorted(self._folder.glob("node-*.log")))
            raise RuntimeError(f"{' '.join(question)}: exit {process.returncode}\n{err[-2000:]}\n{logs}")
        return json.loads(out.splitlines()[-1])

    def drain(self, index: int, deadline_s: float) -> float:
        """A notice: the node goes away in ``deadline_s``. Returns when Ray was told (Unix time)."""
        return float(self.ask("drain", "--node", f"node-{index}", "--deadline", str(deadline_s))["at"])

    def kill(self, index: int) -> float:
        """``kill -9`` of the node's raylet, which its workers do not survive. Returns when that was (Unix time)."""
        raylets = [process for process in self._processes(index, self._nodes[index]) if _name(process) == "raylet"]
        at = time.time()
        for process in raylets:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return at

    def remove(self, index: int) -> None:
        """The machine is switched off: everything of a node ends, at once. ``begin`` brings it back."""
        node = self._nodes.pop(index)
        for process in self._processes(index, node):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        node.kill()
        node.wait()

    def close(self) -> None:
        """Ends all nodes."""
        for index in sorted(self._nodes, reverse=True):
            self.remove(index)

    def __enter__(self) -> RayNodes:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _processes(self, index: int, node: subprocess.Popen[str]) -> list[psutil.Process]:
        if self._hosts:
            return self._hosts[index].processes()
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(node.pid).children(recursive=True)
        return []


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def main() -> int:
    """``wait --count N`` until the cluster has N nodes; ``drain --node NAME --deadline SECONDS``. Prints JSON."""
    arguments = argparse.ArgumentParser(description=main.__doc__)
    arguments.add_argument("--address", required=True)
    arguments.add_argument("action", choices=["wait", "drain"])
    arguments.add_argument("--count", type=int)
    arguments.add_argument("--node")
    arguments.add_argument("--deadline", type=float)
    options = arguments.parse_args()

    from ray._raylet import GcsClient
    from ray.core.generated.autoscaler_pb2 import DrainNodeReason

    deadline = time.monotonic() + _READY_WITHIN_S
    while True:
        with suppress(Exception):  # the head is not there yet
            gcs = GcsClient(address=options.address)
            alive = {
                info.node_name: info.node_id for info in gcs.get_all_node_info(timeout=5).values() if info.state == 0
            }
            if options.action == "drain" or len(alive) >= options.count:
                break
        if time.monotonic() > deadline:
            raise SystemExit(f"the cluster at {options.address} is not ready after {_READY_WITHIN_S:.0f} s")
        time.sleep(0.1)
    at = time.time()
    if options.action == "drain":
        until_ms = int((at + options.deadline) * 1000)
        reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        accepted, why = gcs.drain_node(alive[options.node].hex(), reason, "the machine goes away", until_ms)
        if not accepted:
            raise SystemExit(f"the drain was refused: {why}")
    print(json.dumps({"at": at, "nodes": sorted(alive)}))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(main())
