"""What readers accept of a run: a pure function of its claims, the newest restore decision and the object names.

The rules, from which everything else follows:

1. Attempt numbers are taken one after the other, so their order is the order in which attempts began. A group that
   was claimed for a driver after a newer driver had claimed the run is void: nothing it writes ever counts.
2. The restore decision that counts is the one of the highest attempt that has one; call it R. It lists all that is
   accepted of the attempts below R. R's own driver goes on writing: its markers and events are not limited by it.
3. Everything of attempts from R on is accepted, until a higher attempt decides.

A writer that lost its claim may write whatever it likes: when the decision after it is made, what it wrote is in the
list or it never counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pliant.errors import UsageError
from pliant.storage.layout import (
    MANIFEST,
    CheckpointRef,
    Marker,
    damaged,
    parse_checkpoint,
    parse_marker,
)

STEP_LOGS = frozenset({"metrics", "evaluations", "audit"})
"""Logs of steps: a restore cuts them at the restored checkpoint. All others are cut at the last entry seen."""

QUARANTINE = "quarantine"
"""Kind of the marker of a damaged checkpoint."""
DELETE = "delete"
"""Kind of the marker of a checkpoint that retention removes at a later save."""
PIN = "pin"
"""Kind of the markers of a checkpoint that other runs are being cloned from; their target is its name and who holds it.
They are put from outside, so that they count whatever the run's own attempts decide."""

Limits = Mapping[int, int]
"""Last accepted sequence number by attempt."""


