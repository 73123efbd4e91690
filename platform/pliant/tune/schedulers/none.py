"""Every trial to its full length."""

from __future__ import annotations

from pliant.tune.schedulers.base import Base, Member, Terms, count, full_length, no_value
from pliant.tune.schedulers.rungs import evenly
from pliant.tune.types import Decision, Report


class Everything(Base):
    """Stops only trials without a finite value."""

    def __init__(self, terms: Terms) -> None:
        every = terms.settings.scheduler.every_epochs is not None
        super().__init__(terms, evenly(terms) if every else [terms.length])

    def judge(self, member: Member, report: Report, crossed: range) -> Decision:
        if report.samples >= self.terms.length:
            return no_value(report) or full_length(report)
        why = f"{count(report.samples)} of {self.terms.length:,}"
        return no_value(report) or Decision(report.trial, report.samples, "continue", why)
