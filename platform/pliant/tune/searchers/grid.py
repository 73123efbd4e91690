"""Grid search: every combination once, the last dimension of the space fastest."""

from __future__ import annotations

from pliant.tune.searchers.base import BaseSearcher, Proposal


class GridSearcher(BaseSearcher):
    def propose(self, number: int) -> Proposal | None:
        params = next(self.new_points(), None)
        return (params, "grid") if params is not None else None
