"""``ray start --block`` as a child process, and the raylet under it.

Ray's command stays when its raylet has ended as it should, after a drain for one; so both are looked at. Which node the
raylet is stands in its own command line: other raylets of this host, and other addresses, cannot be mistaken for it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

# The child ends with the agent, even when that is killed: set by the child itself, between fork and exec. Should the
# agent be gone before, nobody is left who would tell it.
_WITH_PARENT = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)\n"  # PR_SET_PDEATHSIG, SIGTERM
    "if os.getppid() != int(sys.argv[1]): sys.exit(1)\n"
    "try: os.execvp(sys.argv[2], sys.argv[2:])\n"
    "except OSError as error: sys.exit(f'{sys.argv[2]}: {error.strerror}')\n"
)
_NODE_ID = re.compile(r"--node_id=([0-9a-f]+)")
_PASSWORD = re.compile(r"(--redis-password[= ])\S+")
_GCS_ADDRESS = re.compile(r"--gcs-address=(\S+)")
# Ray's own drain on SIGTERM would come on top of the agent's, without its deadline.
_ENVIRONMENT = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}


@dataclass(frozen=True)
class Node:
    """The node that a raylet is."""

    id: str  # hexadecimal
    controller: str  # host:port of the cluster's GCS
    pid: int


class Raylet:
    """One run of ``ray start --block``. To be made on the process's main thread, which its life is bound to."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WITH_PARENT, str(os.getpid()), *blocking(command)],
            env={**os.environ, **_ENVIRONMENT, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=2,  # stderr: what Ray has to say is talk
            start_new_session=True,  # a Ctrl-C at the terminal is for the agent; and all of Ray's is one process group
        )
        self._raylet: psutil.Process | None = None
        self.node: Node | None = None

    @property
    def pid(self) -> int:
        """Of ``ray start``."""
        return self._child.pid

    def look(self) -> Node | None:
        """The node, once its raylet runs."""
        if self.node is None:
            with suppress(psutil.Error):
                for process in psutil.Process(self.pid).children(recursive=True):
                    line = process.cmdline()
                    if line and os.path.basename(line[0]) == "raylet":
                        text = " ".join(line)
                        node_id, address = _NODE_ID.search(text), _GCS_ADDRESS.search(text)
                        if node_id and address:
                            self._raylet = process
                            self.node = Node(node_id[1], address[1], process.pid)
        return self.node

    def ended(self, *, settle_s: float) -> int | None:
        """The exit code if there is no raylet (any more), None while there is one or it is still to come.

        Args:
            settle_s: how long ``ray start`` may take to say what it makes of its raylet's end. It stays where it finds
                nothing wrong: then the code is 0.
        """
        code = self._child.poll()
        if code is not None or self._raylet is None:
            return code
        try:
            lives = self._raylet.is_running() and self._raylet.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            lives = False
        if lives:
            return None
        if settle_s > 0:
            with suppress(subprocess.TimeoutExpired):
                return self._child.wait(settle_s)
        return 0

    def forward(self, number: int) -> None:
        """Sends a signal to ``ray start``."""
        with suppress(ProcessLookupError):
            self._child.send_signal(number)

    def stop(self, *, patience_s: float) -> int:
        """Ends all of it: Ray's own way first, by force after so many seconds. The exit code of ``ray start``."""
        if self._child.poll() is None:
            self._child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(patience_s)
        with suppress(ProcessLookupError):  # what is left of its group, also where it ended by itself
            os.killpg(self.pid, signal.SIGKILL)
        return self._child.wait()


def shown(command: Sequence[str]) -> str:
    """The command for people, without its password."""
    return _PASSWORD.sub(r"\1…", " ".join(command))


def blocking(command: Sequence[str]) -> list[str]:
    """The command with ``--block``, without which there would be nothing to wait for."""
    return list(command) if "--block" in command else [*command, "--block"]
