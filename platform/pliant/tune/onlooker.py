"""Who reads a sweep decides nothing: the log has the decisions already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.tune.types import Decision, End, Params, Report, Suggestion


@dataclass(frozen=True)
class Onlooker:
    """In the place of a scheduler and of a searcher in a ``State`` that only follows a log.

    Attributes:
        milestones, population: the scheduler's.
    """

    milestones: Sequence[int]
    population: int | None = None

    def suggest(self, number: int) -> tuple[Params, str] | None:
        return None

    def decide(self) -> list[Decision]:
        return []

    def wants_more(self) -> bool:
        return False

    def add(self, suggestion: Suggestion) -> None: ...
    def observe(self, report: Report) -> None: ...
    def end(self, end: End) -> None: ...
    def apply(self, decision: Decision) -> None: ...
    def close(self) -> None: ...
