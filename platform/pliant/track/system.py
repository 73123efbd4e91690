"""System metrics of each node: sampled by one worker on it, recorded by the driver as the run's log ``system``."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

from pliant.errors import PliantError
from pliant.observe.board import Note
from pliant.storage.attempts import Attempt
from pliant.storage.segments import LogWriter
from pliant.storage.store import Store

SYSTEM_LOG = "system"
_KIND = "system"
_SEGMENT_EVERY_S = 30.0


class NodeSampler:
    """Samples its node in a thread and leaves notes on the board.

    Args:
        exchange: the board's.
        every_s: seconds between two samples; None for none.
    """

    def __init__(self, exchange: Callable[[list[Note]], int], every_s: float | None) -> None:
        self._exchange, self._every_s = exchange, every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pliant-system", daemon=True)

    def __enter__(self) -> NodeSampler:
        if self._every_s is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves a last sample: the shortest attempt has one."""
        self._stop.set()
        if self._every_s is not None:
            self._thread.join()

    def _run(self) -> None:
        node, begin = socket.gethostname(), psutil.net_io_counters()
        psutil.cpu_percent()  # the first call only sets where the next one counts from
        last = False
        while not last:
            last = self._stop.wait(self._every_s)
            note = {"kind": _KIND, "node": node, "time": round(time.time(), 3), **sample(begin)}
            try:
                self._exchange([note])
            except Exception:  # the driver is gone; the run's own records hold everything that matters
                return


def sample(network_begin: Any) -> dict[str, float]:
    """The node now, under MLflow's own names for these figures.

    Args:
        network_begin: ``psutil.net_io_counters()`` from which traffic is counted.
    """
    memory, disk, network = psutil.virtual_memory(), psutil.disk_usage("/"), psutil.net_io_counters()
    figures = {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": (memory.total - memory.available) / 1e6,
        "system_memory_usage_percentage": memory.percent,
        "disk_usage_megabytes": disk.used / 1e6,
        "disk_usage_percentage": disk.percent,
        "network_receive_megabytes": (network.bytes_recv - network_begin.bytes_recv) / 1e6,
        "network_transmit_megabytes": (network.bytes_sent - network_begin.bytes_sent) / 1e6,
    }
    return {name: round(value, 3) for name, value in figures.items()}


class SystemLog:
    """Takes the samples out of what the workers leave for the driver, and records them.

    Args:
        created: seconds since 1970 when the run began; a sample's step is the number of seconds since then.
    """

    def __init__(self, store: Store, attempt: Attempt, created: float) -> None:
        self._store, self._attempt, self._created = store, attempt, created
        self._log: LogWriter | None = None

    def tap(self, drain: Callable[[], list[Note]]) -> Callable[[], list[Note]]:
        """The same without the samples."""

        def rest() -> list[Note]:
            notes = drain()
            for note in notes:
                if note["kind"] == _KIND:
                    self._append(note)
            return [note for note in notes if note["kind"] != _KIND]

        return rest

    def close(self) -> None:
        """Makes everything so far durable, as far as storage lets it."""
        try:
            if self._log is not None:
                self._log.close()
        except PliantError:
            return

    def _append(self, note: Note) -> None:
        entry = {"step": int(note["time"] - self._created), **{k: v for k, v in note.items() if k != "kind"}}
        try:
            if self._log is None:
                self._log = LogWriter(self._store, self._attempt, SYSTEM_LOG, every_s=_SEGMENT_EVERY_S)
            self._log.append(entry)
        except PliantError:  # fenced, or storage is gone: what the run itself does then is not decided here
            return
