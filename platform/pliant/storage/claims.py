"""Claims: attempt numbers, taken one after the other by create-if-absent puts."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from pliant.storage.layout import ATTEMPTS, attempt_key, damaged, decode, encode, parse_attempt
from pliant.storage.store import Store
from pliant.storage.view import Claim

CLAIM = "claim.json"


def take_claim(store: Store, kind: Literal["driver", "group"], driver: int | None, info: Mapping[str, Any]) -> Claim:
    """Takes the next attempt number.

    Numbers have no gaps: n + 1 is tried only when n is known to be taken. So whoever looks for newer claims
    needs to look at the next number only.

    Args:
        store: the run's.
        kind: what begins.
        driver: attempt number of a group's driver; None for a driver.
        info: host, pid and the like.
    """
    taken = [parsed[0] for o in store.list(ATTEMPTS) if (parsed := parse_attempt(o.key)) and parsed[1] == CLAIM]
    number = max(taken, default=0) + 1
    # The nonce makes each claim's bytes its own, which tells whose claim it is when an answer was lost.
    mark = {"nonce": secrets.token_hex(8), "time": time.time()}
    while True:
        claim = Claim(number, kind, driver or number, {**info, **mark})
        content = {"version": 1, "attempt": number, "kind": kind, "driver": claim.driver, "info": dict(claim.info)}
        if store.put_if_absent(attempt_key(number, CLAIM), encode(content)):
            return claim
        number += 1


def read_claim(store: Store, number: int) -> Claim:
    """An attempt's claim. Raises FileNotFoundError when the number is free, DamageError when it cannot be read."""
    key = attempt_key(number, CLAIM)
    location = f"{store.uri}/{key}"
    value = decode(store.get(key), location)
    kind, driver, info = value.get("kind"), value.get("driver"), value.get("info")
    if value.get("version") != 1 or value.get("attempt") != number:
        raise damaged(location, f"it is for attempt {value.get('attempt')!r}, version {value.get('version')!r}")
    if kind not in ("driver", "group") or not isinstance(driver, int) or not isinstance(info, dict):
        raise damaged(location, f"kind {kind!r} with driver {driver!r} is no claim")
    return Claim(number, kind, driver, info)


def read_claims(store: Store, numbers: list[int], known: dict[int, Claim]) -> list[Claim]:
    """The claims of ``numbers``, which must be taken; those not ``known`` yet are read and put there.

    Raises:
        DamageError: a claim is missing or cannot be read.
    """

    def read(number: int) -> Claim:
        try:
            return read_claim(store, number)
        except FileNotFoundError as error:
            raise damaged(f"{store.uri}/{attempt_key(number, CLAIM)}", "the claim is missing") from error

    missing = [n for n in numbers if n not in known]
    if missing:
        with ThreadPoolExecutor(min(16, len(missing))) as pool:
            known.update(zip(missing, pool.map(read, missing), strict=True))
    return [known[n] for n in numbers]


def newer_claims(store: Store, after: int, known: dict[int, Claim]) -> Iterator[Claim]:
    """All claims with higher numbers, in order. One read when there is none; those ``known`` are not read again."""
    while True:
        after += 1
        if after not in known:
            try:
                known[after] = read_claim(store, after)
            except FileNotFoundError:
                return
        yield known[after]
