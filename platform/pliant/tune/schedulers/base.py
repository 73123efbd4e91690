"""What all schedulers share: who is there, what was reported, and which decisions are due. Pure.

Everything happens in facts: a scheduler judges a report when it is observed, and puts what follows into the list of
what is due, where it stays until it is applied. So ``decide`` only reads that list, and its answer cannot depend on
when, or how often, it is asked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pliant.tune.settings import SweepSettings
from pliant.tune.space import Space
from pliant.tune.types import Decision, End, Mode, Params, Report, Suggestion, finite, loss_of


@dataclass(frozen=True)
class Terms:
    """What a scheduler is made from.

    Attributes:
        length: samples of a trial in all.
        rows: samples of an epoch.
    """

    settings: SweepSettings
    length: int
    rows: int
    mode: Mode
    space: Space


@dataclass
class Member:
    """A trial, as its scheduler sees it.

    Attributes:
        params: its current point.
        reached: how many milestones lie behind its last report, or behind the state that it has cloned.
        losses: by number of a milestone, from 1: its value at the first report at or beyond it, smaller is better.
        last: its last report.
        state: ``over`` when no decision on it can follow any more: stopped, ended, or at its full length.
    """

    id: str
    number: int
    params: Params
    reached: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    last: Report | None = None
    state: Literal["running", "paused", "over"] = "running"


class Base:
    """A scheduler without a judgement: see ``types.Scheduler``. Kinds override ``judge``, and the others where they
    keep something of their own."""

    def __init__(self, terms: Terms, milestones: Sequence[int]) -> None:
        self.terms = terms
        self.members: dict[str, Member] = {}
        self._milestones = tuple(milestones)
        self._due: list[Decision] = []

    @property
    def milestones(self) -> Sequence[int]:
        return self._milestones

    @property
    def population(self) -> int | None:
        return None

    def judge(self, member: Member, report: Report, crossed: range) -> Decision:
        """What becomes of a running trial at its report, which already counts in ``member``. ``crossed``: the numbers
        of the milestones, from 1, that lie at or below it and above the one before; two where a batch is larger than
        the way between them."""
        raise NotImplementedError

    def gone(self, member: Member, failed: bool) -> None:
        """A trial is over before its full length, by a decision or an end; ``failed``: by an error, before anyone
        stopped it."""

    def applying(self, member: Member, decision: Decision) -> None:
        """A decision is about to be applied."""

    def changed(self, member: Member) -> None:
        """Something happened to a trial: what follows from it for others."""

    def add(self, suggestion: Suggestion) -> None:
        self.members[suggestion.trial] = Member(suggestion.trial, suggestion.number, suggestion.params)

    def observe(self, report: Report) -> None:
        member = self.members[report.trial]
        before, member.reached = member.reached, max(member.reached, self.passed(report.samples))
        member.last = report
        crossed = range(before + 1, member.reached + 1)
        member.losses |= dict.fromkeys(crossed, loss_of(report.value, self.terms.mode))
        if member.state != "over":
            self._due.append(self.judge(member, report, crossed))
        self.changed(member)

    def end(self, end: End) -> None:
        member = self.members[end.trial]
        self._due = [d for d in self._due if d.trial != member.id]
        if member.state != "over":
            member.state = "over"
            self.gone(member, failed=end.how in ("failed", "diverged", "out-of-memory"))
        self.changed(member)

    def close(self) -> None:
        """Nobody waits for more trials."""

    def decide(self) -> list[Decision]:
        return list(self._due)

    def apply(self, decision: Decision) -> None:
        member = self.members[decision.trial]
        self.applying(member, decision)
        self._due = [d for d in self._due if d.trial != member.id or (decision.action == "pause" != d.action)]
        if decision.action == "pause":
            member.state = "paused"
        elif decision.action == "stop":
            member.state = "over"
            self.gone(member, failed=False)
        elif decision.action == "exploit":
            member.state = "running"
            member.params = decision.params if decision.params is not None else member.params
            member.reached = self.passed(decision.donor_samples or 0)
        elif decision.action == "resume":
            member.state = "running"
        else:
            member.state = "over" if member.reached == len(self._milestones) else "running"
        self.changed(member)

    def wants_more(self) -> bool:
        return True

    def passed(self, samples: int) -> int:
        """How many milestones lie at or below so many samples."""
        return bisect_right(self._milestones, samples)

    def due(self, *decisions: Decision) -> None:
        """What has to be decided, after all that is due already."""
        self._due.extend(decisions)


def no_value(report: Report) -> Decision | None:
    """Stops a trial whose report has no finite value."""
    if finite(report.value) is not None:
        return None
    return Decision(report.trial, report.samples, "stop", f"no finite value at {count(report.samples)}")


def full_length(report: Report) -> Decision:
    """The trial has all of its samples, and ends by itself."""
    return Decision(report.trial, report.samples, "continue", f"full length, {count(report.samples)}")


def count(samples: int) -> str:
    """``4,500 samples``."""
    return f"{samples:,} samples"


def ordinal(place: int) -> str:
    """``1st``, ``2nd``, ``11th`` …"""
    suffix = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix}"


def standing(place: int, of: int, keep: int) -> str:
    """``5th of 6, the best 2 go on``."""
    go = {0: "none goes on yet", 1: "the best one goes on"}.get(keep, f"the best {keep} go on")
    return f"{ordinal(place)} of {of}, {go}"


def ranked(losses: Mapping[str, float], members: Mapping[str, Member]) -> list[str]:
    """Trials from the best to the worst; of equals the one with the lower number is the better."""
    return sorted(losses, key=lambda trial: (losses[trial], members[trial].number))
