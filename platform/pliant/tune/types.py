"""What a sweep is made of. Pure.

searcher ─► Suggestion ─► legs of a trial ─► Report ─► scheduler ─► Decision ─► next leg, or the trial's End

A trial is one run in a sweep. It lives in one or more legs, stretches of work in one go: a new leg begins after a
pause, a clone of another trial's state, a lost machine, or a resume of the sweep. What happened (suggestions, reports,
losses, ends) are facts; decisions follow from them. Both stand in the decision log before anything acts on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Mode = Literal["min", "max"]
"""Whether smaller or larger values of the metric are better."""
Params = Mapping[str, Any]
"""A point of the search space: by name of its dimension, a float, int, string or bool."""
Action = Literal["continue", "stop", "pause", "resume", "exploit"]
"""``continue``: the running leg goes on. ``stop``: the trial ends here. ``pause``: its leg ends, the trial waits for
the scheduler. ``resume``: a paused trial goes on in a new leg. ``exploit``: a trial (paused, or at its report) goes on
in a new leg from the state of another trial, with new parameters."""
How = Literal["completed", "stopped", "failed", "diverged", "out-of-memory", "limit"]
"""How a trial ended: trained to its full length; by the scheduler; by the user's code, by a loss that is no number, by
want of memory; by a budget of the sweep."""
Cause = Literal["preemption", "infrastructure", "user", "out-of-memory", "stopped"]
"""Why a leg ended although nobody decided so. ``stopped``: the sweep was asked to stop, with a checkpoint."""


@dataclass(frozen=True)
class Suggestion:
    """A new trial.

    Attributes:
        trial: its id, ``t0000``, ``t0001`` …: the number in four digits or more.
        number: from 0, in the order of suggestion.
        params: its point of the search space.
        note: what the searcher knows of it, for people: bracket, ``from the warm start``, model or random.
    """

    trial: str
    number: int
    params: Params
    note: str = ""


@dataclass(frozen=True)
class Report:
    """What a trial had reached after some samples. One per trial, generation and samples: the first stands.

    Attributes:
        samples: rows seen by the trial, its donors' rows included; the axis of all schedulers.
        value: of the sweep's metric; None when it is missing, NaN or infinite: the worst of all.
        metrics: everything that was measured; None for what is not finite.
        worker_seconds: of this trial since its last report or loss, times its workers.
        generation: of the trial: 0, and one more with each clone of another trial's state. A clone goes on from its
            donor's samples, which may be fewer than its own were.
    """

    trial: str
    samples: int
    value: float | None
    metrics: Mapping[str, float | None]
    worker_seconds: float = 0.0
    generation: int = 0


@dataclass(frozen=True)
class Decision:
    """What becomes of a trial.

    Attributes:
        samples: of the trial's report that it follows.
        why: for people: ``rung 2 of 3: 5th of 6, 2 go on``.
        params: ``exploit``: the new point.
        donor, donor_samples: ``exploit``: whose state at which of its reports is cloned.
    """

    trial: str
    samples: int
    action: Action
    why: str
    params: Params | None = None
    donor: str | None = None
    donor_samples: int | None = None


@dataclass(frozen=True)
class Loss:
    """A leg ended without a decision, and the trial goes on in another one.

    Attributes:
        text: for people. signature: equal for equal failures (type and message).
        worker_seconds: as in Report: work that may have to be done again.
    """

    trial: str
    cause: Cause
    text: str
    signature: str = ""
    worker_seconds: float = 0.0


@dataclass(frozen=True)
class End:
    """A trial has ended. ``signature`` and ``worker_seconds`` as in Loss; ``samples`` of its last report, 0 before the
    first."""

    trial: str
    how: How
    samples: int
    text: str = ""
    signature: str = ""
    worker_seconds: float = 0.0


@dataclass(frozen=True)
class Resize:
    """A trial's legs have this many workers from its next report on."""

    trial: str
    workers: int
    why: str


@dataclass(frozen=True)
class Close:
    """No trial more begins as things stand: all that were asked for have begun, or there is nothing left to try."""

    why: str


@dataclass(frozen=True)
class Halt:
    """The sweep stops here, before it is done; its trials leave at their next report. A later start lifts it.

    Attributes:
        what: which budget is used up; ``failures``: too many trials in a row ended with the same error.
        text: for people; of ``failures`` the error itself.
    """

    what: Literal["worker-hours", "time", "plateau", "failures"]
    text: str


@dataclass(frozen=True)
class Change:
    """Settings of the sweep from here on: the first entry of a sweep, and one at each start that changes or lifts
    something.

    Attributes:
        settings: ``SweepSettings`` as JSON values, complete.
        space: the narrowed search space; None where it is as before.
    """

    settings: Mapping[str, Any]
    space: Mapping[str, Any] | None = None


Entry = Suggestion | Report | Decision | Loss | End | Resize | Close | Halt | Change
"""What stands in the decision log."""


class Scheduler(Protocol):
    """Decides what becomes of trials. What it decides is a function of what was applied and observed, in that order,
    and of nothing else: no clock, no global randomness (random numbers are keyed by seed and occasion)."""

    @property
    def milestones(self) -> Sequence[int]:
        """Samples at which every trial reports, ascending; the last is its full length. A trial reports after the first
        step at or beyond each, so that ``Report.samples`` may lie a little above."""
        ...

    @property
    def population(self) -> int | None:
        """Trials that it needs at once (PBT); None for any number."""
        ...

    def add(self, suggestion: Suggestion) -> None:
        """A trial begins (fact)."""
        ...

    def observe(self, report: Report) -> None:
        """A report has been logged (fact); at most one per trial, generation and samples."""
        ...

    def end(self, end: End) -> None:
        """A trial has ended (fact)."""
        ...

    def close(self) -> None:
        """No trial more begins, all that were asked for have or the searcher has nothing left (fact): what waits for
        others is decided with those that there are. ``add`` after it, in a sweep that was extended, opens it again."""
        ...

    def decide(self) -> list[Decision]:
        """All decisions that follow now and were not applied yet, in a fixed order. Changes nothing. Every report of a
        running trial gets one, at once: ``pause`` where the scheduler waits for others."""
        ...

    def apply(self, decision: Decision) -> None:
        """A decision has been logged. In a replay the logged one, whatever ``decide`` would say."""
        ...

    def wants_more(self) -> bool:
        """Whether new trials may begin now (a synchronous bracket that is full says no)."""
        ...


class Searcher(Protocol):
    """Proposes trials. ``suggest(n)`` is a function of the seed, of n and of what was observed, and of nothing else."""

    def suggest(self, number: int) -> tuple[Params, str] | None:
        """Point and note of trial ``number``; None when there is nothing left to try (a grid's end)."""
        ...

    def add(self, suggestion: Suggestion) -> None:
        """It was logged, and the trial begins (fact; after a resume: the logged one)."""
        ...

    def observe(self, report: Report) -> None: ...
    def end(self, end: End) -> None: ...


def trial_id(number: int) -> str:
    """Id of the trial with this number."""
    return f"t{number:04d}"


def finite(value: float | None) -> float | None:
    """The value, or None where it is missing, NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def loss_of(value: float | None, mode: Mode) -> float:
    """The value as a loss, smaller is better; infinite where there is none, so that it is never best."""
    if value is None or not math.isfinite(value):
        return math.inf
    return value if mode == "min" else -value
