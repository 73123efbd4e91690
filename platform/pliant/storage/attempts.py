"""An attempt's right to write: checked before every put that commits, and before every delete."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pliant.errors import FencedError, UsageError
from pliant.storage.claims import newer_claims
from pliant.storage.layout import CheckpointRef, Marker, attempt_key, decode, encode
from pliant.storage.logs import last_accepted
from pliant.storage.owner import Heartbeat
from pliant.storage.snapshot import RESTORE, STOP, read_view
from pliant.storage.store import Store
from pliant.storage.view import Claim, RestoreDecision

STOP_REQUEST = "stop-request.json"

_log = logging.getLogger(__name__)

StopReason = Literal["done", "user", "signal", "limit", "damage", "preemption", "resize", "infrastructure", "sweep"]
"""Why an attempt ended: all work done; the user's code failed; a signal or stop request; a budget; damage; its machines
go away, or more have come, and a committed checkpoint is left to the next one;
the rest; of a trial: its sweep has decided so."""


def ended_state(reason: str) -> str:
    """How a run stands whose driver gave this reason, for people."""
    return {"done": "done", "user": "failed (pipeline or settings)"}.get(reason, f"stopped ({reason})")


class Attempt:
    """One start of a driver or a worker group. Thread-safe; pickles, for the group's workers.

    Args:
        store: the run's.
        claim: its claim.
        known: claims read already, by number; added to.
    """

    def __init__(self, store: Store, claim: Claim, known: dict[int, Claim] | None = None) -> None:
        self._store, self._claim = store, claim
        self._known = {} if known is None else known
        # A group must know of every driver since its own; what else is older than itself does not concern it.
        self._seen = claim.driver
        self._fenced: FencedError | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Attempt, (self._store, self._claim, dict(self._known)))

    @property
    def number(self) -> int:
        """Its number."""
        return self._claim.number

    @property
    def driver(self) -> int:
        """Attempt number of its driver; its own for a driver."""
        return self._claim.driver

    @property
    def kind(self) -> Literal["driver", "group"]:
        """What it is."""
        return self._claim.kind

    @property
    def claim(self) -> Claim:
        """How it began."""
        return self._claim

    def check(self) -> None:
        """One small read when nothing has changed.

        Raises:
            FencedError: a newer driver has claimed the run, or for a group: a newer group of its own driver.
        """
        with self._lock:
            if self._fenced is None:
                for claim in newer_claims(self._store, self._seen, self._known):
                    self._seen = claim.number
                    if self._fences(claim):
                        self._fenced = self._fencing(claim)
                        break
            if self._fenced is not None:
                raise self._fenced

    def _fences(self, claim: Claim) -> bool:
        # A group of a newer driver cannot be without that driver's claim; a group of an older one is void.
        if claim.kind == "driver":
            return claim.number > self.driver
        return self.kind == "group" and claim.driver == self.driver and claim.number > self.number

    def _fencing(self, claim: Claim) -> FencedError:
        by = f"attempt {claim.number} (a {claim.kind}, pid {claim.info.get('pid')} on {claim.info.get('host')})"
        message = f"attempt {self.number} must stop writing: {by} has claimed the run"
        return FencedError("record.fenced", message, location=self._store.uri)

    def restore(
        self, checkpoint: CheckpointRef | None, logs: Mapping[str, Mapping[str, int]] | None = None
    ) -> RestoreDecision:
        """Writes the restore decision: from now on nothing counts that earlier attempts wrote and it does not list.

        Args:
            checkpoint: what the attempt starts from; None for a fresh start.
            logs: the checkpoint's record of the logs of steps: ``{name: {"attempt": …, "seq": …}}``.

        Raises:
            FencedError: a newer attempt has claimed the run.
            UsageError: the checkpoint does not count, or this attempt has decided already.
        """
        self.check()
        view = read_view(self._store)
        decision = view.decide(self.number, checkpoint, logs or {}, last_accepted(self._store, view))
        if not self._store.put_if_absent(attempt_key(self.number, RESTORE), encode(decision.to_dict())):
            raise UsageError("record.restored-twice", f"attempt {self.number} has made its restore decision already")
        self.check()
        return decision

    def put_marker(self, kind: str, target: str, data: Mapping[str, Any]) -> Marker:
        """States something about a target, e.g. ``quarantine`` of a checkpoint's name. Checks first."""
        self.check()
        marker = Marker(kind, target, self.number)
        self._store.put_if_absent(marker.key, encode({"time": time.time(), **data}))
        return marker

    def write(self, name: str, data: bytes) -> None:
        """Writes an object of the attempt about itself, once: ``conditions.json``, ``config.yaml``. Checks first."""
        self.check()
        if not self._store.put_if_absent(attempt_key(self.number, name), data):
            raise UsageError("record.written-twice", f"attempt {self.number} has written {name} already")

    def stop(self, reason: StopReason, detail: str = "") -> None:
        """Writes why the attempt ends; the first reason stands. Allowed to a fenced attempt too."""
        content = {"reason": reason, "detail": detail, "time": time.time()}
        if not self._store.put_if_absent(attempt_key(self.number, STOP), encode(content)):
            _log.info("attempt %d has a stop reason already", self.number)

    def heartbeat(
        self,
        on_fenced: Callable[[FencedError], None] | None = None,
        on_stop: Callable[[dict[str, Any]], None] | None = None,
    ) -> Heartbeat:
        """The heartbeat, to be started: ``with attempt.heartbeat(): …``.

        Args:
            on_fenced: called once, in its thread, when a newer attempt has claimed the run.
            on_stop: called once, in its thread, with the request to stop.
        """
        heard = on_stop is None

        def listen() -> None:
            nonlocal heard
            if not heard and on_stop is not None and (request := self.stop_request()) is not None:
                heard = True
                on_stop(request)

        every = self._store.settings.heartbeat_every
        return Heartbeat(self._store, self.number, every, self.check, on_fenced, listen)

    def stop_request(self) -> dict[str, Any] | None:
        """Who asked this attempt to checkpoint and stop (detail, time, host, pid); None when nobody did."""
        key = attempt_key(self.number, STOP_REQUEST)
        try:
            return decode(self._store.get(key), f"{self._store.uri}/{key}")
        except FileNotFoundError:
            return None
