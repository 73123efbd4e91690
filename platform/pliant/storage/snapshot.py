"""Reads what a view is computed from: listings, the claims, and one restore decision."""

from __future__ import annotations

from dataclasses import dataclass

from pliant.storage.claims import read_claims
from pliant.storage.layout import ATTEMPTS, CHECKPOINTS, MARKERS, attempt_key, damaged, decode, parse_attempt
from pliant.storage.store import ObjectInfo, Store
from pliant.storage.view import Claim, RestoreDecision, View, void_attempts

RESTORE = "restore.json"
STOP = "stop.json"
HEARTBEAT = "heartbeat.json"
CLUSTER = "cluster.json"


@dataclass(frozen=True)
class AttemptInfo:
    """One attempt as the listing shows it.

    Attributes:
        claim: how it began.
        objects: what it wrote about itself, by name.
    """

    claim: Claim
    objects: dict[str, ObjectInfo]

    @property
    def number(self) -> int:
        """Attempt number."""
        return self.claim.number

    @property
    def restored(self) -> bool:
        """Whether it made a restore decision."""
        return RESTORE in self.objects

    @property
    def stopped(self) -> bool:
        """Whether it wrote why it ended."""
        return STOP in self.objects


def read_attempts(store: Store, known: dict[int, Claim] | None = None) -> list[AttemptInfo]:
    """All attempts, oldest first. DamageError when a claim is damaged or missing."""
    objects: dict[int, dict[str, ObjectInfo]] = {}
    for info in store.list(ATTEMPTS):
        if parsed := parse_attempt(info.key):
            objects.setdefault(parsed[0], {})[parsed[1]] = info
    # A listing that races with claims may miss one and show the next; numbers have no gaps, so ask for each.
    claims = read_claims(store, list(range(1, max(objects, default=0) + 1)), known if known is not None else {})
    return [AttemptInfo(claim, objects.get(claim.number, {})) for claim in claims]


def read_decision(store: Store, number: int) -> RestoreDecision:
    """An attempt's restore decision; DamageError when it cannot be read."""
    key = attempt_key(number, RESTORE)
    location = f"{store.uri}/{key}"
    decision = RestoreDecision.from_dict(decode(store.get(key), location), location)
    if decision.attempt != number:
        raise damaged(location, f"it is the decision of attempt {decision.attempt}")
    return decision


def read_view(store: Store, known: dict[int, Claim] | None = None) -> View:
    """What counts in a run now."""
    known = {} if known is None else known
    attempts = read_attempts(store, known)
    while True:
        keys = [info.key for folder in (CHECKPOINTS, MARKERS) for info in store.list(folder)]
        again = read_attempts(store, known)
        # The same claims and decisions before and after: the keys belong to them.
        if [(a.number, a.restored) for a in again] == [(a.number, a.restored) for a in attempts]:
            break
        attempts = again
    void = void_attempts(a.claim for a in attempts)
    deciders = [a.number for a in attempts if a.restored and a.number not in void]
    restore = read_decision(store, deciders[-1]) if deciders else None
    return View([a.claim for a in attempts], restore, keys)
