"""Hosts on one machine: network namespaces on a bridge, each with mounts, processes and a name of its own.

    with network(("alpha", "beta"), folder) as (alpha, beta):
        alpha.run(["ray", "start", ...])
        beta.cut()

A host has an address, its own ``/tmp``, ``/dev/shm``, ``HOME`` and boot id, and sees the checkout read-only; nothing is
shared but the network. The bridge lives in a namespace too, so that nothing is left on the machine when the processes
that hold the namespaces end: with the context, or with the process that opened it. Needs root and iproute2.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("ip", "tc", "unshare", "nsenter", "mount")
_SUBNET = "10.77.0"
_INTERFACE = "eth0"
# The first process of a host: adopts orphans, which the kernel reaps for it.
_HOLD = (
    "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); print('ready', flush=True)\nwhile 1: signal.pause()"
)


def missing() -> list[str]:
    """What this machine lacks to have hosts, in words; empty where it has all."""
    lacking = [f"the command {name}" for name in NEEDED if shutil.which(name) is None]
    return lacking + ([] if os.geteuid() == 0 else ["root"])


class Namespace:
    """A process that holds namespaces of its own, and what runs in them. Ends with the process that opened it.

    Args:
        setup: shell commands that run in it first.

    Raises:
        RuntimeError: the setup failed; with what it printed.
    """

    def __init__(self, name: str, setup: str) -> None:
        hold = f'exec "{sys.executable}" -S -E -c "$HOLD"'
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL",
             "--propagation=private", "sh", "-ec", f"hostname {name}\nip link set lo up\n{setup}\n{hold}"],
            env={**os.environ, "HOLD": _HOLD},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=_end_with_parent,
        )  # fmt: skip
        _wait_until_ready(self._holder, name)
        (child,) = psutil.Process(self._holder.pid).children()
        self.pid = child.pid
        """Of the namespace's first process, as seen from outside."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """``argv`` as a command that runs in here."""
        return ["nsenter", "--target", str(self.pid), "--mount", "--net", "--uts", "--ipc", "--pid", "--", *argv]

    def configure(self, *argv: str) -> None:
        """Runs ``ip`` or ``tc`` on the network of this namespace, seen from outside. RuntimeError when it fails."""
        command = ["nsenter", "--target", str(self.pid), "--net", "--", *argv]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")

    def close(self) -> None:
        """Ends everything in here, at once."""
        self._holder.kill()
        self._holder.communicate()


