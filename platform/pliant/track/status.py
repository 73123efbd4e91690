"""How a run stands, in a tracker's words: read from its record alone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pliant.storage.attempts import ended_state
from pliant.storage.record import RunRecord
from pliant.track.tracker import Status

_STATUS: dict[str, Status] = {"done": "FINISHED", "signal": "KILLED"}


@dataclass(frozen=True)
class Truth:
    """The status of a run.

    Attributes:
        state: the same in Pliant's own words.
        ended: whether its driver said so itself; one that was killed did not.
        time_ms: when it ended, or now.
    """

    status: Status
    state: str
    ended: bool
    time_ms: int


def truth_of(record: RunRecord) -> Truth:
    """The status by the newest driver: its stop reason, else whether it lives.

    A driver that died without a word was killed. One on another host, of which nothing is known for certain, counts
    as alive.
    """
    drivers = [a for a in record.attempts() if a.claim.kind == "driver"]
    stop = record.stop_of(drivers[-1].number) if drivers else None
    if stop is not None:
        reason = str(stop["reason"])
        return Truth(_STATUS.get(reason, "FAILED"), ended_state(reason), True, round(float(stop["time"]) * 1000))
    now = round(time.time() * 1000)
    owner = record.owner()
    if owner is not None and owner.liveness(record.store.settings.heartbeat_fresh) == "dead":
        return Truth("KILLED", "died, resumable", False, now)
    return Truth("RUNNING", "running", False, now)
