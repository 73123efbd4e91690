"""The goodput ledger: where every second of a run went, from what its record says. Pure.

```
first claim                                                                                   last sign of life
├─ init ─┬──────────── training ────────────┬─ other ─┬─ down ─┬─ waiting ─┬─ recovery ─┬──── training ────┤
         └ data, step, evaluation, checkpoint, other; and the end of it, where it was cut: replayed
```

What is no training for a reason (replayed, recovery, waiting, down) is split by the reason as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from pliant.track.causes import Cause

Category = Literal[
    "step", "data", "evaluation", "checkpoint", "replayed", "init", "recovery", "waiting", "down", "other"
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
CAUSED: tuple[Category, ...] = ("replayed", "recovery", "waiting", "down")
"""Those that have a cause."""
Floats = npt.NDArray[np.float64]
_START: Cause = "start"

MEANINGS: Mapping[Category, str] = {
    "step": "steps that count: forward, backward, update",
    "data": "waiting for the next batch",
    "evaluation": "measuring on the validation set",
    "checkpoint": "training stood still for a save",
    "replayed": "steps that were lost and had to be done again",
    "init": "from the start to the first step",
    "recovery": "from the end of one start to the first step of the next",
    "waiting": "too few machines for elastic.min_workers",
    "down": "between two starts: nothing was running",
    "other": "the rest: recording, the last save, the end of an attempt",
}
"""What each category counts, for people."""


def _none() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True)
class Steps:
    """Recorded steps of one attempt, oldest first; all arrays have one value a recorded step.

    Attributes:
        step: number of the step; between two recorded ones lie others where not every step is recorded.
        time: when it ended, seconds since 1970.
        data_s: seconds spent waiting for its batch.
        step_s: seconds of the step itself.
    """

    step: Floats = field(default_factory=_none)
    time: Floats = field(default_factory=_none)
    data_s: Floats = field(default_factory=_none)
    step_s: Floats = field(default_factory=_none)

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True)
class Life:
    """What is known of one attempt.

    Attributes:
        number: of the attempt.
        driver: number of its driver; a driver's is its own.
        begin: when it claimed the run, seconds since 1970.
        end: when it ended, of a driver that did not say so its last sign of life; None for a group that did not say.
        from_step: step that it started from.
        kept: its steps that count.
        lost: its steps that were recorded and do not.
        evaluations: those that count: when each ended, and its seconds.
        stalls: saves: step, and seconds that training stood still.
        ended: why it ended; None for one that is done, has not ended, or did not say.
        gone: of a group that did not say when it ended: when it stopped getting on, as far as others have seen.
        waits: of a driver: when it began to wait for machines, which lasts until its next group.
    """

    number: int
    driver: int
    begin: float
    end: float | None
    from_step: int = 0
    kept: Steps = field(default_factory=Steps)
    lost: Steps = field(default_factory=Steps)
    evaluations: Sequence[tuple[float, float]] = ()
    stalls: Sequence[tuple[int, float]] = ()
    ended: Cause | None = None
    gone: float | None = None
    waits: Sequence[float] = ()


@dataclass(frozen=True)
class Account:
    """A stretch of a run's time, split.

    Attributes:
        attempt: the driver that ran then; None between two of them.
        begin, end: seconds since 1970.
        seconds: by category; they add up to ``end - begin``.
        causes: for each category that has causes, its seconds by cause; they add up to the category's.
    """

    attempt: int | None
    begin: float
    end: float
    seconds: Mapping[Category, float]
    causes: Mapping[Category, Mapping[Cause, float]] = field(default_factory=dict)


def ledger(lives: Sequence[Life]) -> list[Account]:
    """The whole time of a run, stretch by stretch, without gaps or overlaps.

    Times of several hosts may contradict each other; what comes later in the order of attempts then gives way.

    Args:
        lives: of all attempts, drivers and groups.
    """
    drivers = sorted((life for life in lives if life.number == life.driver), key=lambda d: d.number)
    accounts: list[Account] = []
    trained, cause = False, _START  # why nothing trains, as long as nothing does
    cursor = drivers[0].begin if drivers else 0.0
    for driver, after in pairwise([*drivers, None]):
        if driver is None:
            break
        begin = max(driver.begin, cursor)
        if begin > cursor:
            gap = _Split()
            gap.add({"down": begin - cursor}, cause)
            accounts.append(gap.account(None, cursor, begin))
        end = begin if driver.end is None else driver.end
        end = max(begin, end if after is None else min(end, after.begin))
        groups = sorted((g for g in lives if g.driver == driver.number != g.number), key=lambda g: g.number)
        split, cursor = _Split(), begin
        for group, later in pairwise([*groups, None]):
            if group is None:
                break
            start = _clip(group.begin, cursor, end)
            split.add(_until(start, cursor, driver.waits, "recovery" if trained else "init"), cause)
            last = end if later is None else later.begin
            last = next((at for at in (group.end, group.gone) if at is not None), last)
            cursor = _clip(last, start, end)
            seconds = _group(group, start, cursor, "recovery" if trained else "init")
            split.add({c: s for c, s in seconds.items() if c != "replayed"}, cause)
            cause = group.ended or ("driver" if group.end is None else "stop")
            split.add({"replayed": seconds.get("replayed", 0.0)}, cause)
            trained = trained or len(group.kept) + len(group.lost) > 0
        split.add(_until(end, cursor, driver.waits, "other" if groups else "recovery" if trained else "init"), cause)
        cursor = end
        if not groups or driver.ended is not None:
            cause = driver.ended or ("driver" if driver.end is None else "stop")
        accounts.append(split.account(driver.number, begin, end))
    return accounts


def totals(accounts: Sequence[Account]) -> dict[Category, float]:
    """Seconds of all stretches together, for every category."""
    return {c: sum(account.seconds.get(c, 0.0) for account in accounts) for c in CATEGORIES}


def by_cause(accounts: Sequence[Account]) -> dict[Category, dict[Cause, float]]:
    """Seconds of all stretches together, for every category that has causes and every cause there was."""
    found: dict[Category, dict[Cause, float]] = {c: {} for c in CAUSED}
    for account in accounts:
        for category, causes in account.causes.items():
            for cause, seconds in causes.items():
                found[category][cause] = found[category].get(cause, 0.0) + seconds
    return found


def goodput(accounts: Sequence[Account]) -> float | None:
    """Share of the time in which the run had machines that went into steps that count; None before there is any."""
    seconds = totals(accounts)
    ran = sum(seconds.values()) - seconds["down"] - seconds["waiting"]
    return seconds["step"] / ran if ran > 0 else None


def _group(life: Life, begin: float, end: float, startup: Category) -> dict[Category, float]:
    """One group's time between two moments."""
    kept, lost = life.kept, life.lost
    first = kept if len(kept) else lost
    if not len(first):
        return {startup: end - begin}
    taken = (first.step[0] - life.from_step) * (first.data_s[0] + first.step_s[0])
    trains = _clip(first.time[0] - taken, begin, end)
    kept_end = lost_end = trains
    split: dict[Category, float] = {}
    if len(kept):
        last_step = kept.step[-1]
        ended = max([kept.time[-1], *(time for time, _ in life.evaluations)])
        kept_end = _clip(ended + sum(s for step, s in life.stalls if step == last_step), trains, end)
        split = _fitted(_measured(life), kept_end - trains)
    if len(lost):
        # A group that died without a word was at steps that nobody recorded.
        lost_end = end if life.end is None else _clip(lost.time[-1], kept_end, end)
    split |= {startup: trains - begin, "replayed": max(lost_end - kept_end, 0.0)}
    return split | {"other": max(end - begin - sum(split.values()), 0.0)}


