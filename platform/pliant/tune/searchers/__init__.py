"""Searchers: where new trials come from. To add one: a file here, and a line in ``SEARCHERS``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pliant.tune.searchers.base import BaseSearcher
from pliant.tune.searchers.grid import GridSearcher
from pliant.tune.searchers.random import RandomSearcher
from pliant.tune.searchers.tpe import BohbSearcher, TpeSearcher
from pliant.tune.settings import SweepSettings
from pliant.tune.space import Space
from pliant.tune.types import Mode, Params, Searcher

SEARCHERS: Mapping[str, type[BaseSearcher]] = {
    "random": RandomSearcher,
    "grid": GridSearcher,
    "tpe": TpeSearcher,
    "bohb": BohbSearcher,
}
"""By ``sweep.searcher.kind``."""


def make_searcher(
    settings: SweepSettings,
    space: Space,
    mode: Mode,
    *,
    milestones: Sequence[int],
    earlier: Sequence[tuple[Params, float | None]] = (),
) -> Searcher:
    """The searcher of a sweep, which knows nothing yet.

    Args:
        mode: whether smaller or larger values are better.
        milestones: samples at which every trial reports (the scheduler's): values are compared at the same one.
        earlier: the points of the sweep named by ``warm_start`` with their values.
    """
    return SEARCHERS[settings.searcher.kind](settings, space, mode, milestones, earlier)
