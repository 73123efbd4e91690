"""Whether a group stands still: by how long its pieces of work take, not by one number for all jobs.

A thread that hangs in a collective, a read or a lock looks healthy from outside for ever. The bound on the time without
progress follows the slowest piece of work that was seen lately, and is armed before the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pliant.elastic.gate import Report

FLOOR_S = 60.0
"""No bound is shorter: machines pause, and a read that is tried again takes half a minute."""
SLOWER = 6.0
"""How many times the slowest piece of work lately."""
FIRST_S = 1800.0
"""Until the first step: models are loaded, kernels compiled."""


class Watchdog:
    """Watches one group after the other.

    Args:
        timeout_s: the bound, if it is set; None derives it.
        patience_s: how long a worker may wait for storage.
    """

    def __init__(
        self, timeout_s: float | None, patience_s: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout_s, self._patience_s, self._clock = timeout_s, patience_s, clock
        self._began = clock()

    def begin(self) -> None:
        """A group has been started."""
        self._began = self._clock()

    def check(self, report: Report | None, age_s: float) -> str:
        """In words, that the group stands still; empty while it does not.

        Args:
            report: the newest one of a rank; None while there was none.
            age_s: seconds since it was made.
        """
        if report is None:
            idle_s, bound_s, where = self._clock() - self._began, self._timeout_s or FIRST_S, "before the first report"
        else:
            # A process that stood by is older than its group.
            idle_s = min(report.idle_s + age_s, self._clock() - self._began)
            bound_s = self.bound_s(report)
            where = "before the first step" if report.stepped_s is None else f"after step {report.step}"
        if idle_s <= bound_s:
            return ""
        return f"no progress for {idle_s:.0f} s {where}, {bound_s:.0f} s are allowed (elastic.stall_timeout)"

    def bound_s(self, report: Report) -> float:
        """The longest time without progress that is allowed."""
        if self._timeout_s is not None:
            bound_s = self._timeout_s
        elif report.stepped_s is None:
            bound_s = FIRST_S
        else:
            bound_s = max(FLOOR_S, SLOWER * (report.slowest_s or 0.0))
        # Storage that is away is waited for; and a group that leaves writes its checkpoint.
        allowed = bool(report.waiting) or report.phase == "leaving"
        return bound_s + (self._patience_s if allowed else 0.0)
