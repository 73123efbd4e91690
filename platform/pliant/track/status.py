"""How a run stands and what its attempts came to: read from its record alone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pliant.observe.board import CONTROL_KINDS
from pliant.storage.attempts import ended_state
from pliant.storage.logs import last_written, read_log
from pliant.storage.record import RunRecord
from pliant.storage.snapshot import AttemptInfo, read_decision
from pliant.storage.view import View
from pliant.track.causes import Cause, End, ends_of
from pliant.track.settings import masked
from pliant.track.tracker import Status

_STATUS: dict[str, Status] = {"done": "FINISHED", "signal": "KILLED"}
_SWEEP_STATUS: dict[str, Status] = {**_STATUS, "limit": "FINISHED"}
"""A sweep whose budget is used up, or that gets no better, has ended as it was told to."""


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


def is_trial(record: RunRecord) -> bool:
    """Whether a record is that of a sweep's trial: trackers are told of it by its sweep."""
    return "sweep" in record.identity


def living_driver(record: RunRecord) -> int | None:
    """The attempt number of the driver that runs, or may do so for all that is known; None where none does."""
    owner = record.owner()
    if owner is None or owner.liveness(record.store.settings.heartbeat_fresh) == "dead":
        return None
    return owner.attempt


def truth_of(record: RunRecord) -> Truth:
    """The status by the newest driver: its stop reason, else whether it lives.

    A driver that died without a word was killed. One on another host, of which nothing is known for certain, counts
    as alive.
    """
    drivers = [a for a in record.attempts() if a.claim.kind == "driver"]
    stop = record.stop_of(drivers[-1].number) if drivers else None
    if stop is not None:
        reason = str(stop["reason"])
        known = _SWEEP_STATUS if record.is_sweep else _STATUS
        return Truth(known.get(reason, "FAILED"), ended_state(reason), True, round(float(stop["time"]) * 1000))
    now = round(time.time() * 1000)
    owner = record.owner()
    if owner is not None and owner.liveness(record.store.settings.heartbeat_fresh) == "dead":
        return Truth("KILLED", "died, resumable", False, now)
    return Truth("RUNNING", "running", False, now)


def read_ends(
    record: RunRecord, attempts: Sequence[AttemptInfo], events: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, dict[str, Any]], dict[int, End]]:
    """What each attempt said when it ended, of those that did, and how each ended.

    Args:
        attempts: all of the run.
        events: those of its drivers at least.
    """
    stopped = [info.number for info in attempts if info.stopped]
    with ThreadPoolExecutor(8) as pool:  # on object storage it is waiting, not work
        stops = {n: stop for n, stop in zip(stopped, pool.map(record.stop_of, stopped), strict=True) if stop}
    return stops, ends_of([info.claim for info in attempts], stops, events, living=living_driver(record))


@dataclass(frozen=True)
class GroupLine:
    """One start of a run's workers.

    Attributes:
        attempt, driver: their numbers.
        workers: None where a claim does not say.
        from_step: that it started from.
        to_step: the last one that it recorded; None before the first. A later group may have done some of them again.
        began: seconds since 1970.
        cause: why it ended; None for one that is done or goes on.
        why: the same in words; empty for one that goes on.
    """

    attempt: int
    driver: int
    workers: int | None
    from_step: int
    to_step: int | None
    began: float
    cause: Cause | None
    why: str


def groups_of(record: RunRecord) -> list[GroupLine]:
    """Every start of the workers, oldest first. Of the logs it reads the drivers' events and ends of the metrics."""
    view, attempts = record.view(), record.attempts()
    drivers = {info.number for info in attempts if info.claim.kind == "driver"}
    groups = [info for info in attempts if info.number not in drivers]
    _, ends = read_ends(record, attempts, list(read_log(record.store, view, "events", of=drivers)))
    last = last_written(record.store, "metrics")
    with ThreadPoolExecutor(8) as pool:
        from_steps = list(pool.map(lambda info: _from_step(record, info), groups))
    return [
        GroupLine(
            info.number,
            info.claim.driver,
            info.claim.info.get("world_size"),
            from_step,
            int(last[info.number]["step"]) if info.number in last else None,
            float(info.claim.info.get("time", 0.0)),
            ends[info.number].cause,
            masked(ends[info.number].text),
        )
        for info, from_step in zip(groups, from_steps, strict=True)
    ]


def waiting_for_machines(record: RunRecord, view: View) -> str | None:
    """What the newest driver said last of its workers, if that is that it waits for machines; else None."""
    newest = record.attempts()
    driver = max((info.number for info in newest if info.claim.kind == "driver"), default=0)
    told = [event for event in read_log(record.store, view, "events", of={driver}) if event["kind"] in CONTROL_KINDS]
    if not told or told[-1]["kind"] != "waiting" or float(newest[-1].claim.info.get("time", 0.0)) > told[-1]["time"]:
        return None
    return str(told[-1].get("text", ""))


def _from_step(record: RunRecord, info: AttemptInfo) -> int:
    if not info.restored:
        return 0
    checkpoint = read_decision(record.store, info.number).checkpoint
    return checkpoint.step if checkpoint else 0