def _measured(life: Life) -> dict[Category, float]:
    kept = life.kept
    counts = np.maximum(np.diff(kept.step, prepend=life.from_step), 0)  # steps that each record stands for
    return {
        "data": float(counts @ kept.data_s),
        "step": float(counts @ kept.step_s),
        "evaluation": sum(seconds for _, seconds in life.evaluations),
        "checkpoint": sum(seconds for step, seconds in life.stalls if step <= kept.step[-1]),
    }


def _fitted(parts: dict[Category, float], window: float) -> dict[Category, float]:
    """The parts, made smaller where rounding, or steps that stand for others, let them exceed the time there was."""
    total = sum(parts.values())
    return parts if total <= window else {c: s * window / total for c, s in parts.items()}


@dataclass
class _Split:
    """A stretch of time while it is taken apart."""

    seconds: dict[Category, float] = field(default_factory=dict)
    causes: dict[Category, dict[Cause, float]] = field(default_factory=dict)

    def add(self, more: Mapping[Category, float], cause: Cause) -> None:
        for category, value in more.items():
            if value <= 0:
                continue
            self.seconds[category] = self.seconds.get(category, 0.0) + value
            if category in CAUSED:
                causes = self.causes.setdefault(category, {})
                causes[cause] = causes.get(cause, 0.0) + value

    def account(self, attempt: int | None, begin: float, end: float) -> Account:
        return Account(attempt, begin, end, self.seconds, self.causes)


def _until(end: float, begin: float, waits: Sequence[float], otherwise: Category) -> dict[Category, float]:
    """Time without a group: from the first word of it waiting for machines, before that something else."""
    since = min((at for at in waits if begin <= at < end), default=end)
    return {otherwise: since - begin, "waiting": end - since}


def _clip(value: float, low: float, high: float) -> float:
    return float(min(max(value, low), high))
