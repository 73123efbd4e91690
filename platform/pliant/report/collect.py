"""Reads what a report shows out of a run's record: no Ray, no torch, no process of the run is needed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pliant.checkpoint.verify import read_manifest
from pliant.config.yamlfile import parse_yaml
from pliant.errors import DamageError
from pliant.storage.layout import attempt_key, decode
from pliant.storage.record import RunRecord
from pliant.storage.snapshot import AttemptInfo
from pliant.storage.view import Verdict, View
from pliant.track.goodput import Account, Life, ledger
from pliant.track.history import datasets
from pliant.track.lives import Columns, Lives, read_lives
from pliant.track.names import flatten
from pliant.track.provenance import PROVENANCE_OBJECT
from pliant.track.settings import masked
from pliant.track.status import truth_of
from pliant.track.tracker import DatasetCard
from pliant.train.recorded import CODE_OBJECT, CONFIG_OBJECT, ORIGINS_OBJECT, Code

_NO_SERIES = frozenset({"step", "samples", "time"})


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
    known = read_lives(record)
    view, attempts = known.view, known.attempts
    newest = max((info.number for info in attempts if info.claim.kind == "driver"), default=None)
    truth = truth_of(record)
    unsaid = {info.number: "died" for info in attempts if info.claim.kind == "driver"}
    if newest is not None:
        unsaid[newest] = truth.state
    return Collected(
        identity=record.identity,
        uri=record.store.uri,
        taken=now,
        state=truth.state if newest is not None else "not started",
        seen=None if newest is None else known.seen[newest],
        train=known.train,
        evaluations=known.evaluations,
        best=_best(record, view, known.evaluations),
        attempts=[_card(info, life, known, unsaid) for info, life in zip(attempts, known.lives, strict=True)],
        accounts=ledger(known.lives),
        events=known.events,
        checkpoints=view.verdicts(),
        settings=_settings(record, attempts),
        data=datasets(record),
        provenance=_newest(record, attempts, PROVENANCE_OBJECT),
        code=_code(record, attempts),
    )


def _card(info: AttemptInfo, life: Life, known: Lives, unsaid: Mapping[int, str]) -> AttemptCard:
    claim, end = info.claim, known.ends[info.number]
    stop, start = known.stops.get(info.number, {}), known.starts.get(info.number, {})
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
