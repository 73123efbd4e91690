"""When a raylet is started again, and what it is told to leave for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pliant.cluster.notices import Notice

_LONGEST_S = 60.0
_STEADY_S = 60.0


@dataclass(frozen=True)
class Backoff:
    """How long to wait before a raylet is started again: longer each time that it ends soon after its start.

    Args:
        first_s: seconds after the first end.
        ends: of raylets in a row that did not last.
    """

    first_s: float
    ends: int = 0

    def after(self, lived_s: float) -> Backoff:
        """This, after a raylet that lived so long."""
        return replace(self, ends=1 if lived_s >= _STEADY_S else self.ends + 1)

    def fresh(self) -> Backoff:
        """This, after a raylet that ended because it was asked to."""
        return replace(self, ends=0)

    @property
    def wait_s(self) -> float:
        """Seconds until the next start."""
        return min(self.first_s * 2.0 ** min(max(self.ends - 1, 0), 32), max(_LONGEST_S, self.first_s))


def most_urgent(notices: Iterable[Notice]) -> Notice | None:
    """The notice that a node is drained for: the one whose time comes first; one without a time comes last."""
    return min(notices, key=lambda n: float("inf") if n.deadline is None else n.deadline, default=None)


def differs(told: float | None, wanted: float | None) -> bool:
    """Whether Ray has to be told of another deadline: metadata services round theirs to seconds."""
    if told is None or wanted is None:
        return told is not wanted
    return abs(told - wanted) > 1.0
