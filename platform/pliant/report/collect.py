"""Reads what a report shows out of a run's record: no Ray, no torch, no process of the run is needed."""

from __future__ import annotations

import time
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pliant.checkpoint.verify import read_manifest
from pliant.config.yamlfile import parse_yaml
from pliant.errors import DamageError
from pliant.storage.layout import attempt_key, decode
from pliant.storage.logs import read_log, read_superseded
from pliant.storage.record import RunRecord
from pliant.storage.snapshot import HEARTBEAT, AttemptInfo
from pliant.storage.view import Verdict, View
from pliant.track.causes import End, ends_of, waits_of
from pliant.track.goodput import Account, Life, Steps, ledger
from pliant.track.history import datasets
from pliant.track.names import flatten
from pliant.track.provenance import PROVENANCE_OBJECT
from pliant.track.settings import masked
from pliant.track.status import living_driver, truth_of
from pliant.track.tracker import DatasetCard
from pliant.train.recorded import CODE_OBJECT, CONFIG_OBJECT, ORIGINS_OBJECT, Code

Columns = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By name, the steps (int64) at which a number was recorded and its values (float64; NaN where it was not finite)."""

_NO_SERIES = frozenset({"step", "time"})


@dataclass(frozen=True)
class AttemptCard:
    """One attempt, for people.

    Attributes:
        first, last: steps of it that count; None without any.
        ended: stop reason; of a driver without one, what is known of it; of a group without one, why it ended.
        detail: what it said besides.
        why: why it ended, in a line.
    """

    number: int
    kind: str
    driver: int
    host: str
    pid: int
    began: float
    world_size: int | None
    restored: str | None
    first: int | None
    last: int | None
    lost_steps: int
    comparable: bool | None
    conditions: Mapping[str, Any]
    ended: str
    detail: str
    why: str


@dataclass(frozen=True)
class Setting:
    """One setting of the newest start."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True)
class Collected:
    """What is known of a run at one moment.

    Attributes:
        state: how it stands, in words.
        seen: the last sign of life, seconds since 1970; None for a run that never started.
        train, evaluations: their logs in columns.
        best: metric, step and value of the best evaluation that a checkpoint knows of.
        events: all, oldest first.
        provenance: of the newest start; empty when it recorded none.
        code: digest of each of the pipeline's files.
    """

    identity: Mapping[str, Any]
    uri: str
    taken: float
    state: str
    seen: float | None
    train: Columns
    evaluations: Columns
    best: tuple[str, int, float] | None
    attempts: Sequence[AttemptCard]
    accounts: Sequence[Account]
    events: Sequence[Mapping[str, Any]]
    checkpoints: Sequence[Verdict]
    settings: Sequence[Setting]
    data: Sequence[DatasetCard]
    provenance: Mapping[str, Any]
    code: Mapping[str, str] = field(default_factory=dict)


def collect(record: RunRecord) -> Collected:
    """Everything that a report shows, read at one moment; the run may go on meanwhile.

    Raises:
        DamageError, StorageError: a part of the record cannot be read.
    """
    now = time.time()
    view, attempts = record.view(), record.attempts()
    train = in_columns(read_log(record.store, view, "metrics"))
    lost = in_columns(read_superseded(record.store, view, "metrics"))
    evaluations = in_columns(read_log(record.store, view, "evaluations"))
    events = list(read_log(record.store, view, "events"))
    seen = _last_signs(record, attempts, (train, lost), now)
    stops = {info.number: record.stop_of(info.number) for info in attempts if info.stopped}
    starts = {event["attempt"]: event for event in events if event["kind"] == "start"}
    newest = max((info.number for info in attempts if info.claim.kind == "driver"), default=None)
    truth = truth_of(record)
    said = {number: stop for number, stop in stops.items() if stop is not None}
    ends = ends_of([info.claim for info in attempts], said, events, living=living_driver(record))
    lives = [_life(info, ends, said, starts, seen, train, lost, evaluations, events) for info in attempts]
    unsaid = {info.number: "died" for info in attempts if info.claim.kind == "driver"}
    if newest is not None:
        unsaid[newest] = truth.state
    return Collected(
        identity=record.identity,
        uri=record.store.uri,
        taken=now,
        state=truth.state if newest is not None else "not started",
        seen=None if newest is None else seen[newest],
        train=train,
        evaluations=evaluations,
        best=_best(record, view, evaluations),
        attempts=[
            _card(info, life, ends[info.number], said.get(info.number, {}), starts.get(info.number, {}), unsaid)
            for info, life in zip(attempts, lives, strict=True)
        ],
        accounts=ledger(lives),
        events=events,
        checkpoints=view.verdicts(),
        settings=_settings(record, attempts),
        data=datasets(record),
        provenance=_newest(record, attempts, PROVENANCE_OBJECT),
        code=_code(record, attempts),
    )


