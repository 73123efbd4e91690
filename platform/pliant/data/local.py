"""Reads windows with threads of the worker itself: no Ray Data, the same bits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from threading import Event

import pyarrow as pa

from pliant.data.manifest import Manifest
from pliant.data.order import Int64Array, Window
from pliant.data.reading import ReadSpec, locate, read_window


class LocalReader:
    """Windows in the order of their schedule, read ahead by a few threads.

    All bookkeeping happens in the thread that calls; the pool's threads only read. At most ``most`` windows are
    alive at a time (being read, waiting, or handed over and not yet given back), except that the one asked for is
    always read. Until the first ``first`` windows have been handed over nothing else is read, so that a first
    batch never waits for what comes after it.

    Args:
        manifest: the dataset.
        spec: what to read.
        schedule: windows in order of need; may be endless.
        permutation_of: output order of a window's rows, called in the reading thread; None keeps them.
        threads: windows read at once.
        first: windows that the first batch needs.
        most: windows alive at a time.
    """

    def __init__(
        self,
        manifest: Manifest,
        spec: ReadSpec,
        schedule: Iterator[Window],
        permutation_of: Callable[[Window], Int64Array | None],
        *,
        threads: int,
        first: int,
        most: int,
    ) -> None:
        self._manifest = manifest
        self._spec = spec
        self._schedule = schedule
        self._permutation_of = permutation_of
        self._first = first
        self._most = most
        self._handed = 0
        self._held = 0
        self._pending: deque[tuple[Window, Future[pa.Table]]] = deque()
        self._cancelled = Event()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="pliant-read")
        self._fill()

    def __iter__(self) -> LocalReader:
        return self

    def __next__(self) -> tuple[Window, pa.Table]:
        """The next window of the schedule.

        Raises:
            StopIteration: the schedule has ended.
            PliantError: the window could not be read; so does every further call.
            RuntimeError: the reader was closed, by this thread or another.
        """
        if not self._pending and not self._begin_next():
            raise StopIteration
        window, future = self._pending[0]
        try:
            table = future.result()
        except CancelledError:
            raise RuntimeError("the reader is closed") from None
        self._pending.popleft()
        self._handed += 1
        self._held += 1
        self._fill()
        return window, table

    def release(self) -> None:
        """Takes note that one of the windows handed over is no longer held."""
        self._held -= 1
        self._fill()

    def close(self) -> None:
        """Stops reading and waits for the threads to end. Reads that have begun are finished, not tried again.

        May be called from another thread than the rest, and twice; a call that waits for a window then raises.
        """
        self._cancelled.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _fill(self) -> None:
        most = self._first if self._handed < self._first else self._most
        while self._held + len(self._pending) < most and self._begin_next():
            pass

    def _begin_next(self) -> bool:
        if self._cancelled.is_set():
            raise RuntimeError("the reader is closed")
        window = next(self._schedule, None)
        if window is None:
            return False
        self._pending.append((window, self._pool.submit(self._read, window)))
        return True

    def _read(self, window: Window) -> pa.Table:
        pieces = locate(self._manifest, window)
        return read_window(self._spec, pieces, self._permutation_of(window), cancelled=self._cancelled)
