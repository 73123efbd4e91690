"""Asynchronous successive halving (Li et al. 2020), the variant that stops.

At each rung a trial goes on if it is among the best 1/eta of all that have come there so far, itself included; as
long as fewer than eta have come, if it is the best. Nobody waits, so the order of arrivals matters.
"""

from __future__ import annotations

from bisect import insort

from pliant.errors import ConfigError
from pliant.tune.schedulers.base import Base, Member, Terms, count, full_length, no_value, standing
from pliant.tune.schedulers.rungs import rungs_up
from pliant.tune.types import Decision, Report


class Asha(Base):
    """Trials are dealt to the brackets in turn; bracket ``b`` leaves out the first ``b`` rungs."""

    def __init__(self, terms: Terms) -> None:
        rungs = rungs_up(terms)
        self._brackets = terms.settings.scheduler.brackets
        if self._brackets > max(1, len(rungs)):
            raise ConfigError(
                "config.scheduler",
                f"it is {self._brackets}; each bracket leaves out one more rung, and there are {len(rungs)}: "
                f"{', '.join(f'{rung:,}' for rung in rungs)} samples",
                hint=f"use {max(1, len(rungs))} or fewer, or more rungs: a smaller sweep.scheduler.first_epochs",
                location="sweep.scheduler.brackets",
            )
        self._came: dict[tuple[int, int], list[tuple[float, int]]] = {}  # by bracket and rung: loss and number, sorted
        super().__init__(terms, [*rungs, terms.length])

    def judge(self, member: Member, report: Report, crossed: range) -> Decision:
        verdicts = [self._record(member, rung) for rung in crossed if self._counts(member, rung)]
        if report.samples >= self.terms.length:
            return no_value(report) or full_length(report)
        if not verdicts:
            first = member.number % self._brackets
            verdicts = [(True, f"first rung at {count(self._milestones[first])}")]
        goes_on, why = next((v for v in verdicts if not v[0]), verdicts[-1])
        return no_value(report) or Decision(report.trial, report.samples, "continue" if goes_on else "stop", why)

    def gone(self, member: Member, failed: bool) -> None:
        """One that failed would have been the worst at its next rung."""
        rung = max(member.reached, member.number % self._brackets) + 1
        if failed and self._counts(member, rung):
            member.losses[rung] = float("inf")
            self._record(member, rung)

    def _counts(self, member: Member, rung: int) -> bool:
        return member.number % self._brackets < rung < len(self._milestones)

    def _record(self, member: Member, rung: int) -> tuple[bool, str]:
        """Enters a trial at a rung: whether it goes on, and why."""
        bracket = member.number % self._brackets
        came = self._came.setdefault((bracket, rung), [])
        entry = (member.losses[rung], member.number)
        insort(came, entry)
        place, keep = came.index(entry) + 1, max(1, len(came) // self.terms.settings.scheduler.eta)
        name = f"rung {rung - bracket} of {len(self._milestones) - 1 - bracket} ({count(self._milestones[rung - 1])})"
        return place <= keep, f"{name}: {standing(place, len(came), keep)}"
