"""The gate in every worker's process: its loop passes it before each piece of collective work.

All ranks do the same pieces in the same order: a step, or a batch of an evaluation. So the number of pieces begun, the
**tick**, means the same everywhere, and a group is stopped together by two rounds of calls into its workers:

    controller ── hold() ──► every rank: begins nothing more, answers its tick
    controller ── stop_at(the highest of them) ──► ranks behind it catch up, then all leave

It works in an evaluation, while waiting for data and in the first step alike, and needs no collective of its own: ranks
that wait for each other inside one are never cut apart. The controller's calls run on the actor's main thread, the loop
in another; in a process without a controller nobody closes the gate.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

_REMEMBERED = 50
"""Pieces whose durations are kept."""
_KEEP_S = 2.0
"""How long stacks that are printed may take to become durable: storage may be what hangs."""

Phase = Literal["starting", "training", "leaving"]
Cause = Literal["preemption", "resize"]


class LeftError(Exception):
    """The workers left together, as they were asked to; what they did is committed."""


@dataclass(frozen=True)
class Report:
    """How a worker gets on. Times are seconds, and ages rather than moments: clocks of hosts differ.

    Attributes:
        tick: pieces of work begun.
        idle_s: since the last sign of progress.
        slowest_s: the longest time between two signs of progress lately; None before the second.
        step: last step that was completed; ``first_step`` the one that the group started from.
        step_s: mean of a step lately; None before the first.
        save_s: from the copy of the newest checkpoint to its commit; None before the first.
        open_s: since the loop began; ``stepped_s`` since its first step was completed; None before that.
        waiting: what it waits for and is allowed to, storage say; empty when nothing.
    """

    phase: Phase
    tick: int
    idle_s: float
    slowest_s: float | None
    step: int
    first_step: int
    step_s: float | None
    save_s: float | None
    open_s: float | None
    stepped_s: float | None
    waiting: str


class Gate:
    """One per worker process.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._held = False
        self._stop_at: int | None = None
        self._tick = 0
        self._opened_at: float | None = None
        self._stepped_at: float | None = None
        self._progress_at = clock()
        self._step_began: float | None = None
        self._gaps: deque[float] = deque(maxlen=_REMEMBERED)
        self._steps: deque[float] = deque(maxlen=_REMEMBERED)
        self._step = self._first_step = 0
        self._save_s: float | None = None
        self._waiting = ""
        self.cause: Cause = "preemption"
        """Why the group was asked to leave; of meaning when it was."""
        self.keep_printed: Callable[[], None] = lambda: None
        """Makes what this process has printed durable."""

    # ------------------------------------------------------------ the loop's side

    def open(self, step: int) -> None:
        """The loop begins after ``step``."""
        with self._changed:
            self._opened_at = self._progress_at = self._clock()
            self._step = self._first_step = step

    def enter(self) -> bool:
        """Before a piece of work. False when the group is leaving: it must not be begun, by any rank."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._stop_at is not None)
            if self._closed():
                return False
            self._tick += 1
            self._progressed()
            return True

    def stepped(self, step: int, seconds: float) -> None:
        """A step is done."""
        with self._changed:
            self._step = step
            self._stepped_at = self._stepped_at or self._clock()
            self._steps.append(seconds)
            self._progressed()

    def saved(self, seconds: float) -> None:
        """A checkpoint was committed, so many seconds after its copy was begun."""
        with self._changed:
            self._save_s = seconds
            self._progressed()

    def wait_for(self, what: str) -> None:
        """Something is waited for that may take its time; an empty string ends that."""
        with self._changed:
            self._waiting = what
            self._progress_at = self._clock()

    @property
    def leaving(self) -> bool:
        """Whether no further piece of work is to be begun; what waits for data then waits no longer."""
        with self._changed:
            return self._closed()

    def _closed(self) -> bool:
        return self._stop_at is not None and self._tick >= self._stop_at

    def _progressed(self) -> None:
        now = self._clock()
        self._gaps.append(now - self._progress_at)
        self._progress_at, self._waiting = now, ""

    # ------------------------------------------------------------ the controller's side

    def hold(self) -> int | None:
        """Lets no further piece of work begin; the tick, or None where the loop has not begun."""
        with self._changed:
            if self._opened_at is None:
                return None
            self._held = True
            return self._tick

    def stop_at(self, tick: int, cause: Cause) -> None:
        """Lets work go on up to this tick; then the loop leaves."""
        with self._changed:
            self._stop_at, self.cause = tick, cause
            self._changed.notify_all()

    def release(self) -> None:
        """Nothing comes of it: work goes on."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def report(self) -> Report:
        """How it gets on."""
        with self._changed:
            now = self._clock()
            opened = self._opened_at
            phase: Phase = "starting" if opened is None else "leaving" if self._closed() else "training"
            return Report(
                phase=phase,
                tick=self._tick,
                idle_s=now - self._progress_at,
                slowest_s=max(self._gaps, default=None),
                step=self._step,
                first_step=self._first_step,
                step_s=sum(self._steps) / len(self._steps) if self._steps else None,
                save_s=self._save_s,
                open_s=None if opened is None else now - opened,
                stepped_s=None if self._stepped_at is None else now - self._stepped_at,
                waiting=self._waiting,
            )


_here = Gate()


def install() -> Gate:
    """A fresh gate for this process, which the functions below speak to from now on."""
    global _here
    _here = Gate()
    return _here


def hold() -> int | None:
    """Calls the process's gate, as do the others: what a controller sends into a worker."""
    return _here.hold()


def stop_at(tick: int, cause: Cause) -> None:
    _here.stop_at(tick, cause)


def release() -> None:
    _here.release()


def report() -> Report:
    return _here.report()


def dump_stacks() -> str:
    """Prints the stack of every thread, into the rank's log, which the process does not outlive by much; returns where
    the thread of the loop stands."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = {names.get(ident, str(ident)): frame for ident, frame in sys._current_frames().items()}
    for name, frame in frames.items():
        sys.stderr.write(f"thread {name}:\n{''.join(traceback.format_stack(frame))}\n")
    keep = threading.Thread(target=_here.keep_printed, name="pliant-stacks", daemon=True)
    keep.start()
    keep.join(_KEEP_S)
    return _place(next((f for n, f in frames.items() if n.startswith("TrainingThread")), None))


def _place(frame: object) -> str:
    stack = traceback.extract_stack(frame) if frame is not None else []  # type: ignore[arg-type]
    return f"{stack[-1].filename}:{stack[-1].lineno} in {stack[-1].name}" if stack else ""
