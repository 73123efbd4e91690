"""The board between the workers of a run and its driver: progress goes one way, wishes the other.

    rank 0 ── exchange(notes) ──► board ──► driver: drain() → console
    rank 0 ◄── wishes ─────────── board ◄── driver: request(wish)

One process: a plain object. On Ray: the same class as an actor. Losing it costs nothing but the display.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

STOP = 1
"""Checkpoint, then stop."""
CHECKPOINT = 2
"""Take a checkpoint after this step."""

CONTROL_KINDS = ("preemption", "resize", "failure", "waiting", "recovered")
"""Kinds of the notes that the controller of the workers leaves: why a group ends, and when the run gets on again."""

Note = dict[str, Any]


class Board:
    """Notes for the driver and wishes for the workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: list[Note] = []
        self._wishes = 0

    def exchange(self, notes: list[Note]) -> int:
        """Leaves notes; returns the bitwise or of all wishes so far."""
        with self._lock:
            self._notes.extend(notes)
            return self._wishes

    def request(self, wish: int) -> None:
        with self._lock:
            self._wishes |= wish

    def drain(self) -> list[Note]:
        """The notes left since the last call, in order."""
        with self._lock:
            notes, self._notes = self._notes, []
            return notes


class Reporter(Protocol):
    """What the loop tells the driver. ``wishes`` is what the driver asked for."""

    @property
    def wishes(self) -> int: ...
    def progress(self, note: Note) -> None: ...
    def event(self, note: Note) -> None: ...
    def close(self) -> None: ...


class BoardReporter:
    """Talks to the board from a thread, so that a slow or lost driver never holds up a step.

    Progress is coalesced: only the newest note of an interval is sent. Events are all sent, in order.
    """

    def __init__(self, exchange: Callable[[list[Note]], int], *, every_s: float = 0.25) -> None:
        self._exchange, self._every_s = exchange, every_s
        self._lock = threading.Lock()
        self._events: list[Note] = []
        self._latest: Note | None = None
        self._wishes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pliant-reporter", daemon=True)
        self._thread.start()

    @property
    def wishes(self) -> int:
        return self._wishes

    def progress(self, note: Note) -> None:
        with self._lock:
            self._latest = note

    def event(self, note: Note) -> None:
        with self._lock:
            self._events.append(note)

    def close(self) -> None:
        """Sends what is left."""
        self._stop.set()
        self._thread.join()
        self._talk()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._talk()

    def _talk(self) -> None:
        with self._lock:
            notes = self._events + ([self._latest] if self._latest else [])
            self._events, self._latest = [], None
        try:
            self._wishes |= self._exchange(notes)
        except Exception:
            # The driver is gone or does not answer; the run's own records hold everything that matters.
            return


class NullReporter:
    """On ranks that report nothing."""

    wishes = 0

    def progress(self, note: Note) -> None: ...
    def event(self, note: Note) -> None: ...
    def close(self) -> None: ...
