"""What processes print: every rank's lines into a log of its own in the run, rank 0's on the screen as well, and those
of a driver, which are Ray's and other libraries', into a log alone.

Python's own streams are taken, not the descriptors below them: what C code writes stays in Ray's files, and a debugger
finds the terminal where it was.
"""

from __future__ import annotations

import io
import os
import pdb
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Literal, TextIO

from pliant.errors import PliantError, UserCodeError
from pliant.observe.board import Reporter
from pliant.observe.console import Console
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.store import Store

Stream = Literal["out", "err"]
DRIVER_LOG = "driver"
_LINES_PER_SECOND = 50
"""Most lines that reach the screen; all of them are in the log."""
_LONGEST_LINE = 10_000


def output_log(rank: int) -> str:
    """Name of the log that holds what a rank printed: entries with time, stream (``out`` or ``err``) and text."""
    return f"rank-{rank}"


def rank_of(log: str) -> int | None:
    """The inverse of ``output_log``; None for the name of another log."""
    _, prefix, rank = log.rpartition("rank-")
    return int(rank) if log == f"rank-{rank}" and prefix and rank.isdecimal() else None


class Lines(io.TextIOBase):
    """A text stream that hands over complete lines, without their ends.

    Args:
        name: handed over with each line.
        original: what it stands for; asked for its descriptor and encoding.
    """

    def __init__(self, name: Stream, original: TextIO, take: Callable[[Stream, str], None]) -> None:
        self._name, self._original, self._take = name, original, take
        self._begun = ""
        self._lock = threading.RLock()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._original.encoding

    def fileno(self) -> int:
        return self._original.fileno()

    def isatty(self) -> bool:
        """No: what is printed goes into a log as well, so that bars and colours would only spoil it."""
        return False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
            if len(self._begun) > _LONGEST_LINE:
                lines, self._begun = [*lines, self._begun], ""
            for line in lines:
                # A carriage return starts a line over: of a progress bar, its last state is what is kept.
                self._take(self._name, line.rstrip("\r").rpartition("\r")[2])
        return len(text)

    def finish(self) -> None:
        """Hands over a line that has no end yet."""
        with self._lock:
            if self._begun:
                self.write("\n")


@contextmanager
def leave_terminal_to_debuggers(console: Console) -> Iterator[None]:
    """In the block, ``breakpoint()`` finds the streams as they were before, and no bar."""
    before, streams = sys.breakpointhook, (sys.stdout, sys.stderr)
    if sys.__stdout__ is not None and sys.__stdout__.isatty():  # what it edits lines on
        streams = (sys.__stdout__, sys.stderr)

    def hook(*args: Any, **kwargs: Any) -> Any:
        console.plain()
        sys.stdout, sys.stderr = streams
        if os.environ.get("PYTHONBREAKPOINT"):  # a debugger of the user's choice; it stops in this frame
            return before(*args, **kwargs)
        pdb.Pdb().set_trace(sys._getframe().f_back)

    sys.breakpointhook = hook
    try:
        yield
    finally:
        sys.breakpointhook = before


class Printed:
    """Takes what this process prints in the block.

    Args:
        store, number: of the run, and of the attempt that prints.
        log: where it goes.
        reporter: takes the lines to the screen; a null one where that shall not be.
        every_s: seconds between two writes of the log.
    """

    def __init__(self, store: Store, number: int, log: str, reporter: Reporter, *, every_s: float) -> None:
        self._reporter = reporter
        self._log = LogWriter(store, RunRecord.open(store).attempt(number), log, every_s=every_s)
        self._second, self._shown, self._hidden = 0, 0, 0

    def __enter__(self) -> Printed:
        self._before = (sys.stdout, sys.stderr)
        self._mine = (Lines("out", sys.stdout, self._take), Lines("err", sys.stderr, self._take))
        sys.stdout, sys.stderr = self._mine
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Puts the streams back; an error that ends the block goes into the log."""
        for stream in self._mine:
            stream.finish()
        if (sys.stdout, sys.stderr) == self._mine:  # not when a debugger has put them back already
            sys.stdout, sys.stderr = self._before
        if isinstance(error, Exception):
            own = f"{error.frames}{error}" if isinstance(error, UserCodeError) else None
            for line in (own or "".join(traceback.format_exception(error))).splitlines():
                self._record("err", line)
        self._tell_hidden()
        with suppress(PliantError):  # it belongs to steps that will be repeated, or the run is another's by now
            self._log.close()

    def keep(self) -> None:
        """Returns when all lines so far are durable, or cannot be."""
        with suppress(PliantError):
            self._log.flush()

    def _take(self, stream: Stream, line: str) -> None:
        self._record(stream, line)
        if (now := int(time.monotonic())) != self._second:
            self._tell_hidden()
            self._second, self._shown = now, 0
        self._shown += 1
        if self._shown <= _LINES_PER_SECOND:
            self._reporter.event({"kind": "output", "text": line})
        else:
            self._hidden += 1

    def _tell_hidden(self) -> None:
        if self._hidden:
            self._reporter.event({"kind": "output", "text": f"… {self._hidden:,} lines more: pliant logs shows them"})
            self._hidden = 0

    def _record(self, stream: Stream, line: str) -> None:
        with suppress(PliantError):
            self._log.append({"time": round(time.time(), 3), "stream": stream, "text": line})