class Host:
    """One machine of a ``network``.

    Attributes:
        name, address: on the network.
        folder: of this host, outside; ``folder / "tmp"`` is its ``/tmp``.
        env: environment of everything that runs on it.
    """

    home = "/tmp/home"

    def __init__(self, name: str, address: str, folder: Path, switch: Namespace, shared: Path | None) -> None:
        self.name, self.address, self.folder, self._switch, self._port = name, address, folder, switch, f"p-{name}"
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "AWS_", "PYTEST_"))},
            "HOME": self.home,
            "GLOO_SOCKET_IFNAME": _INTERFACE,
            "RAY_AUTH_MODE": "token",
        }
        self.space = Namespace(name, _mounts(folder, shared))
        switch.configure(
            "ip", "link", "add", self._port, "type", "veth", "peer", "name", _INTERFACE, "netns", str(self.space.pid)
        )
        switch.configure("ip", "link", "set", self._port, "master", "bridge", "up")
        self.space.configure("ip", "address", "add", f"{address}/24", "dev", _INTERFACE)
        self.space.configure("ip", "link", "set", _INTERFACE, "up")

    def popen(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Starts a command on the host, in its home. ``signal_to`` reaches it; the handle's own methods do not."""
        settings = [f"{key}={value}" for key, value in {**self.env, **(env or {})}.items()]
        entered = ["env", "-i", "--chdir", self.home, *settings, *argv]
        return subprocess.Popen(self.space.command(entered), text=True, **options)

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 100
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on the host to its end."""
        process = self.popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            signal_to(process, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread is on this host's network: what it binds, connects or starts within."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        inside = os.open(f"/proc/{self.space.pid}/ns/net", os.O_RDONLY)
        try:
            _enter(inside)
            yield
        finally:
            _enter(before)
            os.close(inside)
            os.close(before)

    def processes(self) -> list[psutil.Process]:
        """All that run on it, as seen from outside."""
        mine = os.readlink(f"/proc/{self.space.pid}/ns/pid")
        found = []
        for process in psutil.process_iter():
            try:
                if os.readlink(f"/proc/{process.pid}/ns/pid") == mine and process.pid != self.space.pid:
                    found.append(process)
            except OSError:
                continue  # has ended meanwhile
        return found

    def cut(self) -> None:
        """The host vanishes: its link stays up, and nothing passes in either direction."""
        self._switch.configure("ip", "link", "set", self._port, "nomaster")

    def heal(self) -> None:
        """The link is as it was, and neighbours that were given up are asked for anew."""
        self._switch.configure("ip", "link", "set", self._port, "master", "bridge")

    def slow(self, kbit_per_s: int) -> None:
        """Lets no more pass than this in either direction; what waits, waits up to half a second."""
        for space, interface in ((self._switch, self._port), (self.space, _INTERFACE)):
            rate = ["rate", f"{kbit_per_s}kbit", "burst", "16kb", "latency", "500ms"]
            space.configure("tc", "qdisc", "replace", "dev", interface, "root", "tbf", *rate)

    def fast(self) -> None:
        """As before ``slow``."""
        for space, interface in ((self._switch, self._port), (self.space, _INTERFACE)):
            space.configure("tc", "qdisc", "delete", "dev", interface, "root")

    def close(self) -> None:
        self.space.close()


@contextmanager
def network(names: Sequence[str], folder: Path, *, shared: Path | None = None) -> Iterator[list[Host]]:
    """Hosts on one bridge, with the addresses 10.77.0.1, …2, …, all their processes ended when it closes.

    Args:
        folder: gets what the hosts write.
        shared: a folder that all of them have at ``/tmp/shared``, as if it were a file server; a cut does not reach it.

    Raises:
        RuntimeError: the machine lacks what ``missing`` lists.
    """
    if lacking := missing():
        raise RuntimeError(f"hosts as namespaces need {', '.join(lacking)}")
    with ExitStack() as stack:
        switch = Namespace("switch", "ip link add bridge type bridge forward_delay 0\nip link set bridge up")
        stack.callback(switch.close)
        hosts: list[Host] = []
        names_to_addresses = {name: f"{_SUBNET}.{number}" for number, name in enumerate(names, 1)}
        table = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in names_to_addresses.items())
        for name, address in names_to_addresses.items():
            place = folder / name
            for part in ("tmp/home", "tmp/shared", "shm"):
                (place / part).mkdir(parents=True, exist_ok=True)
            (place / "tmp").chmod(0o1777)
            (place / "hosts").write_text(table)
            (place / "boot_id").write_text(f"{uuid.uuid4()}\n")
            host = Host(name, address, place, switch, shared)
            stack.callback(host.close)
            hosts.append(host)
        yield hosts


def signal_to(process: subprocess.Popen[str], number: int) -> None:
    """Sends a signal to what a host's ``popen`` started."""
    for child in psutil.Process(process.pid).children():
        child.send_signal(number)


def _wait_until_ready(holder: subprocess.Popen[str], name: str) -> None:
    """Waits until a namespace's setup is through."""
    if holder.stdout is None or holder.stdout.readline() != "ready\n":
        _, err = holder.communicate()
        raise RuntimeError(f"the namespace {name} could not be set up:\n{err}")


def _mounts(folder: Path, shared: Path | None) -> str:
    """Shell commands that give a host its own files. What must be seen under the new /tmp is bound there before."""
    lines = []
    for path in dict.fromkeys(Path(p).resolve() for p in (ROOT, sys.prefix, sys.base_prefix)):
        below = path.relative_to("/tmp") if path.is_relative_to("/tmp") else None
        target = folder / "tmp" / below if below else path
        lines += [f"mkdir -p '{target}'", f"mount --bind '{path}' '{target}'", f"mount -o remount,bind,ro '{target}'"]
    if shared is not None:
        lines.append(f"mount --bind '{shared}' '{folder / 'tmp' / 'shared'}'")
    own = {"shm": "/dev/shm", "boot_id": "/proc/sys/kernel/random/boot_id", "hosts": "/etc/hosts", "tmp": "/tmp"}
    lines += [f"mount --rbind '{folder / source}' {target}" for source, target in own.items()]  # /tmp hides the folder
    return "\n".join(lines)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "setns")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
