"""Median stopping (Golovin et al. 2017, section 3.2.2)."""

from __future__ import annotations

import statistics
from itertools import accumulate

from pliant.tune.schedulers.base import Base, Member, Terms, count, full_length, no_value
from pliant.tune.schedulers.rungs import evenly, first_rung
from pliant.tune.types import Decision, Report

LEAST = 3
"""Other trials that must have come as far before one is stopped."""


class Median(Base):
    """Stops a trial whose best value so far is worse than the median of the others' running averages at as many
    samples."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms, evenly(terms))
        given = terms.settings.scheduler.first_epochs is not None
        self._grace = first_rung(terms) if given else terms.length / 4
        self._averages: dict[int, list[float]] = {}  # by milestone: of every trial that has come as far

    def judge(self, member: Member, report: Report, crossed: range) -> Decision:
        others = list(self._averages.get(member.reached, []))
        averages = [total / n for n, total in enumerate(accumulate(member.losses.values()), 1)]
        for milestone in crossed:
            self._averages.setdefault(milestone, []).append(averages[milestone - 1])
        if report.samples >= self.terms.length:
            return no_value(report) or full_length(report)
        worse, why = self._compared(member, report, others)
        return no_value(report) or Decision(report.trial, report.samples, "stop" if worse else "continue", why)

    def _compared(self, member: Member, report: Report, others: list[float]) -> tuple[bool, str]:
        if report.samples < self._grace:
            return False, f"nothing is stopped before {count(round(self._grace))}"
        if len(others) < LEAST:
            return False, f"compared with {LEAST} others or more; {len(others)} have come to {count(report.samples)}"
        worse = min(member.losses.values()) > statistics.median(others)
        return (
            worse,
            f"{'worse' if worse else 'no worse'} than the median of {len(others)} others at {count(report.samples)}",
        )
