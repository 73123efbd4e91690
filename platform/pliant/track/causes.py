"""Why each attempt of a run ended, from what its groups, its drivers and the controller of its workers said. Pure.

```
stop reasons of groups ─┐
events of drivers ──────┼─► the group's own word, else what the controller saw, else how its driver ended
stop reasons of drivers ┘
```
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pliant.observe.board import CONTROL_KINDS
from pliant.storage.view import Claim

Cause = Literal["start", "preemption", "resize", "infrastructure", "user", "driver", "stop"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
_ENDING = ("preemption", "resize", "failure")

CAUSE_MEANINGS: Mapping[Cause, str] = {
    "start": "the run had not trained yet",
    "preemption": "machines were announced to go away",
    "resize": "more machines had come",
    "infrastructure": "workers, machines, network or storage failed without notice",
    "user": "the pipeline's code failed",
    "driver": "the driver was killed or cut off, or another one took over",
    "stop": "it was stopped, or done, and gone on with later",
}
"""What each cause counts, for people."""

_BY_REASON: Mapping[str, Cause | None] = {
    "done": None,
    "signal": "stop",
    "user": "user",
    "preemption": "preemption",
    "resize": "resize",
}
"""Of a stop reason; of any other it is the infrastructure."""


@dataclass(frozen=True)
class End:
    """How an attempt ended.

    Attributes:
        cause: None for one that is done, or has not ended.
        text: for people, one line; empty for one that has not ended.
        at: of a group that did not say so itself, when it stopped getting on, seconds since 1970; None: not known.
    """

    cause: Cause | None
    text: str
    at: float | None = None


def ends_of(
    claims: Sequence[Claim],
    stops: Mapping[int, Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    *,
    living: int | None,
) -> dict[int, End]:
    """How each attempt ended.

    Args:
        claims: of all attempts, oldest first.
        stops: what attempts have said: reason and detail, by attempt.
        events: of the drivers' logs, with the ``attempt`` that wrote them, oldest first.
        living: the driver that runs, or may do so; None: none.
    """
    told: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        if event["kind"] in CONTROL_KINDS:
            told[event["attempt"]].append(event)
    times = {driver: [float(event["time"]) for event in mine] for driver, mine in told.items()}

    def between(driver: int, begin: float, end: float) -> list[Mapping[str, Any]]:
        at = times.get(driver, [])
        return told[driver][bisect_left(at, begin) : bisect_left(at, end)]

    ends: dict[int, End] = {}
    for claim, after, later in zip(claims, [*claims[1:], None], [*claims[2:], None, None], strict=False):
        own, driver, stop = claim.number, claim.driver, stops.get(claim.number)
        if claim.kind == "driver":
            ends[own] = _driver(stop, lives=own == living)
            continue
        went_on = after is not None and after.driver == driver
        until = _began(after) if after is not None and went_on else math.inf
        causes = [e for e in between(driver, _began(claim), until) if e["kind"] in _ENDING]
        if stop is not None:
            ends[own] = _own(str(stop["reason"]), causes)
        elif went_on or causes:
            back = [e for e in between(driver, until, _began(later) if later else math.inf) if e["kind"] == "recovered"]
            ends[own] = _seen(causes[-1] if causes else None, back[0] if back else None)
        elif driver == living:
            ends[own] = End(None, "")
        else:
            ends[own] = _with_driver(stops.get(driver))
    return ends


def waits_of(events: Sequence[Mapping[str, Any]], driver: int) -> list[float]:
    """When a driver said that it waits for machines, seconds since 1970."""
    return [float(e["time"]) for e in events if e["kind"] == "waiting" and e["attempt"] == driver]


def _began(claim: Claim) -> float:
    return float(claim.info.get("time", 0.0))


def _driver(stop: Mapping[str, Any] | None, *, lives: bool) -> End:
    if stop is None:
        return End(None, "") if lives else End("driver", "it ended without a word")
    reason, detail = str(stop["reason"]), _first_line(stop)
    return End(_BY_REASON.get(reason, "infrastructure"), f"{reason}: {detail}" if detail else reason)


def _own(reason: str, told: Sequence[Mapping[str, Any]]) -> End:
    """A group that said why it ended; the controller knows more of it."""
    cause = _BY_REASON.get(reason, "infrastructure")
    text = {"signal": "stopped"}.get(reason, reason)
    about = [str(e.get("text", "")) for e in told if e["kind"] == reason]
    return End(cause, f"{text}: {about[-1]}" if about and about[-1] else text)


def _seen(told: Mapping[str, Any] | None, back: Mapping[str, Any] | None) -> End:
    """A group of which the controller said that it ended, or that the run got on again after it."""
    seconds = back.get("seconds", {}) if back is not None else {}
    if told is not None:
        failed = told["kind"] == "failure"
        cause = _known(told.get("cause") if failed else told["kind"])
        noticed_s = float(seconds.get("detection", 0.0)) if failed else 0.0
        return End(cause, f"{cause}: {told.get('text', '')}", float(told["time"]) - noticed_s)
    if back is not None:
        cause = _known(back.get("cause"))
        return End(cause, cause, float(back["time"]) - float(seconds["total"]) if "total" in seconds else None)
    return End("infrastructure", "it ended without a word")


def _with_driver(stop: Mapping[str, Any] | None) -> End:
    """The last group of a driver, which said nothing: it ended with its driver."""
    if stop is None:
        return End("driver", "its driver ended without a word")
    end = _driver(stop, lives=False)
    return End(end.cause or "infrastructure", end.text)


def _known(cause: object) -> Cause:
    return next((known for known in CAUSES if known == cause), "infrastructure")


def _first_line(stop: Mapping[str, Any]) -> str:
    return str(stop.get("detail", "")).partition("\n")[0]
