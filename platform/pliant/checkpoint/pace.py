"""The pace of work beside training: a bounded share of a core, for as long as nobody waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

_REST = 9.0
"""Seconds of rest for each second of a core: such work takes a tenth of one."""
_PIECE = 2**20
_SHORTEST = 0.002
"""Seconds of a core below which no rest is worth its waking up."""


class Pace:
    """How one thread shares its machine while it works through many bytes.

    Args:
        allowed_s: seconds that it may rest altogether; 0: it never rests.
        clock: seconds of a core that the calling thread has used.
    """

    def __init__(self, allowed_s: float = 0.0, clock: Callable[[], float] = time.thread_time) -> None:
        self._left_s = allowed_s
        self._clock = clock
        self._rested_at: float | None = None  # by the clock, which belongs to the thread that works
        self._hurry = threading.Event()
        self.rested_s = 0.0

    def hurry(self) -> None:
        """Somebody waits: a rest ends at once and none follows. For any thread."""
        self._hurry.set()

    def pieces(self, data: memoryview) -> Iterator[memoryview]:
        """The bytes piece by piece, with a rest after what was done with each."""
        if self._rested_at is None:
            self._rested_at = self._clock()
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]
            self._rest(self._clock() - self._rested_at)

    def _rest(self, worked_s: float) -> None:
        if worked_s < _SHORTEST or self._left_s <= 0 or self._hurry.is_set():
            return
        began = time.monotonic()
        self._hurry.wait(min(_REST * worked_s, self._left_s))
        rested_s = time.monotonic() - began
        self._left_s -= rested_s
        self.rested_s += rested_s
        self._rested_at = self._clock()


def allowed_rest(interval_s: float, peer_timeout_s: float) -> float:
    """Seconds that a save may rest altogether, on every rank.

    Args:
        interval_s: from this save to the next, which is not to wait for this one: at most half of it is rest.
        peer_timeout_s: after which a rank that does not answer in a save counts as lost: ranks that rest differently
            must not come near it.
    """
    return min(interval_s, peer_timeout_s) / 2