def in_columns(entries: Iterable[Mapping[str, Any]]) -> Columns:
    """The numbers of a log's entries by name: a column takes a fraction of what the entries would.

    ``null`` stands for a number that was not finite. The column ``time`` has one value an entry, as ``attempt`` has.
    """
    steps: dict[str, array[int]] = defaultdict(lambda: array("q"))
    values: dict[str, array[float]] = defaultdict(lambda: array("d"))
    for entry in entries:
        for name, value in entry.items():
            if value is None or isinstance(value, (int, float)):
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
    return Steps(*(column(columns, name)[mine] for name in ("step", "time", "data_s", "step_s")))


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
    events: Sequence[Mapping[str, Any]],
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
            for e in events
            if e["kind"] == "checkpoint" and e["attempt"] == info.number
        ],
        ended=ends[info.number].cause,
        gone=ends[info.number].at,
        waits=waits_of(events, info.number),
    )


def _card(
    info: AttemptInfo,
    life: Life,
    end: End,
    stop: Mapping[str, Any],
    start: Mapping[str, Any],
    unsaid: Mapping[int, str],
) -> AttemptCard:
    claim = info.claim
    return AttemptCard(
        number=info.number,
        kind=claim.kind,
        driver=claim.driver,
        host=str(claim.info.get("host", "?")),
        pid=int(claim.info.get("pid", 0)),
        began=life.begin,
        world_size=claim.info.get("world_size"),
        restored=start.get("restored"),
        first=int(life.kept.step[0]) if len(life.kept) else None,
        last=int(life.kept.step[-1]) if len(life.kept) else None,
        lost_steps=len(life.lost),
        comparable=start.get("comparable"),
        conditions=start.get("conditions", {}),
        ended=unsaid.get(info.number, "")
        if claim.kind == "driver" and not stop
        else str(stop.get("reason", end.cause or "")),
        detail=masked(str(stop.get("detail", ""))),
        why=masked(end.text),
    )


def _best(record: RunRecord, view: View, evaluations: Columns) -> tuple[str, int, float] | None:
    """The newest readable checkpoint carries the best value; where it was measured, the log says."""
    for ref in view.checkpoints():
        try:
            best = read_manifest(record.store, ref).state.get("best")
        except DamageError:  # removed at this moment, or damaged
            continue
        for name, (steps, values) in evaluations.items():
            if best is not None and name not in _NO_SERIES and (found := np.flatnonzero(values == best)).size:
                return name, int(steps[found[0]]), float(best)
        return None
    return None


def _newest_with(attempts: Sequence[AttemptInfo], name: str) -> int | None:
    return next((info.number for info in reversed(attempts) if name in info.objects), None)


def _newest(record: RunRecord, attempts: Sequence[AttemptInfo], name: str) -> dict[str, Any]:
    """An object of the newest attempt that wrote it; empty when none did."""
    number = _newest_with(attempts, name)
    if number is None:
        return {}
    key = attempt_key(number, name)
    return decode(record.store.get(key), f"{record.store.uri}/{key}")


def _settings(record: RunRecord, attempts: Sequence[AttemptInfo]) -> list[Setting]:
    number = _newest_with(attempts, CONFIG_OBJECT)
    if number is None:
        return []
    key = attempt_key(number, CONFIG_OBJECT)
    values = parse_yaml(record.store.get(key).decode(), f"{record.store.uri}/{key}").value
    origins = _newest(record, attempts, ORIGINS_OBJECT)
    flat = dict(flatten(values if isinstance(values, dict) else {}))
    return [Setting(k, masked(v), masked(str(_origin(origins, k)))) for k, v in flat.items()]


def _origin(origins: Mapping[str, Any], key: str) -> Any:
    """That of the value, or of the table that it stands in."""
    while key not in origins and "." in key:
        key = key.rpartition(".")[0]
    return origins.get(key, "")


def _code(record: RunRecord, attempts: Sequence[AttemptInfo]) -> dict[str, str]:
    number = _newest_with(attempts, CODE_OBJECT)
    if number is None:
        return {}
    key = attempt_key(number, CODE_OBJECT)
    code = Code.from_bytes(record.store.get(key), f"{record.store.uri}/{key}")
    return {name: file.digest for name, file in code.files.items()}
