"""A run's record: identity, attempts, owner, and what counts of all that was written."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from pliant.errors import UsageError
from pliant.storage.attempts import STOP_REQUEST, Attempt
from pliant.storage.claims import read_claim, take_claim
from pliant.storage.layout import RUN, attempt_key, damaged, decode, encode
from pliant.storage.owner import Owner, process_identity, watch_heartbeat
from pliant.storage.snapshot import HEARTBEAT, STOP, AttemptInfo, read_attempts, read_view
from pliant.storage.store import Store
from pliant.storage.view import Claim, View

VERSION = 1


class RunRecord:
    """The record of one run, at the root of its store.

    Args:
        store: the run's: ``STORAGE/NAME``.
        identity: content of ``run.json``.
    """

    def __init__(self, store: Store, identity: dict[str, Any]) -> None:
        self.store = store
        self.identity = identity
        self._claims: dict[int, Claim] = {}

    @classmethod
    def create(cls, store: Store, identity: Mapping[str, Any]) -> RunRecord:
        """Begins a run. ``version``, ``run_id`` and ``created`` are added to its identity.

        Raises:
            UsageError: there is a run already.
        """
        full = {"run_id": uuid.uuid4().hex, "created": time.time(), **identity, "version": VERSION}
        if not store.put_if_absent(RUN, encode(full)):
            hint = (
                "go on with it: pliant resume, with settings if need be (where it has no checkpoint it starts over, and"
                " takes other model, train, optim and schedule settings too); or give the new run another name"
            )
            raise UsageError("record.exists", "there is a run of this name already", hint=hint, location=store.uri)
        return cls(store, full)

    @classmethod
    def open(cls, store: Store) -> RunRecord:
        """The run in a store.

        Raises:
            UsageError: there is none, or a newer Pliant wrote it.
            DamageError: its identity cannot be read.
        """
        try:
            data = store.get(RUN)
        except FileNotFoundError:
            hint = "`pliant ls` shows the runs there are; run.storage says where they are looked for"
            raise UsageError("record.unknown", "there is no run here", hint=hint, location=store.uri) from None
        identity = decode(data, f"{store.uri}/{RUN}")
        if not isinstance(identity.get("version"), int) or "run_id" not in identity:
            raise damaged(f"{store.uri}/{RUN}", "it is not the identity of a run")
        if identity["version"] > VERSION:
            message = f"the run was written in format {identity['version']}, this Pliant knows {VERSION}"
            raise UsageError("record.newer", message, hint="use a newer Pliant", location=store.uri)
        return cls(store, identity)

    @property
    def run_id(self) -> str:
        """Identity of the run, whatever its name and place."""
        return str(self.identity["run_id"])

    @property
    def is_sweep(self) -> bool:
        """Whether it is the record of a sweep."""
        return self.identity.get("kind") == "sweep"

    def attempts(self) -> list[AttemptInfo]:
        """All attempts, oldest first. DamageError when a claim is damaged."""
        return read_attempts(self.store, self._claims)

    def view(self) -> View:
        """What counts now."""
        return read_view(self.store, self._claims)

    def attempt(self, number: int) -> Attempt:
        """An attempt by its number, e.g. in a worker of the group; UsageError when there is none."""
        try:
            return Attempt(self.store, read_claim(self.store, number), self._claims)
        except FileNotFoundError:
            message = f"the run has no attempt {number}"
            raise UsageError("record.no-attempt", message, location=self.store.uri) from None

    def claim_driver(self, info: Mapping[str, Any] | None = None) -> Attempt:
        """Takes the run over: every other driver, and every group of theirs, is fenced from now on.

        Args:
            info: added to what identifies this process.
        """
        claim = take_claim(self.store, "driver", None, {**process_identity(), **(info or {})})
        return Attempt(self.store, claim, self._claims)

    def claim_group(self, driver: int, info: Mapping[str, Any] | None = None) -> Attempt:
        """Begins a worker group of a driver; its earlier groups are fenced from now on.

        Raises:
            FencedError: a newer driver has claimed the run.
        """
        self.attempt(driver).check()
        claim = take_claim(self.store, "group", driver, {**process_identity(), **(info or {})})
        attempt = Attempt(self.store, claim, self._claims)
        attempt.check()
        return attempt

    def owner(self) -> Owner | None:
        """The newest driver; None when it wrote a stop reason, or when there was none yet."""
        drivers = [a for a in self.attempts() if a.claim.kind == "driver"]
        if not drivers or drivers[-1].stopped:
            return None
        newest = drivers[-1]
        info = newest.claim.info
        signs = [newest.objects[n].modified for n in (HEARTBEAT, "claim.json") if n in newest.objects]
        age = time.time() - max(signs, default=float(info.get("time", 0.0)))
        return Owner(newest.number, str(info.get("host")), int(info.get("pid", 0)), info, age)

    def wait_for_owner(self, owner: Owner, waiting: Callable[[float], None] = lambda left: None) -> bool:
        """Whether an owner lives, waiting for a sign of life where it cannot be known at once.

        Args:
            owner: as ``owner()`` gave it.
            waiting: called with the seconds left at most.
        """
        settings = self.store.settings
        liveness = owner.liveness(settings.heartbeat_fresh)
        if liveness == "unknown":
            key = attempt_key(owner.attempt, HEARTBEAT)
            every = min(settings.heartbeat_every, 1.0)
            liveness = watch_heartbeat(lambda: self._bytes(key), settings.heartbeat_fresh, every, waiting)
        return liveness == "alive"

    def stop_of(self, number: int) -> dict[str, Any] | None:
        """Why an attempt ended: reason, detail, time; None when it did not say."""
        key = attempt_key(number, STOP)
        data = self._bytes(key)
        return None if data is None else decode(data, f"{self.store.uri}/{key}")

    def request_stop(self, attempt: int, detail: str = "") -> None:
        """Asks an attempt to checkpoint and stop; asking twice changes nothing."""
        content = {"detail": detail, "time": time.time(), **process_identity()}
        self.store.put_if_absent(attempt_key(attempt, STOP_REQUEST), encode(content))

    def _bytes(self, key: str) -> bytes | None:
        try:
            return self.store.get(key)
        except FileNotFoundError:
            return None
