"""The agent of a node, on a real cluster with token authentication: a head, and raylets that agents keep."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from pliant.cluster.raylet import Raylet
from tests.cluster.metadata_servers import Aws, Azure, serving
from tests.command import ROOT

pytestmark = pytest.mark.slow
RAY = str(Path(sys.executable).parent / "ray")
PATIENCE_S = 60.0
SUBREAPER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes a process that gets the orphans of its descendants, as the first of a container does."""


class Process:
    """A child process whose lines can be waited for."""

    def __init__(self, *command: str, **environment: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "platform"), "PYTHONUNBUFFERED": "1", **environment}
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(
            command, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def line(self, pattern: str, *, times: int = 1) -> re.Match[str]:
        """The line that matches for the so-manyth time, once it is there."""

        def found() -> list[re.Match[str]]:
            return [match for line in self.lines if (match := re.search(pattern, line))]

        with self._news:
            self._news.wait_for(lambda: len(found()) >= times or self._ended, timeout=PATIENCE_S)
        matches = found()
        assert len(matches) >= times, f"no {pattern!r} in\n" + "\n".join(self.lines[-40:])
        return matches[times - 1]

    def order(self, order: str) -> Any:
        """What the driver answers."""
        before = sum(line.startswith("answer ") for line in self.lines)
        assert self.child.stdin is not None
        self.child.stdin.write(f"{order}\n")
        self.child.stdin.flush()
        return json.loads(self.line("^answer (.*)", times=before + 1)[1])

    def end(self) -> int:
        """The exit code, once it has ended, its lines all read."""
        code = self.child.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.child.kill()
        self.end()


SCRIPT = """
import json, sys
from pliant.cluster.notice_agent import NoticeAgent, log
from pliant.cluster.notices.aws import AwsSource
from pliant.cluster.notices.azure import AzureSource
aws, azure, command = sys.argv[1:]
sources = [AwsSource(log, endpoint=aws), AzureSource(log, endpoint=azure)]
for source in sources:
    source.pause_s = 0.1
sys.exit(NoticeAgent(json.loads(command), sources, respawn_after_s=0.1, grace_s=25).run())
"""


class Cluster:
    """A head without room for work, a driver, and what agents on this machine need to join."""

    def __init__(self, folder: str, stack: ExitStack) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.folder = folder
        self.env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64, "HOME": folder}
        port = f"--port={self.address.rpartition(':')[2]}"
        head = self._start("--head", port, "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}/head")
        self.head = Process(*head, "--block", **self.env)
        stack.callback(self.head.close)
        self.head.line("Ray runtime started")
        self.driver = Process(sys.executable, str(ROOT / "tests/cluster/ray_driver.py"), self.address, **self.env)
        stack.callback(self.driver.close)
        self.driver.line('^answer "ready"')

    def _start(self, *options: str) -> list[str]:
        return [RAY, "start", "--node-ip-address=127.0.0.1", "--object-store-memory=80000000", *options]

    def join(self, *options: str) -> list[str]:
        """How a node with the resource `spot` joins."""
        work = ("--num-cpus=1", '--resources={"spot": 1}', f"--temp-dir={self.folder}/node")
        return self._start(f"--address={self.address}", *work, *options)

    @contextmanager
    def agent(self, *options: str, command: list[str] | None = None, **environment: str) -> Iterator[Process]:
        """An agent by its command."""
        words = [sys.executable, "-m", "pliant", "cluster", "notice-agent", *options, "--", *(command or self.join())]
        agent = Process(*words, **{**self.env, **environment})
        try:
            yield agent
        finally:
            agent.close()

    @contextmanager
    def script(self, aws: Aws, azure: Azure) -> Iterator[Process]:
        """An agent by its Python API, whose sources are asked ten times a second."""
        agent = Process(sys.executable, "-c", SCRIPT, aws.url, azure.url, json.dumps(self.join()), **self.env)
        try:
            yield agent
        finally:
            agent.close()

    def deadline(self, node: str) -> float:
        """That Ray knows for a draining node, in seconds."""
        draining = self.driver.order("draining")
        assert list(draining) == [node]
        return draining[node] / 1000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Not pytest's own folder: the paths of Ray's sockets must stay short.
    with tempfile.TemporaryDirectory(prefix="pliant-na-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        yield Cluster(folder, stack)


def raylet_of(agent: Process) -> psutil.Process:
    (raylet,) = [p for p in psutil.Process(agent.child.pid).children(recursive=True) if p.name() == "raylet"]
    return raylet


def soon(holds: Callable[[], bool]) -> None:
    """Returns when something has come true that nobody tells."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


JOINED = r"node ([0-9a-f]{8}) has joined"


def test_a_node_leaves_on_notice_and_comes_back(cluster: Cluster) -> None:
    aws, azure = Aws(), Azure()
    with serving(aws), serving(azure), cluster.script(aws, azure) as agent:
        joined = agent.line(JOINED)[1]
        first = cluster.driver.order("hold")
        assert first.startswith(joined)

        deadline = int(time.time()) + 90
        when = datetime.fromtimestamp(deadline, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        aws.action = {"action": "terminate", "time": when}
        agent.line(rf"node {joined} drains, \d+ s left")
        assert cluster.deadline(first) == deadline
        sooner = azure.schedule("Preempt", ["spot_0"], in_s=60, id="one")
        agent.line("drains", times=2)
        assert cluster.deadline(first) == sooner
        assert first in cluster.driver.order("alive"), "it is not idle"
        assert azure.started == [], "it is not ready"
        cluster.driver.order("release")
        agent.line("the node is drained, its raylet has ended")
        soon(lambda: azure.started == ["one"])
        assert agent.child.poll() is None

        azure.set([])
        agent.line("Azure: the notice is withdrawn")
        assert len([line for line in agent.lines if re.search(JOINED, line)]) == 1, "one notice stands"
        aws.action = None
        agent.line("AWS: the notice is withdrawn")
        agent.line(JOINED, times=2)
        second = cluster.driver.order("hold")
        assert second != first

        raylet_of(agent).kill()
        agent.line("the raylet ended by itself")
        agent.line(JOINED, times=3)

        third = cluster.driver.order("hold")
        before = time.time()
        agent.child.send_signal(signal.SIGTERM)
        agent.line("SIGTERM: the node is drained, and stopped in 25 s at the latest")
        agent.line("drains", times=3)
        assert before + 24.9 < cluster.deadline(third) < time.time() + 25
        cluster.driver.order("release")
        assert agent.end() == 0
        soon(lambda: third not in cluster.driver.order("alive"))


def test_a_second_signal_ends_a_busy_node_at_once(cluster: Cluster) -> None:
    with cluster.agent("--cloud", "none", "--grace", "1h") as agent:
        agent.line(JOINED)
        cluster.driver.order("hold")
        agent.child.terminate()
        agent.line("drains")
        agent.child.terminate()
        assert agent.end() == 0
        agent.line("SIGTERM again: at once")


ORPHAN = """
import subprocess, sys
from pliant.cluster.notice_agent import NoticeAgent
subprocess.run(["sh", "-c", "sleep 0.1 & echo orphan $!"])
sys.exit(NoticeAgent(["ray", "start", "--address=127.0.0.1:9"]).run())
"""


def test_an_agent_reaps_what_others_leave_to_it_and_ends_while_it_waits_for_the_head() -> None:
    agent = Process(sys.executable, "-c", SUBREAPER, sys.executable, "-c", ORPHAN)
    try:
        orphan = int(agent.line(r"orphan (\d+)")[1])
        soon(lambda: not psutil.pid_exists(orphan))
        agent.child.terminate()
        assert agent.end() == 0
    finally:
        agent.close()


PARENT = """
import signal
from pliant.cluster.raylet import Raylet
print("child", Raylet(["sh", "-c", "exec sleep 600", "--block"]).pid, flush=True)
signal.pause()
"""


def test_an_agent_ends_with_its_raylet_where_it_is_told_to(cluster: Cluster) -> None:
    with cluster.agent("--cloud", "none", "--no-respawn") as agent:
        agent.line(JOINED)
        raylet_of(agent).kill()
        assert agent.end() == 1


def test_ray_ends_with_its_agent_however_that_ends() -> None:
    parent = Process(sys.executable, "-c", PARENT)
    pid = int(parent.line(r"child (\d+)")[1])
    parent.child.kill()
    parent.end()
    soon(lambda: not psutil.pid_exists(pid))


def test_what_does_not_want_to_end_is_made_to(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    stubborn = Raylet(["sh", "-c", f"trap '' TERM; sleep 600 & touch {ready}; wait", "--block"])
    soon(ready.exists)
    assert stubborn.ended(settle_s=0.0) is None
    (sleeper,) = psutil.Process(stubborn.pid).children()
    assert stubborn.stop(patience_s=0.1) == -signal.SIGKILL
    sleeper.wait(PATIENCE_S)


def test_an_agent_that_may_not_drain_says_so_before_it_starts_anything(cluster: Cluster) -> None:
    for environment in ({"RAY_AUTH_TOKEN": "b" * 64}, {"RAY_AUTH_TOKEN": ""}):
        with cluster.agent("--cloud", "none", **environment) as agent:
            assert agent.end() == 4
        text = "\n".join(agent.lines)
        assert f"error[cluster.token] {cluster.address}  this node may not drain itself: " in text
        assert "RAY_AUTH_MODE=token with RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token" in text
        assert "starting" not in text


def test_a_node_that_does_not_come_up_is_an_error(cluster: Cluster) -> None:
    with cluster.agent("--cloud", "none", command=cluster.join("--no-such-option")) as agent:
        assert agent.end() == 4
    assert any("error[cluster.not-joined]" in line and "`ray start` ended with 2" in line for line in agent.lines)
    command = [RAY, "start", "--address=127.0.0.1:9"]
    with cluster.agent("--cloud", "none", "--join-timeout", "0.5s", command=command) as agent:
        assert agent.end() == 4
    assert any("error[cluster.unreachable] 127.0.0.1:9" in line for line in agent.lines)
