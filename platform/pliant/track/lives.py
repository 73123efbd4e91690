"""Reads what is known of the time of a run's attempts out of its record: what the goodput ledger is made from."""

from __future__ import annotations

import time
from array import array
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pliant.storage.layout import attempt_key, decode
from pliant.storage.logs import read_log, read_superseded
from pliant.storage.record import RunRecord
from pliant.storage.snapshot import HEARTBEAT, AttemptInfo
from pliant.storage.view import View
from pliant.track.causes import End, waits_of
from pliant.track.goodput import Account, Life, Steps, by_cause, goodput, ledger, totals
from pliant.track.status import read_ends

Columns = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By name, the steps (int64) at which a number was recorded and its values (float64; NaN where it was not finite)."""

_TIMED = frozenset({"attempt", "step", "time", "data_s", "step_s", "seconds"})


@dataclass(frozen=True)
class Lives:
    """A run's attempts, and the logs that tell of them.

    Attributes:
        train, evaluations: their logs in columns, of what counts.
        events: all, oldest first.
        stops: what attempts said when they ended, by number.
        starts: the events at which groups started, by number.
        ends: how each attempt ended.
        seen: when each was last heard of, seconds since 1970.
        lives: one for each attempt.
    """

    view: View
    attempts: Sequence[AttemptInfo]
    train: Columns
    evaluations: Columns
    events: Sequence[Mapping[str, Any]]
    stops: Mapping[int, Mapping[str, Any]]
    starts: Mapping[int, Mapping[str, Any]]
    ends: Mapping[int, End]
    seen: Mapping[int, float]
    lives: Sequence[Life]


def read_lives(record: RunRecord, *, names: Container[str] | None = None) -> Lives:
    """Reads the logs of steps and events to the end.

    Args:
        names: of the columns that are wanted; default: all there are.

    Raises:
        DamageError, StorageError: a part of the record cannot be read.
    """
    now = time.time()
    view, attempts = record.view(), record.attempts()
    train = in_columns(read_log(record.store, view, "metrics"), names)
    lost = in_columns(read_superseded(record.store, view, "metrics"), names)
    evaluations = in_columns(read_log(record.store, view, "evaluations"), names)
    events = list(read_log(record.store, view, "events"))
    seen = _last_signs(record, attempts, (train, lost), now)
    starts = {event["attempt"]: event for event in events if event["kind"] == "start"}
    stops, ends = read_ends(record, attempts, events)
    told: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        told[event["attempt"]].append(event)
    lives = [_life(info, ends, stops, starts, seen, train, lost, evaluations, told[info.number]) for info in attempts]
    return Lives(view, attempts, train, evaluations, events, stops, starts, ends, seen, lives)


def read_accounts(record: RunRecord) -> list[Account]:
    """The goodput ledger of a run."""
    return ledger(read_lives(record, names=_TIMED).lives)


def spent(accounts: Sequence[Account]) -> dict[str, Any]:
    """The ledger in short: ``seconds`` by category, their ``causes``, and the ``goodput``."""
    return {
        "seconds": {c: round(s, 3) for c, s in totals(accounts).items()},
        "causes": {c: {why: round(s, 3) for why, s in parts.items()} for c, parts in by_cause(accounts).items()},
        "goodput": goodput(accounts),
    }


def in_columns(entries: Iterable[Mapping[str, Any]], names: Container[str] | None = None) -> Columns:
    """The numbers of a log's entries by name: a column takes a fraction of what the entries would.

    ``null`` stands for a number that was not finite. The column ``time`` has one value an entry, as ``attempt`` has.

    Args:
        names: these alone; default: all.
    """
    steps: dict[str, array[int]] = defaultdict(lambda: array("q"))
    values: dict[str, array[float]] = defaultdict(lambda: array("d"))
    for entry in entries:
        for name, value in entry.items():
            if (names is None or name in names) and (value is None or isinstance(value, (int, float))):
                steps[name].append(entry["step"])
                values[name].append(np.nan if value is None else value)
    return {name: (np.array(steps[name], dtype=np.int64), np.array(values[name], dtype=np.float64)) for name in steps}


def column(columns: Columns, name: str) -> np.ndarray:
    """The values of a column; empty where there is none."""
    return columns[name][1] if name in columns else np.zeros(0)


def _of_attempt(columns: Columns, number: int) -> Steps:
    mine = column(columns, "attempt") == number
    if not mine.any():
        return Steps()
    found = (column(columns, name) for name in ("step", "time", "data_s", "step_s"))
    return Steps(*(values[mine] if len(values) == len(mine) else np.zeros(mine.sum()) for values in found))


def _last_signs(
    record: RunRecord, attempts: Sequence[AttemptInfo], logs: Sequence[Columns], now: float
) -> dict[int, float]:
    """When each attempt was last heard of: a living driver now, another by its heartbeat and its own entries."""
    owner = record.owner()
    lives = owner is not None and owner.liveness(record.store.settings.heartbeat_fresh) == "alive"
    signs = {info.number: float(info.claim.info.get("time", 0.0)) for info in attempts}
    for info in attempts:
        if HEARTBEAT in info.objects:
            key = attempt_key(info.number, HEARTBEAT)
            beat = decode(record.store.get(key), f"{record.store.uri}/{key}")
            signs[info.number] = max(signs[info.number], float(beat.get("time", 0.0)))
    for columns in logs:
        for number, at in zip(column(columns, "attempt"), column(columns, "time"), strict=True):
            signs[int(number)] = max(signs.get(int(number), 0.0), float(at))
    for info in attempts:
        signs[info.claim.driver] = max(signs[info.claim.driver], signs[info.number])
    if owner is not None and lives:
        signs[owner.attempt] = now
    return signs


def _life(
    info: AttemptInfo,
    ends: Mapping[int, End],
    stops: Mapping[int, Mapping[str, Any]],
    starts: Mapping[int, Mapping[str, Any]],
    seen: Mapping[int, float],
    train: Columns,
    lost: Columns,
    evaluations: Columns,
    told: Sequence[Mapping[str, Any]],
) -> Life:
    stop = stops.get(info.number)
    end = float(stop["time"]) if stop else seen[info.number] if info.claim.kind == "driver" else None
    mine = column(evaluations, "attempt") == info.number
    return Life(
        number=info.number,
        driver=info.claim.driver,
        begin=float(info.claim.info.get("time", 0.0)),
        end=end,
        from_step=int(starts.get(info.number, {}).get("step", 0)),
        kept=_of_attempt(train, info.number),
        lost=_of_attempt(lost, info.number),
        evaluations=[
            (float(at), float(seconds))
            for at, seconds in zip(column(evaluations, "time")[mine], column(evaluations, "seconds")[mine], strict=True)
        ]
        if mine.any()
        else [],
        stalls=[
            (int(e["step"]), float(e["stall_s"]) + float(e.get("waited_s", 0.0)))
            for e in told
            if e["kind"] == "checkpoint"
        ],
        ended=ends[info.number].cause,
        gone=ends[info.number].at,
        waits=waits_of(told, info.number),
    )
