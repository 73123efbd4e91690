"""Synchronous successive halving (Jamieson & Talwalkar 2016) and hyperband (Li et al. 2018).

Trials fill a bracket in the order of their numbers. In a bracket each pauses at its rung; when all are in, or over, the
best go on and the others stop. The next bracket begins when the one before has finished, so that what is decided, and
in which order, does not depend on which trial is faster. How many go on is what the bracket's size allows: a trial
that fails is the worst of its bracket, and takes no place away.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from pliant.tune.schedulers.base import Base, Member, Terms, count, full_length, no_value, ranked, standing
from pliant.tune.schedulers.rungs import rungs_down, rungs_up
from pliant.tune.types import Decision, Report, Suggestion


@dataclass
class Bracket:
    """A group of trials that are compared with each other alone.

    Attributes:
        number: from 0.
        first: number of its first rung, from 1; beyond the last rung in a bracket whose trials all get the full length.
        size: trials that it holds when it is full, those that failed included.
        rung: where its trials are compared next; beyond the last rung the full length is all that is left.
        trials: ids of those that are still in, by what they have won so far or by having begun.
        awaited: ids of those that have not come to ``rung`` yet.
    """

    number: int
    first: int
    size: float
    rung: int
    begun: int = 0
    trials: set[str] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)

    @property
    def full(self) -> bool:
        return self.begun >= self.size


class Halving(Base):
    """Brackets of synchronous successive halving.

    Args:
        rungs: samples of the rungs below the full length.
        shape: first rung and size of a bracket by its number; the size may be infinite.
    """

    def __init__(self, terms: Terms, rungs: list[int], shape: Callable[[int], tuple[int, float]]) -> None:
        super().__init__(terms, [*rungs, terms.length])
        self._shape = shape
        self._brackets: list[Bracket] = []
        self._of: dict[str, Bracket] = {}

    def add(self, suggestion: Suggestion) -> None:
        super().add(suggestion)
        if not self._brackets or self._brackets[-1].full:
            first, size = self._shape(len(self._brackets))
            self._brackets.append(Bracket(len(self._brackets), first, size, first))
        bracket = self._of[suggestion.trial] = self._brackets[-1]
        bracket.begun += 1
        bracket.trials.add(suggestion.trial)
        bracket.awaited.add(suggestion.trial)

    def close(self) -> None:
        """The last bracket will not be filled: it goes on with those that it has, and takes no more."""
        if self._brackets:
            bracket = self._brackets[-1]
            bracket.size = min(bracket.size, bracket.begun)
            self._settle(bracket)

    def wants_more(self) -> bool:
        last = self._brackets[-1] if self._brackets else None
        return last is None or not last.full or (last.rung == len(self._milestones) and not last.awaited)

    def judge(self, member: Member, report: Report, crossed: range) -> Decision:
        bracket = self._of[member.id]
        if member.reached >= bracket.rung:
            bracket.awaited.discard(member.id)
        if report.samples >= self.terms.length:
            return no_value(report) or full_length(report)
        if member.reached >= bracket.rung:
            return no_value(report) or Decision(report.trial, report.samples, "pause", f"{self._name(bracket)}: waits")
        why = f"goes on to {count(self._milestones[bracket.rung - 1])}"
        return no_value(report) or Decision(report.trial, report.samples, "continue", why)

    def changed(self, member: Member) -> None:
        self._settle(self._of[member.id])

    def gone(self, member: Member, failed: bool) -> None:
        bracket = self._of[member.id]
        bracket.trials.discard(member.id)
        bracket.awaited.discard(member.id)

    def applying(self, member: Member, decision: Decision) -> None:
        """One that goes on, whatever its place was, is awaited at the next rung."""
        bracket = self._of[member.id]
        if decision.action == "resume":
            bracket.trials.add(member.id)
            if member.reached < bracket.rung:
                bracket.awaited.add(member.id)

    def _settle(self, bracket: Bracket) -> None:
        """Decides the rung for which nobody is awaited any more, and those after it that all have passed as well."""
        last = len(self._milestones)
        while bracket.full and not bracket.awaited and bracket.rung < last:
            self._decide_rung(bracket)
            bracket.rung += 1
            bracket.awaited = {trial for trial in bracket.trials if self.members[trial].reached < bracket.rung}

    def _decide_rung(self, bracket: Bracket) -> None:
        losses = {trial: self.members[trial].losses[bracket.rung] for trial in bracket.trials}
        losses = {trial: loss for trial, loss in losses.items() if math.isfinite(loss)}
        eta = self.terms.settings.scheduler.eta
        keep = max(1, int(bracket.size) // eta ** (bracket.rung - bracket.first + 1))
        order = ranked(losses, self.members)
        for place, trial in enumerate(order, 1):
            member = self.members[trial]
            action: Literal["resume", "stop"] = "resume" if place <= keep else "stop"
            if place > keep:
                bracket.trials.discard(trial)
            waits = member.reached > bracket.rung and place <= keep  # it stands at the next rung already
            if member.last is not None and member.state != "over" and not waits:
                why = f"{self._name(bracket)}: {standing(place, len(order), keep)}"
                self.due(Decision(trial, member.last.samples, action, why))
        bracket.trials &= set(order)

    def _name(self, bracket: Bracket) -> str:
        rungs = len(self._milestones) - bracket.first
        text = f"rung {bracket.rung - bracket.first + 1} of {rungs} ({count(self._milestones[bracket.rung - 1])})"
        return text if self.terms.settings.scheduler.kind == "halving" else f"bracket {bracket.number + 1}, {text}"


def halving(terms: Terms) -> Halving:
    """One bracket of all trials. Those that an extension adds are a bracket of their own once the first is closed."""
    return Halving(terms, rungs_up(terms), lambda number: (1, math.inf))


def hyperband(terms: Terms) -> Halving:
    """Brackets from the one with most trials and the earliest rung to the one in which all get the full length, and
    again."""
    rungs, eta = rungs_down(terms), terms.settings.scheduler.eta

    def shape(number: int) -> tuple[int, int]:
        halvings = len(rungs) - number % (len(rungs) + 1)
        return len(rungs) - halvings + 1, math.ceil((len(rungs) + 1) / (halvings + 1) * eta**halvings)

    return Halving(terms, rungs, shape)
