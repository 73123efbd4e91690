"""Puts a sweep's parts together: scheduler, searcher and state, the same for who drives it and who reads its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.tune.schedulers import make_scheduler
from pliant.tune.searchers import make_searcher
from pliant.tune.settings import SweepSettings
from pliant.tune.space import Space
from pliant.tune.sweep import Record, Sweep
from pliant.tune.table import Workers
from pliant.tune.types import Mode, Params


@dataclass(frozen=True)
class Search:
    """What is searched, and on what; all of it is in the sweep's record.

    Attributes:
        metric, mode: what is made better, and whether smaller values of it are.
        length: samples of a trial that is trained to its end.
        rows: of the training set: an epoch's samples.
        workers: sizes of a trial.
        earlier: points and values of the sweep named by ``sweep.searcher.warm_start``.
    """

    settings: SweepSettings
    space: Space
    metric: str
    mode: Mode
    length: int
    rows: int
    workers: Workers = Workers()  # noqa: RUF009  immutable
    earlier: Sequence[tuple[Params, float | None]] = ()


def build_sweep(search: Search, *, slots: int | None = None, record: Record | None = None) -> Sweep:
    """A sweep that knows nothing yet; ``slots`` and ``record`` as of ``Sweep``."""
    settings, space, mode = search.settings, search.space, search.mode
    scheduler = make_scheduler(settings, length=search.length, rows=search.rows, mode=mode, space=space)
    searcher = make_searcher(settings, space, mode, milestones=scheduler.milestones, earlier=search.earlier)
    return Sweep(
        settings, mode=mode, scheduler=scheduler, searcher=searcher, workers=search.workers, slots=slots, record=record
    )
