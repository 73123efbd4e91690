"""How a run or a sweep stands, by its drivers alone."""

from __future__ import annotations

from typing import NamedTuple

from pliant.storage.attempts import ended_state
from pliant.storage.owner import Owner
from pliant.storage.record import RunRecord


class Standing(NamedTuple):
    """How a run or a sweep stands, by its drivers.

    Attributes:
        state: as ``Run.state`` has it.
        detail: the first line of why it ended.
        starts: of drivers so far.
        owner: the newest driver, unless it said why it ended.
    """

    state: str
    detail: str | None
    starts: int
    owner: Owner | None


def standing(record: RunRecord) -> Standing:
    """How a run or a sweep stands, from its record alone."""
    owner = record.owner()
    drivers = [a.number for a in record.attempts() if a.claim.kind == "driver"]
    if owner is not None:
        liveness = owner.liveness(record.store.settings.heartbeat_fresh)
        state = {"alive": "running", "dead": "died, resumable", "unknown": "unknown"}[liveness]
        return Standing(state, None, len(drivers), owner)
    stop = record.stop_of(drivers[-1]) if drivers else None
    if stop is None:
        return Standing("not started", None, len(drivers), None)
    detail = str(stop.get("detail") or "").splitlines()
    return Standing(ended_state(str(stop["reason"])), detail[0] if detail else None, len(drivers), None)
