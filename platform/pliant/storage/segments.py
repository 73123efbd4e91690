"""Logs made of immutable segments: metrics, events, audit, decisions.

On object storage every flush writes a new segment. On a local path an attempt has one segment that grows, each
flush appending to it. Entries are JSON objects, one a line, numbered from 1 within an attempt.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

from pliant.errors import DamageError, PliantError, StorageError
from pliant.storage.attempts import Attempt
from pliant.storage.layout import Segment
from pliant.storage.store import Store

_log = logging.getLogger(__name__)


class LogWriter:
    """Writes an attempt's part of a log. One writer per attempt and log.

    ``append`` never waits for storage: a thread writes what has gathered every ``every_s`` seconds. While storage
    fails, entries stay in memory and are tried again.

    Args:
        store: the run's.
        attempt: whose part it is; checked before every write.
        name: of the log, e.g. ``metrics``.
        every_s: seconds between two writes.
    """

    def __init__(self, store: Store, attempt: Attempt, name: str, *, every_s: float) -> None:
        self._store, self._attempt, self._name = store, attempt, name
        self._target = _Target(store)
        self._seq = 0
        self._pending: list[bytes] = []
        self._written = 0
        self._failure: Exception | None = None
        self._gathering = threading.Lock()
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(every_s,), name=f"log-{name}", daemon=True)
        self._thread.start()

    @property
    def seq(self) -> int:
        """Sequence number of the last appended entry; 0 before the first."""
        return self._seq

    def append(self, entry: dict[str, Any]) -> int:
        """Takes an entry; returns its sequence number.

        Raises:
            FencedError: a newer attempt has claimed the run.
            TypeError: the entry is not JSON.
        """
        self._raise_failure()
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        with self._gathering:
            self._pending.append(line)
            self._seq += 1
            return self._seq

    def flush(self) -> None:
        """Returns when all entries so far are durable.

        Raises:
            StorageError: they are not, and stay in memory.
            FencedError: a newer attempt has claimed the run.
        """
        with self._writing:
            self._raise_failure()
            goal = self._seq
            while self._target.unfinished or self._written < goal:
                self._attempt.check()
                if not self._target.unfinished:
                    with self._gathering:
                        lines, self._pending = self._pending, []
                    first = self._written + 1
                    self._target.begin(Segment(self._name, self._attempt.number, first), b"".join(lines))
                    self._written += len(lines)
                self._target.finish()

    def close(self) -> None:
        """Stops the thread and flushes; raises as ``flush``."""
        self._closing.set()
        self._thread.join()
        self.flush()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self, every_s: float) -> None:
        while not self._closing.wait(every_s):
            try:
                self.flush()
            except StorageError as error:
                _log.warning("log %s: entries are kept in memory: %s", self._name, error.message)
            except Exception as error:
                if not isinstance(error, PliantError):
                    _log.exception("log %s can no longer be written", self._name)
                self._failure = error
                return


class _Target:
    """Writes one batch after the other; a batch that fails is tried again, unchanged, before the next."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._batch: tuple[Segment, bytes] | None = None
        self._file: Segment | None = None
        self._size = 0

    @property
    def unfinished(self) -> bool:
        """Whether a batch waits to be written."""
        return self._batch is not None

    def begin(self, segment: Segment, data: bytes) -> None:
        """Takes the next batch."""
        self._batch = (segment, data)

    def finish(self) -> None:
        """Makes the batch durable: a new segment, or on a local path the next lines of the first."""
        if self._batch is None:
            return
        segment, data = self._batch
        if self._file is not None:
            self._store.extend(self._file.key, self._size, data)
        # An earlier try may have come through after all: the name is this attempt's alone, so its bytes tell.
        elif not self._store.put_if_absent(segment.key, data) and self._store.get(segment.key) != data:
            raise _two_writers(self._store, segment)
        elif self._store.is_local:
            self._file = segment
        self._size += len(data)
        self._batch = None


def _two_writers(store: Store, segment: Segment) -> DamageError:
    message = f"attempt {segment.attempt} has two writers of its log {segment.log}"
    hint = "this is a fault of Pliant: please report it with the run's attempts/ folder"
    return DamageError("record.two-writers", message, hint=hint, location=f"{store.uri}/{segment.key}")
