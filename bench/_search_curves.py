"""Learning curves of lcdb 0.1.0: accuracy of 20 learners on 248 data sets against the number of training rows.

Taken are the 200 data sets on whose largest training set most learners were trained; of each the learners that were. A
curve is the mean over all splits of the accuracy on the validation rows, linear in the logarithm of the training rows
between those that were tried. Seconds are in proportion to the rows, at the learner's pace on the whole training set:
so that trials overtake each other, as they do on machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import log
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import compute, csv

from pliant.tune.build import Search, build_sweep
from pliant.tune.domains import Dimension
from pliant.tune.settings import SchedulerSettings, SearcherSettings, SweepSettings
from pliant.tune.simulate import Simulation, curves
from pliant.tune.space import Space
from pliant.tune.sweep import Sweep

DATA_SETS = 200
ETA = 3
FIRST_RUNG = 14
"""The first rung is at the whole training set's rows divided by this: so successive halving of 20 learners trains on as
many rows as 3.4 whole trainings, the budget at which random search has a regret of about 0.038."""


@dataclass(frozen=True)
class DataSet:
    """Learners on one data set.

    Attributes:
        rows: of the whole training set.
        sizes: by learner, training rows that were tried, ascending; the last is ``rows``.
        accuracies: by learner, on validation rows.
        seconds: by learner, of a training on all rows.
    """

    id: int
    rows: int
    sizes: dict[str, np.ndarray]
    accuracies: dict[str, np.ndarray]
    seconds: dict[str, float]

    @property
    def learners(self) -> tuple[str, ...]:
        return tuple(self.sizes)

    @cached_property
    def space(self) -> Space:
        return Space((Dimension("learner", "choice", choices=self.learners),))

    def accuracy(self, learner: str, rows: int) -> float:
        """Of a learner after so many rows."""
        return float(np.interp(log(rows), np.log(self.sizes[learner]), self.accuracies[learner]))

    def at(self, learner: str, rows: int) -> tuple[float, float]:
        """Accuracy after so many rows, and the seconds it took to get there."""
        return self.accuracy(learner, rows), self.seconds[learner] * rows / self.rows

    def regret(self, learner: str) -> float:
        """How much worse a learner is than the best one, both trained on all rows."""
        return max(self.accuracy(other, self.rows) for other in self.learners) - self.accuracy(learner, self.rows)


def data_sets(site_packages: Path) -> list[DataSet]:
    """Those that are taken, from the package that lies there."""
    columns = ["openmlid", "learner", "size_train", "score_valid", "traintime"]
    options = csv.ConvertOptions(include_columns=columns)
    table = csv.read_csv(site_packages / "lcdb" / "database-accuracy.csv", convert_options=options)
    table = table.filter(compute.is_finite(table["score_valid"]))
    means = table.group_by(columns[:3]).aggregate([("score_valid", "mean"), ("traintime", "mean")])
    means = means.sort_by([(name, "ascending") for name in columns[:3]])
    ids = means["openmlid"].to_numpy()
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    pieces = [means.slice(begin, end - begin) for begin, end in zip(starts, [*starts[1:], len(ids)], strict=True)]
    found = [_data_set(int(ids[begin]), piece) for begin, piece in zip(starts, pieces, strict=True)]
    return sorted(found, key=lambda data: (-len(data.learners), data.id))[:DATA_SETS]


def _data_set(number: int, table: pa.Table) -> DataSet:
    names, sizes = np.array(table["learner"].to_pylist()), table["size_train"].to_numpy()
    accuracies, seconds = table["score_valid_mean"].to_numpy(), table["traintime_mean"].to_numpy()
    rows = int(sizes.max())
    whole = [name for name in dict.fromkeys(names.tolist()) if sizes[names == name][-1] == rows]
    return DataSet(
        number,
        rows,
        {name: sizes[names == name] for name in whole},
        {name: accuracies[names == name] for name in whole},
        {name: max(float(seconds[names == name][-1]), 1e-6) for name in whole},
    )


@dataclass(frozen=True)
class Seen:
    """A report of a search: when it came, and how many rows all trials had been trained on by then."""

    seconds: float
    rows: int
    learner: str
    at: int
    accuracy: float


def chosen(history: Iterable[Seen], *, budget: float) -> str:
    """The learner whose report within so many rows was the best; before any came, that of the first."""
    seen = list(history)
    within = [report for report in seen if report.rows <= budget] or seen[:1]
    return max(within, key=lambda report: report.accuracy).learner


def search(data: DataSet, scheduler: str, searcher: str, *, seed: int = 0, slots: int = 1) -> tuple[Sweep, list[Seen]]:
    """A search of Pliant for the best learner, every one of which begins."""
    halves = scheduler != "none"
    settings = SweepSettings(
        seed=seed,
        trials=len(data.learners),
        scheduler=SchedulerSettings(kind=scheduler, eta=ETA, first_epochs=1 / FIRST_RUNG)  # type: ignore[arg-type]
        if halves
        else SchedulerSettings(),
        searcher=SearcherSettings(kind=searcher),  # type: ignore[arg-type]
    )
    sweep = build_sweep(Search(settings, data.space, "accuracy", "max", length=data.rows, rows=data.rows), slots=slots)
    simulation = Simulation(curves(lambda params, rows: data.at(params["learner"], rows)), slots=slots)
    simulation.run(sweep)
    learners = {trial.id: trial.params["learner"] for trial in sweep.trials.values()}
    return sweep, [Seen(m.seconds, m.samples, learners[m.trial], m.at, m.value or 0.0) for m in simulation.history]
