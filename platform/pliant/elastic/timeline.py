"""How long a recovery took, by part."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, get_args

Part = Literal["detection", "save", "teardown", "placement", "waiting", "start", "load", "first_step", "replay"]
PARTS: tuple[Part, ...] = get_args(Part)
"""In order: noticing it; agreeing, saving, leaving; ending what is left; finding nodes and reserving them; waiting for
machines; processes and the group's connections; model and checkpoint; the first step; steps done before."""


class Timeline:
    """The recovery that is under way; a group that ends before it has got on prolongs it.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._part: Part | None = None
        self._since = 0.0
        self.seconds: dict[Part, float] = {}

    @property
    def active(self) -> bool:
        return self._part is not None

    @property
    def part(self) -> Part | None:
        """What is being done; None while there is nothing to recover from."""
        return self._part

    def begin(self, part: Part, *, detection_s: float = 0.0) -> None:
        """A recovery begins, or begins anew, ``detection_s`` after what it is from."""
        if detection_s:
            self.seconds["detection"] = self.seconds.get("detection", 0.0) + detection_s
        self.mark(part, starts=True)

    def mark(self, part: Part, *, starts: bool = False, ago_s: float = 0.0) -> None:
        """What is being done changes to this, or did so many seconds ago."""
        now = self._clock() - ago_s
        if self._part is None and not starts:
            return
        if self._part is not None:
            self.seconds[self._part] = self.seconds.get(self._part, 0.0) + max(now - self._since, 0.0)
        self._part, self._since = part, now

    def end(self, *, ago_s: float = 0.0) -> dict[str, float]:
        """The run gets on again, since so many seconds; seconds by part, in order, and their ``total``."""
        self.mark("replay", ago_s=ago_s)
        parts: dict[str, float] = {part: round(self.seconds[part], 2) for part in PARTS if part in self.seconds}
        self._part, self.seconds = None, {}
        return {**parts, "total": round(sum(parts.values()), 2)}
