"""How a worker group joins its run: one attempt number, the verified state to go on from, and the decision about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pliant.checkpoint.clone import finish_clone
from pliant.checkpoint.ranks import Ranks
from pliant.checkpoint.reader import RestoredCheckpoint, restore
from pliant.errors import ConfigError, PliantError
from pliant.observe.board import Reporter
from pliant.storage.attempts import Attempt, StopReason
from pliant.storage.layout import CheckpointRef, attempt_key, decode, encode
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.store import Store
from pliant.storage.view import QUARANTINE, STEP_LOGS, View
from pliant.train.observer import EVENT_LOG, Log, NullLog
from pliant.train.parallel import Workers
from pliant.train.precision import compare_conditions
from pliant.train.state import TrainState

CONDITIONS_OBJECT = "conditions.json"


@dataclass(frozen=True)
class Membership:
    """What one rank holds of its group's attempt; the record itself is in rank 0's hands alone.

    Attributes:
        number: of the attempt, on every rank.
        record, attempt: None on ranks other than 0.
        logs: the run's logs; null objects on ranks other than 0.
    """

    number: int
    record: RunRecord | None
    attempt: Attempt | None
    logs: dict[str, Log]
    reporter: Reporter

    def check(self) -> None:
        """Raises FencedError when a newer attempt has claimed the run."""
        if self.attempt is not None:
            self.attempt.check()

    def event(self, kind: str, text: str, **fields: Any) -> None:
        """Something that happened to the run, for its history and for the screen."""
        entry = {"kind": kind, "text": text, **fields, "time": round(time.time(), 3)}
        self.logs[EVENT_LOG].append(entry)
        self.reporter.event(entry)

    def end(self, reason: StopReason, state: TrainState) -> None:
        """Records that the group ended as it should; the driver hears of it where the run ends with it."""
        if self.attempt is not None:
            self.attempt.stop(reason)
        if reason in ("done", "signal"):
            self.reporter.event({"kind": "ended", "done": reason == "done", "step": state.step})

    def close(self) -> None:
        """Writes what is left of the logs; what storage refuses now belongs to steps that will be repeated."""
        for log in self.logs.values():
            with suppress(PliantError):
                log.close()


def join_run(store: Store, workers: Workers, *, driver: int, reporter: Reporter) -> Membership:
    """Takes the group's attempt number. Collective.

    Raises:
        FencedError: a newer driver has claimed the run.
    """
    held: list[tuple[RunRecord, Attempt]] = []

    def claim() -> int:
        record = RunRecord.open(store)
        held.append((record, record.claim_group(driver, {"world_size": workers.world_size})))
        return held[0][1].number

    number = Ranks(workers.host_group).at_root("claiming an attempt", claim)
    names = (*sorted(STEP_LOGS), EVENT_LOG)
    if not held:
        return Membership(number, None, None, {name: NullLog() for name in names}, reporter)
    record, attempt = held[0]
    every_s = store.settings.segment_every
    logs: dict[str, Log] = {name: LogWriter(store, attempt, name, every_s=every_s) for name in names}
    return Membership(number, record, attempt, logs, reporter)


def restore_state(
    store: Store,
    workers: Workers,
    member: Membership,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    fresh: TrainState,
    begin: Callable[[], None] = lambda: None,
    now: dict[str, Any],
    data_digest: str,
    exact: bool,
) -> TrainState:
    """Loads the newest intact checkpoint, decides on it, and records the attempt's conditions. Collective.

    That of a run which begins as the clone of another one is copied first, if no start before has done so.

    Args:
        fresh: the state of a run that has no checkpoint yet.
        begin: gives the model of such a run its parameters; collective.
        now: this attempt's conditions.
        data_digest: of the training set; a checkpoint of another one is refused.
        exact: whether the conditions are promised to matter.

    Raises:
        DamageError: checkpoints exist and none is intact.
        ConfigError: the checkpoint, or what the run begins with, does not fit the settings.
    """
    ranks = Ranks(workers.host_group)

    def view() -> View:
        record, attempt = _root(member)
        if (copy := finish_clone(record, attempt)) is not None:
            donor = record.identity["clone"]
            member.event("clone", f"checkpoint {copy.name} was copied from {donor['run']}", step=copy.step, clone=donor)
        return record.view()

    def quarantine(ref: CheckpointRef, reason: str) -> None:
        _root(member)[1].put_marker(QUARANTINE, ref.name, {"reason": reason})
        member.event("quarantine", f"checkpoint {ref.name} is damaged and will not be used: {reason}", step=ref.step)

    restored = restore(
        store,
        view,
        group=workers.host_group,
        load=lambda checkpoint: checkpoint.load(model, optimizer),
        on_quarantine=quarantine,
    )
    if restored is None:
        begin()
    state = fresh if restored is None else _state_of(restored, fresh, data_digest)

    def decide() -> None:
        record, attempt = _root(member)
        logs = (
            {name: {"attempt": at.attempt, "seq": at.seq} for name, at in restored.manifest.logs.items()}
            if restored
            else {}
        )
        attempt.restore(restored.ref if restored else None, logs)
        attempt.write(CONDITIONS_OBJECT, encode(now))
        differences = _differences(record, now) if exact else []
        initial = None if restored else record.identity.get("init")
        source = f"the beginning, with the parameters of {initial['text']}" if initial else "the beginning"
        source = f"step {restored.ref.step} of attempt {restored.ref.attempt}" if restored else source
        member.event(
            "start",
            f"attempt {member.number} (its driver is attempt {attempt.driver}):"
            f" {workers.world_size} × {now['device']}, from {source}",
            step=state.step, world_size=workers.world_size, comparable=not differences, conditions=now,
            restored=restored.ref.name if restored else None, init=initial,
        )  # fmt: skip
        if differences:
            member.event(
                "not-comparable",
                "not comparable bit by bit with the run's first attempt: " + "; ".join(differences),
                differences=differences,
            )
        # Before the first step: whatever kills the attempt, its start and what it is worth stand in the record.
        member.logs[EVENT_LOG].flush()

    ranks.at_root("deciding on the restore", decide)
    return state


def _root(member: Membership) -> tuple[RunRecord, Attempt]:
    if member.record is None or member.attempt is None:
        raise RuntimeError("only rank 0 holds the record")
    return member.record, member.attempt


def _state_of(restored: RestoredCheckpoint, fresh: TrainState, data_digest: str) -> TrainState:
    """The restored state, which this attempt's settings must go on with. G may have changed: it does not disturb the
    stream, and the state's is that of the step just taken."""
    state = TrainState.from_dict(restored.manifest.state)
    frozen = ("lanes", "window", "tail", "seed", "order_version")
    changed = [k for k in frozen if getattr(state.data, k) != getattr(fresh.data, k)]
    if changed or restored.manifest.data_digest != data_digest:
        what = ", ".join(f"data {k}" for k in changed) or "the dataset"
        raise ConfigError(
            "resume.other-stream",
            f"the checkpoint's stream is another one: {what} differs",
            hint="resume with the settings and the dataset that the run was started with",
            location=restored.ref.name,
        )
    return state


def _differences(record: RunRecord, now: dict[str, Any]) -> list[str]:
    """Against the run's first group that recorded its conditions."""
    for info in record.attempts():
        if info.claim.kind == "group" and CONDITIONS_OBJECT in info.objects:
            key = attempt_key(info.number, CONDITIONS_OBJECT)
            return compare_conditions(decode(record.store.get(key), f"{record.store.uri}/{key}"), now)
    return []
