"""The learning rates that a population trained with, from the records of its trials' runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pliant.errors import UsageError
from pliant.report.envelope import envelope
from pliant.storage.layout import run_name
from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.track.lives import in_columns
from pliant.tune.results import SweepResults
from pliant.tune.settings import POPULATION_BASED

Rates = Mapping[tuple[str, int], tuple[np.ndarray, np.ndarray]]
"""By trial and generation: rows seen after a step (int64), rising, and the learning rate of that step (float64)."""
_PIECES = 150
"""Points of a run at most."""


def rates_of(results: SweepResults) -> Rates:
    """What the runs of a population have recorded, thinned; empty for other sweeps, without runs that are gone.

    Raises:
        DamageError: entries of a run's log that count are missing or damaged.
    """
    found: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}
    if results.settings.scheduler.kind not in POPULATION_BASED:
        return found
    for trial in results.trials:
        for generation in range(len(trial.generations)):
            store = results.record.store.child(f"trials/{run_name(trial.id, generation)}")
            try:
                record = RunRecord.open(store)
            except UsageError:
                continue
            columns = in_columns(read_log(store, record.view(), "metrics"), {"step", "samples", "lr"})
            if "samples" in columns and "lr" in columns:
                samples, rates = columns["samples"][1].astype(np.int64), columns["lr"][1]
                thinned = envelope(samples, rates, pieces=_PIECES)
                found[trial.id, generation] = thinned.last, thinned.mean
    return found
