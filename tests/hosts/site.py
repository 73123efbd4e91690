"""Several hosts that are one Ray cluster and share nothing but object storage; commands of Pliant on its head."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from _netns import Host, network, signal_to
from _ray_nodes import RayNodes

from tests.command import ROOT
from tests.s3 import S3Server

NAMES = ("alpha", "beta", "gamma")
WITHIN_S = 60.0


class Site:
    """What ``site`` makes.

    Attributes:
        hosts: of the cluster; node i runs on host i, the first is its head.
        nodes: of Ray.
    """

    def __init__(self, hosts: list[Host], nodes: RayNodes, storage: S3Server) -> None:
        self.hosts, self.nodes, self._storage = hosts, nodes, storage

    def pliant(self, *arguments: str) -> str:
        """Runs a command of Pliant on the head to its end; what it printed as its result."""
        done = self.hosts[0].run(self._command(arguments), env=self._env, timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a command of Pliant on the head."""
        return self.hosts[0].popen(
            self._command(arguments), env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def job(self, pipeline: str, name: str, settings: Mapping[str, Any]) -> list[str]:
        """Arguments that train on the whole cluster."""
        places = {"cluster.address": self.nodes.address, "data.path": self._storage.uri("digits")}
        given = {"tracking.kind": "none", "train.epochs": "null", **places, **settings}
        return ["train", pipeline, "--name", name, *(f"{key}={value}" for key, value in given.items())]

    def metrics(self, name: str) -> list[dict[str, Any]]:
        """The run's metrics so far; none before it has begun."""
        done = self.hosts[0].run(self._command(("metrics", name, "--json")), env=self._env, timeout=60)
        said = done.stdout + done.stderr
        if '"run.unknown"' in said:
            return []
        assert done.returncode == 0, said
        return [json.loads(line) for line in done.stdout.splitlines()]

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "pliant", *arguments, f"run.storage={self._storage.uri('runs')}"]

    @property
    def _env(self) -> dict[str, str]:
        return {**self.nodes.env, "COLUMNS": "100"}


@contextmanager
def site(folder: Path, *, config: Mapping[str, Any] | None = None) -> Iterator[Site]:
    """Three hosts, each a Ray node for one worker, and a fourth that stores; the digits are prepared.

    Args:
        folder: gets what they write.
        config: settings of Ray's daemons.
    """
    with network(("storage", *NAMES), folder) as (storage, *hosts), ExitStack() as stack:
        with storage.entered():
            server = stack.enter_context(S3Server(address=storage.address))
        # Two CPUs: one and a quarter are for a worker, the rest for its read tasks.
        env = {**server.env, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"}
        nodes = RayNodes(folder, hosts=hosts, config=config, env=env, cpus=2)
        stack.enter_context(nodes).start(len(hosts))
        made = Site(hosts, nodes, server)
        made.pliant("prepare", "digits", f"data.path={server.uri('digits')}")
        yield made


def wait_for(what: Callable[[], Any], process: subprocess.Popen[str], *, within_s: float = WITHIN_S) -> Any:
    """Waits until there is a result; AssertionError with what the process printed when there is none in time."""
    deadline = time.monotonic() + within_s
    while not (found := what()):
        if time.monotonic() > deadline or process.poll() is not None:
            if process.poll() is None:
                signal_to(process, 9)
            raise AssertionError(process.communicate()[0][-4000:])
        time.sleep(0.2)
    return found
