"""Asynchronous successive halving (Li et al. 2020, algorithm 2).

A trial goes on at a rung when it is among the best 1/eta of all that have come there so far. Until then it is paused,
and goes on later if enough worse ones come; it stops once it is too far behind for that. Nobody waits for a
particular other trial, so the order of arrivals matters, but none is trained further for having come early: for the
same samples that is worth far more than to let the best so far run on, all the more where few trials run at once.

When no more trials come, the best of those that have come furthest goes on to the full length, if none has or does.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort

from pliant.errors import ConfigError
from pliant.tune.schedulers.base import Base, Member, Terms, count, full_length, no_value, standing
from pliant.tune.schedulers.rungs import rungs_up
from pliant.tune.types import Action, Decision, Report, Suggestion

Rung = tuple[int, int]
"""A bracket's number, from 0, and that of a milestone, from 1."""


class Asha(Base):
    """Trials are dealt to the brackets in turn; bracket ``b`` leaves out the first ``b`` rungs."""

    def __init__(self, terms: Terms) -> None:
        rungs = rungs_up(terms)
        self._eta = terms.settings.scheduler.eta
        self._brackets = terms.settings.scheduler.brackets
        if self._brackets > max(1, len(rungs)):
            raise ConfigError(
                "config.scheduler",
                f"it is {self._brackets}; each bracket leaves out one more rung, and there are {len(rungs)}: "
                f"{', '.join(f'{rung:,}' for rung in rungs)} samples",
                hint=f"use {max(1, len(rungs))} or fewer, or more rungs: a smaller sweep.scheduler.first_epochs",
                location="sweep.scheduler.brackets",
            )
        super().__init__(terms, [*rungs, terms.length])
        self._came: dict[Rung, list[tuple[float, int]]] = {}  # loss and number, the best first
        self._touched: list[Rung] = []  # where somebody has come since others were looked at
        self._by_number: dict[int, str] = {}
        self._won: dict[str, int] = {}  # the last rung at which a trial was among the best
        self._waiting: set[str] = set()
        self._closed = False

    def add(self, suggestion: Suggestion) -> None:
        super().add(suggestion)
        self._by_number[suggestion.number] = suggestion.trial
        self._won[suggestion.trial] = suggestion.number % self._brackets
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for bracket in range(self._brackets):
            mine = [m for m in self.members.values() if m.number % self._brackets == bracket]
            waiting = sorted((m for m in mine if m.id in self._waiting), key=lambda m: (-m.reached, self._entry(m)))
            if waiting and not any(m.reached == len(self._milestones) or self._runs(m) for m in mine):
                self._decide(waiting.pop(0), "resume")
            for member in waiting:
                self._decide(member, "stop")

    def judge(self, member: Member, report: Report, crossed: range) -> Decision:
        for rung in crossed:
            self._enter(member, rung)
        if report.samples >= self.terms.length:
            return no_value(report) or full_length(report)
        if (stop := no_value(report)) is not None:
            return stop
        if member.reached <= member.number % self._brackets:
            first = self._milestones[member.number % self._brackets]
            return Decision(report.trial, report.samples, "continue", f"first rung at {count(first)}")
        action: Action = "continue" if self._wins(member) else "stop" if self._hopeless(member) else "pause"
        if action == "pause":
            self._waiting.add(member.id)
        waits = ": waits" if action == "pause" else ""
        return Decision(report.trial, report.samples, action, f"{self._why(member)}{waits}")

    def changed(self, member: Member) -> None:
        """Looks at those that wait where somebody has come: of the furthest rung first, the best first."""
        touched, self._touched = sorted(set(self._touched), reverse=True), []
        for rung in touched:
            came = self._came[rung]
            for _, number in came[: len(came) // self._eta]:
                other = self.members[self._by_number[number]]
                if other.id in self._waiting and self._wins(other):
                    self._decide(other, "resume")
            limit = int(self._limit(len(came)))
            for _, number in came[limit : limit + 1]:  # moved out of reach by who has come
                other = self.members[self._by_number[number]]
                if other.id in self._waiting and self._hopeless(other):
                    self._decide(other, "stop")

    def gone(self, member: Member, failed: bool) -> None:
        """One that failed would have been the worst at its next rung."""
        self._waiting.discard(member.id)
        rung = max(member.reached, member.number % self._brackets) + 1
        if failed and rung < len(self._milestones):
            member.losses[rung] = math.inf
            self._enter(member, rung)

    def applying(self, member: Member, decision: Decision) -> None:
        if decision.action in ("continue", "resume"):
            self._won[member.id] = max(self._won[member.id], member.reached)
            self._waiting.discard(member.id)
        elif decision.action == "pause" and member.state != "over":
            self._waiting.add(member.id)

    def _enter(self, member: Member, rung: int) -> None:
        bracket = member.number % self._brackets
        if bracket < rung < len(self._milestones):
            insort(self._came.setdefault((bracket, rung), []), (member.losses[rung], member.number))
            self._touched.append((bracket, rung))

    def _wins(self, member: Member) -> bool:
        """Whether it is among the best at all rungs that it has come to, and so goes on."""
        while self._won[member.id] < member.reached:
            place, of = self._place(member)
            if place > of // self._eta and not self._closed:
                return False
            self._won[member.id] += 1
        return True

    def _hopeless(self, member: Member) -> bool:
        """Whether it is too far behind to be among the best when more have come."""
        place, of = self._place(member)
        return place > self._limit(of)

    def _limit(self, of: int) -> float:
        """The last place from which chance may bring a trial among the best: two standard deviations behind them."""
        return max(1, of // self._eta) + math.sqrt(of)

    def _decide(self, member: Member, action: Action) -> None:
        self._waiting.discard(member.id)
        if member.last is not None:
            self.due(Decision(member.id, member.last.samples, action, self._why(member)))

    def _runs(self, member: Member) -> bool:
        return member.state != "over" and member.id not in self._waiting

    def _entry(self, member: Member) -> tuple[float, int]:
        return member.losses[member.reached], member.number

    def _rung(self, member: Member) -> int:
        """Where it is compared: the first rung that it has come to and not won, or else the last one it has come to."""
        return min(self._won[member.id] + 1, member.reached)

    def _place(self, member: Member) -> tuple[int, int]:
        """Its place where it is compared, and among how many."""
        rung = self._rung(member)
        came = self._came[member.number % self._brackets, rung]
        return bisect_left(came, (member.losses[rung], member.number)) + 1, len(came)

    def _why(self, member: Member) -> str:
        bracket, rung, (place, of) = member.number % self._brackets, self._rung(member), self._place(member)
        name = f"rung {rung - bracket} of {len(self._milestones) - 1 - bracket} ({count(self._milestones[rung - 1])})"
        keep = max(1, of // self._eta) if self._closed else of // self._eta
        return f"{name}: {standing(place, of, keep)}"