@dataclass(frozen=True)
class Claim:
    """How an attempt began.

    Attributes:
        number: of the attempt.
        kind: a driver, or a group of workers.
        driver: attempt number of the driver; a driver's is its own.
        info: host, pid, boot_id, pid_start, pid_namespace, time, nonce.
    """

    number: int
    kind: Literal["driver", "group"]
    driver: int
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RestoreDecision:
    """What an attempt starts from, and all that it accepts of earlier attempts.

    Attributes:
        attempt: whose decision it is.
        checkpoint: restored checkpoint; None for a fresh start.
        checkpoints: accepted ones, the restored one included.
        markers: keys of accepted markers.
        logs: per log, the last accepted sequence number of each accepted attempt.
    """

    attempt: int
    checkpoint: CheckpointRef | None
    checkpoints: tuple[CheckpointRef, ...] = ()
    markers: tuple[str, ...] = ()
    logs: Mapping[str, Limits] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "version": 1,
            "attempt": self.attempt,
            "checkpoint": [self.checkpoint.step, self.checkpoint.attempt] if self.checkpoint else None,
            "checkpoints": [[c.step, c.attempt] for c in self.checkpoints],
            "markers": list(self.markers),
            "logs": {name: {str(a): n for a, n in sorted(limits.items())} for name, limits in self.logs.items()},
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], location: str) -> RestoreDecision:
        """The inverse of ``to_dict``; DamageError when something is missing or of another type."""
        try:
            if value["version"] != 1:
                raise ValueError(f"version {value['version']!r} is unknown")
            point = value["checkpoint"]
            return cls(
                attempt=int(value["attempt"]),
                checkpoint=None if point is None else _ref(point),
                checkpoints=tuple(_ref(c) for c in value["checkpoints"]),
                markers=tuple(str(m) for m in value["markers"]),
                logs={str(k): {int(a): int(n) for a, n in limits.items()} for k, limits in value["logs"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(location, f"{type(error).__name__}: {error}") from error


def _ref(pair: Any) -> CheckpointRef:
    step, attempt = pair
    return CheckpointRef(int(step), int(attempt))


State = Literal["usable", "quarantined", "marked", "superseded", "void", "uncommitted"]


@dataclass(frozen=True)
class Verdict:
    """What a checkpoint folder counts as, and why (one line for people)."""

    checkpoint: CheckpointRef
    state: State
    reason: str


class View:
    """What counts in a run, as of one look at it.

    Args:
        claims: of all attempts.
        restore: the decision that counts, R; None when no attempt has decided yet.
        keys: all keys under ``checkpoints/`` and ``markers/``.
    """

    def __init__(self, claims: Iterable[Claim], restore: RestoreDecision | None, keys: Iterable[str]) -> None:
        self.claims = {claim.number: claim for claim in sorted(claims, key=lambda c: c.number)}
        self.restore = restore
        self._folders: dict[CheckpointRef, bool] = {}
        markers = []
        self.pins: set[CheckpointRef] = set()
        """Checkpoints that other runs are being cloned from; retention must keep them."""
        for key in keys:
            if checkpoint := parse_checkpoint(key):
                ref, name = checkpoint
                self._folders[ref] = self._folders.get(ref, False) or name == MANIFEST
            elif marker := parse_marker(key):
                if marker.kind == PIN and (held := CheckpointRef.parse(marker.target.rpartition(".")[0])):
                    self.pins.add(held)
                else:
                    markers.append(marker)
        listed = frozenset(restore.markers) if restore else frozenset()
        self.markers: list[Marker] = sorted(m for m in markers if self._open(m.attempt) or m.key in listed)

    @cached_property
    def void(self) -> frozenset[int]:
        """Groups that were claimed for a driver which a newer driver had replaced."""
        return void_attempts(self.claims.values())

    def _open(self, attempt: int, *, steps: bool = False) -> bool:
        """Whether all that an attempt writes counts for now; ``steps``: its steps, that is logs and checkpoints."""
        if attempt not in self.claims or attempt in self.void:
            return False
        if self.restore is None or attempt >= self.restore.attempt:
            return True
        return not steps and attempt == self.claims[self.restore.attempt].driver

    def accepts_log(self, name: str, attempt: int) -> int | None:
        """Last sequence number that counts in an attempt's part of a log: None for all, 0 for nothing."""
        if self._open(attempt, steps=name in STEP_LOGS):
            return None
        return self.restore.logs.get(name, {}).get(attempt, 0) if self.restore else 0

    def checkpoints(self) -> list[CheckpointRef]:
        """Checkpoints that may be restored, newest first."""
        return [v.checkpoint for v in self.verdicts() if v.state == "usable"]

    def marked(self) -> list[CheckpointRef]:
        """Committed checkpoints marked for deletion, newest first."""
        return [v.checkpoint for v in self.verdicts() if v.state == "marked"]

    def pinned(self) -> CheckpointRef | None:
        """The checkpoint that the decision in force names; retention must keep it."""
        return self.restore.checkpoint if self.restore else None

    def verdicts(self) -> list[Verdict]:
        """What every checkpoint folder counts as, newest first."""
        return [Verdict(ref, *self._judge(ref)) for ref in sorted(self._folders, reverse=True)]

    def _judge(self, ref: CheckpointRef) -> tuple[State, str]:
        if ref.attempt not in self.claims or ref.attempt in self.void:
            return "void", f"attempt {ref.attempt} had no claim on the run"
        if not self._listed(ref):
            by = self.restore.attempt if self.restore else 0
            return "superseded", f"not among what attempt {by} accepted when it started from {self._start()}"
        if not self._folders[ref]:
            return "uncommitted", "it has no manifest: its save did not finish, or it is being removed"
        for marker in self.markers:
            if marker.target == ref.name and marker.kind == QUARANTINE:
                return "quarantined", f"attempt {marker.attempt} found it damaged"
            if marker.target == ref.name and marker.kind == DELETE:
                return "marked", f"attempt {marker.attempt} marked it for deletion"
        return "usable", "verified when restored"

    def _listed(self, ref: CheckpointRef) -> bool:
        return self._open(ref.attempt, steps=True) or (self.restore is not None and ref in self.restore.checkpoints)

    def _start(self) -> str:
        point = self.restore.checkpoint if self.restore else None
        return f"step {point.step}" if point else "scratch"

    def explain(self) -> list[str]:
        """Lines for people: the decision in force, void attempts, and every checkpoint with its state."""
        lines = []
        if self.restore:
            lines.append(f"attempt {self.restore.attempt} started from {self._start()}")
        lines += [f"attempt {n} counts for nothing: a newer driver had claimed the run" for n in sorted(self.void)]
        lines += [f"checkpoint {v.checkpoint.name}: {v.state}, {v.reason}" for v in self.verdicts()]
        return lines

    def decide(
        self,
        attempt: int,
        checkpoint: CheckpointRef | None,
        recorded: Mapping[str, Mapping[str, int]],
        seen: Mapping[str, Limits],
    ) -> RestoreDecision:
        """The decision of an attempt that starts from a checkpoint.

        What is accepted now is one line of descent, so what comes before the restored checkpoint in it is what
        has a lower step, and the log entries before it are those of lower attempts and, in the attempt that
        wrote it, those up to the recorded sequence number.

        Args:
            attempt: the deciding attempt.
            checkpoint: what it starts from; None for a fresh start.
            recorded: the checkpoint's own record ``{log: {"attempt": …, "seq": …}}`` of the logs of steps.
            seen: of every log, the last sequence number there is of each attempt.

        Raises:
            UsageError: the checkpoint does not count in this view.
        """
        if checkpoint is not None and not (self._listed(checkpoint) and self._folders.get(checkpoint, False)):
            raise UsageError(
                "record.checkpoint", f"{checkpoint.name} does not count in this run, so it cannot be restored"
            )
        logs = {name: self._accepted(name, limits) for name, limits in seen.items() if name not in STEP_LOGS}
        if checkpoint is not None:
            for name in STEP_LOGS & (seen.keys() | recorded.keys()):
                before = self._accepted(name, seen.get(name, {}))
                logs[name] = {n: last for n, last in before.items() if n < checkpoint.attempt}
                if last := recorded.get(name, {}).get("seq", 0):
                    logs[name][checkpoint.attempt] = last
        restored = checkpoint.name if checkpoint else None
        return RestoreDecision(
            attempt=attempt,
            checkpoint=checkpoint,
            checkpoints=tuple(
                ref for ref in sorted(self._folders) if checkpoint and ref <= checkpoint and self._listed(ref)
            ),
            # The restored checkpoint is needed: a mark of it by a writer that is fenced now must not count.
            markers=tuple(
                m.key for m in self.markers if m.attempt < attempt and not (m.kind == DELETE and m.target == restored)
            ),
            logs=logs,
        )

    def _accepted(self, name: str, seen: Limits) -> dict[int, int]:
        limits = {}
        for attempt, last in sorted(seen.items()):
            limit = self.accepts_log(name, attempt)
            if accepted := last if limit is None else limit:
                limits[attempt] = accepted
        return limits


def void_attempts(claims: Iterable[Claim]) -> frozenset[int]:
    """Numbers of the groups between whose driver's claim and their own a newer driver claimed the run."""
    void, newest_driver = set(), 0
    for claim in sorted(claims, key=lambda c: c.number):
        if claim.kind == "driver":
            newest_driver = claim.number
        elif claim.driver != newest_driver:
            void.add(claim.number)
    return frozenset(void)
