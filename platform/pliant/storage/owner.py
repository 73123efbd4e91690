"""Who drives a run, and whether that process still lives."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from pliant.errors import FencedError, PliantError
from pliant.storage.layout import attempt_key, encode
from pliant.storage.store import Store

_log = logging.getLogger(__name__)

CLOCK_TOLERANCE = 900.0
"""Seconds by which a clock here may differ from the storage's. S3 itself refuses requests that are off by more."""


def process_identity() -> dict[str, Any]:
    """What tells this process from every other: for claims."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pid_start": process_start(os.getpid()),
        **_machine(),
    }


def _machine() -> dict[str, Any]:
    """Which boot of which machine, and which numbering of processes on it (containers have their own)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return {"boot_id": boot, "pid_namespace": os.readlink("/proc/self/ns/pid")}
    except OSError:
        return {"boot_id": f"{socket.gethostname()}-{psutil.boot_time():.0f}", "pid_namespace": ""}


def process_start(pid: int) -> float | None:
    """When a process started, in units that only compare for equality; None when it does not run.

    A process that was killed and is not yet reaped by its parent does not run. On Linux the number is the
    kernel's own, which does not move when the clock is set.
    """
    try:
        if psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists():
            return float(stat.read_text().rpartition(")")[2].split()[19])
        return float(psutil.Process(pid).create_time())
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return None


def process_lives(identity: Mapping[str, Any]) -> bool | None:
    """Whether the process of a ``process_identity`` lives; None when that cannot be seen from here."""
    if any(identity.get(key) != value for key, value in _machine().items()):
        return None
    start = process_start(identity["pid"])
    return start is not None and start == identity.get("pid_start")


Liveness = Literal["alive", "dead", "unknown"]


@dataclass(frozen=True)
class Owner:
    """The newest driver of a run, which wrote no stop reason.

    Attributes:
        attempt: its attempt number.
        host: its host name.
        pid: its process id there.
        info: all that its claim says.
        age: seconds since its last heartbeat (or claim), by this machine's clock against the storage's.
    """

    attempt: int
    host: str
    pid: int
    info: Mapping[str, Any]
    age: float

    def liveness(self, fresh: float) -> Liveness:
        """Whether it lives: certain on its own machine, elsewhere only when its heartbeat is very old.

        Args:
            fresh: seconds up to which a heartbeat counts as a sign of life.
        """
        lives = process_lives(self.info)
        if lives is None:
            return "dead" if self.age > fresh + CLOCK_TOLERANCE else "unknown"
        return "alive" if lives else "dead"

    def describe(self) -> str:
        """``pid 4711 on host h (attempt 3)``."""
        return f"pid {self.pid} on host {self.host} (attempt {self.attempt})"


def watch_heartbeat(
    read: Callable[[], bytes | None], fresh: float, every: float, waiting: Callable[[float], None]
) -> Liveness:
    """Watches a heartbeat until it changes (``alive``) or has not for ``fresh`` seconds (``dead``).

    Only this machine's monotonic clock is used, so clocks that differ do no harm.

    Args:
        read: gives the heartbeat's bytes, None when there is none.
        fresh: seconds without change that mean death.
        every: seconds between two looks.
        waiting: called with the seconds left before each look.
    """
    first, deadline = read(), time.monotonic() + fresh
    pause = threading.Event()
    while (left := deadline - time.monotonic()) > 0:
        waiting(left)
        pause.wait(min(every, left))
        if read() != first:
            return "alive"
    return "dead"


class Heartbeat:
    """A thread that writes an attempt's heartbeat until it is stopped.

    Args:
        store: the run's.
        number: the attempt.
        every: seconds between two beats.
        check: raises FencedError when a newer attempt has claimed the run.
        on_fenced: called once, in the thread, when it does; the heart then stops.
        after_beat: called in the thread after every beat; it may raise as storage does.
    """

    def __init__(
        self,
        store: Store,
        number: int,
        every: float,
        check: Callable[[], None],
        on_fenced: Callable[[FencedError], None] | None = None,
        after_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._number, self._every = store, number, every
        self._check, self._on_fenced, self._after_beat = check, on_fenced, after_beat
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat-{number}", daemon=True)

    def start(self) -> Heartbeat:
        """Begins to beat."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends it; a beat that waits for storage is not waited for."""
        self._stopping.set()
        self._thread.join(self._every)

    def __enter__(self) -> Heartbeat:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _run(self) -> None:
        beats = 0
        while True:
            beats += 1
            content = {"attempt": self._number, "beats": beats, "time": time.time()}
            try:
                self._store.put(attempt_key(self._number, "heartbeat.json"), encode(content))
                self._check()
                self._after_beat()
            except FencedError as error:
                if self._on_fenced is not None:
                    self._on_fenced(error)
                return
            except PliantError as error:
                _log.warning("heartbeat: %s", error.message)
            if self._stopping.wait(self._every):
                return
