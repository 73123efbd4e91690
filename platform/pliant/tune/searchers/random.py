"""Random search: every trial drawn from the whole space, no point twice (Bergstra & Bengio 2012)."""

from __future__ import annotations

from pliant.tune.searchers.base import BaseSearcher, Proposal


class RandomSearcher(BaseSearcher):
    def propose(self, number: int) -> Proposal | None:
        return self.random(number)
