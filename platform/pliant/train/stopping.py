"""What ends a driver before its work is done: signals, and ``pliant stop`` from any host. One switch for all of them.

    SIGINT ─┐
    SIGTERM, SIGHUP ─┼─► Stopping.ask ─► the board's wish STOP ─► checkpoint, stop    a second SIGINT: now
    heartbeat ─► stop request ─┘                                       SIGTERM, SIGHUP: not later than 25 s after it

SIGHUP says that the terminal is gone; under ``nohup``, which ignores it, it goes on being ignored.
Asked before there are workers, it is kept until there is a board, or keeps them from being started.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pliant.errors import EXIT_INTERRUPTED, EXIT_STOPPED
from pliant.observe.board import STOP

TERM_WITHIN_S = 25.0
"""Seconds from SIGTERM to the end of waiting for a checkpoint: what sends it kills after 30."""
_LAST_WORD_S = 1.0
_SOON = ("SIGTERM", "SIGHUP")


class OutOfTime(BaseException):
    """The time that SIGTERM leaves is over; the newest committed checkpoint has to serve."""


class Stopping:
    """The switch.

    Args:
        tell: shows a line.
        term_within: seconds that SIGTERM leaves for the checkpoint.
    """

    def __init__(self, tell: Callable[[str], None], *, term_within: float = TERM_WITHIN_S) -> None:
        self._tell, self._term_within = tell, term_within
        self._request: Callable[[int], None] | None = None
        self._term_at: float | None = None
        self._timer: threading.Timer | None = None
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()  # a signal handler may interrupt the thread that holds it
        kept = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
        self._heard = (signal.SIGINT, signal.SIGTERM, *kept)
        self.causes: list[str] = []
        """What asked, in order: ``SIGINT``, ``SIGTERM``, ``SIGHUP`` or ``request``."""

    @property
    def asked(self) -> bool:
        return bool(self.causes)

    @property
    def exit_code(self) -> int:
        """Of a run that stopped because it was asked to."""
        return EXIT_INTERRUPTED if "SIGINT" in self.causes else EXIT_STOPPED

    def time_left(self, within: float) -> float:
        """Seconds that work after the checkpoint may take: ``within``, less where SIGTERM has come."""
        if self._term_at is None:
            return within
        return min(within, max(0.0, self._term_at + self._term_within - time.monotonic()))

    def ask(self, cause: str, by: str = "") -> None:
        """Asks the workers to checkpoint and stop; returns at once. Safe in a signal handler."""
        with self._lock:
            self.causes.append(cause)
            request = self._request
        after = "; press Ctrl-C again to stop at once" if cause == "SIGINT" else ""
        text = f"stopping after a checkpoint: {by or cause}{after}"

        def carry_out() -> None:
            self._tell(text)
            if request is not None:
                request(STOP)

        # A signal handler must not write to a stream that the main thread may be writing to just then; and the board
        # may be a remote actor, which neither a handler nor the heartbeat should wait for.
        thread = threading.Thread(target=carry_out, daemon=True)
        self._threads.append(thread)
        thread.start()

    def attach(self, request: Callable[[int], None]) -> None:
        """From now on there are workers to ask: through this method of their board."""
        with self._lock:
            self._request = request
            asked = self.asked
        if asked:
            request(STOP)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handles the signals in the block, on the main thread; elsewhere it does nothing.

        Raises:
            KeyboardInterrupt: a second SIGINT.
            OutOfTime: SIGTERM's time is over.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in self._heard}
        self.arm()
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for thread in self._threads:  # one that still writes when the interpreter ends would bring it down
                thread.join(_LAST_WORD_S)
            for number, handler in before.items():
                signal.signal(number, handler)

    def arm(self) -> None:
        """Takes the signals again from a library that put handlers of its own; Ray does, whenever it starts."""
        if threading.current_thread() is threading.main_thread():
            for number in self._heard:
                signal.signal(number, self._caught)

    def shield(self) -> None:
        """Until ``arm``, the terminal's end is ignored, and by all that is started meanwhile for good: the kernel tells
        every process of the terminal's, and a raylet would end of it in the middle of the last save."""
        if threading.current_thread() is threading.main_thread() and signal.SIGHUP in self._heard:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        cause = signal.Signals(number).name
        if cause == "SIGINT" and cause in self.causes:
            raise KeyboardInterrupt
        if cause in _SOON and self._timer is not None:
            if self.time_left(self._term_within) <= 0:
                raise OutOfTime
            return
        if cause in _SOON:
            self._term_at = time.monotonic()
            # A signal again, since nothing else interrupts whatever the main thread waits for.
            main = threading.main_thread().ident
            self._timer = threading.Timer(self._term_within, lambda: signal.pthread_kill(main or 0, signal.SIGTERM))
            self._timer.daemon = True
            self._timer.start()
        self.ask(cause)
