"""Model-based search with Optuna's tree-structured Parzen estimator: tpe on all that is known, bohb at one fidelity.

The model is built anew for each suggestion, from what was observed and from a seed of its own: so a suggestion depends
on nothing else, and a sweep that goes on after an interruption proposes what it would have proposed without one. Only
this file knows Optuna, and imports it when a model is asked for the first time.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from pliant.tune.domains import Dimension, Value
from pliant.tune.draws import word
from pliant.tune.searchers.base import BaseSearcher, Proposal
from pliant.tune.searchers.evidence import Point
from pliant.tune.space import Space
from pliant.tune.types import Params

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

REDRAWS = 20
"""Points that the model may propose although they were tried before, or constraints refuse them. Then one is drawn."""
RANDOM_EVERY = 3
"""One of so many trials of bohb is random (Falkner et al. 2018)."""


class TpeSearcher(BaseSearcher):
    """Learns from each trial at the last milestone that it has passed: who came further is better, then who had the
    better value; a failed trial or one without a finite value is worst. The first trials are random."""

    def propose(self, number: int) -> Proposal | None:
        points = self.evidence.newest()
        if len(points) < self.settings.startup_trials:
            return self.random(number)
        return self.modelled(number, points)

    def modelled(self, number: int, points: Sequence[Point]) -> Proposal | None:
        """A new point by the model of these ones; a random one where the model has nothing new to say."""
        inside = [point for point in points if self.space.contains(point.params)]  # the space may have been narrowed
        model = _Model(self.space, inside, seed=word(self.seed, "model", number))
        for _ in range(REDRAWS):
            params = model.ask()
            if self.space.allowed(params) and self.is_new(params):
                return params, "model"
        return self.random(number)


class BohbSearcher(TpeSearcher):
    """Learns at a single milestone: the highest that enough trials have passed. Every third trial is random."""

    def propose(self, number: int) -> Proposal | None:
        enough = max(self.settings.startup_trials, len(self.space.dimensions) + 1)
        points = self.evidence.at_highest(enough)
        if not points or number % RANDOM_EVERY == RANDOM_EVERY - 1:
            return self.random(number)
        return self.modelled(number, points)


class _Model:
    """What points have taught, for proposals.

    Only the order of values counts for this model, so ranks stand for them; and every point is complete: one that
    Optuna did not know of, or took for running or failed, it would either propose again or keep away from for ever.
    """

    def __init__(self, space: Space, points: Sequence[Point], *, seed: int) -> None:
        optuna = _optuna()
        self._space = space
        self._axes = {dimension.name: _Axis(dimension) for dimension in space.dimensions}
        sampler = optuna.samplers.TPESampler(
            seed=seed & 0xFFFFFFFF, multivariate=True, group=True, n_startup_trials=0, constant_liar=False
        )
        self._study: Study = optuna.create_study(sampler=sampler)
        order = sorted(range(len(points)), key=lambda index: points[index].rank)
        ranks = {index: rank for rank, index in enumerate(order)}
        self._study.add_trials(
            optuna.trial.create_trial(
                params={name: self._axes[name].inner(value) for name, value in point.params.items()},
                distributions={name: self._axes[name].distribution for name in point.params},
                value=float(ranks[index]),
            )
            for index, point in enumerate(points)
        )

    def ask(self) -> Params:
        """A proposal, another one with each call. Constraints are not asked."""
        trial = self._study.ask({name: axis.distribution for name, axis in self._axes.items()})
        values = {name: self._axes[name].outer(value) for name, value in trial.params.items()}
        return {dimension.name: values[dimension.name] for dimension in self._space.active(values)}


class _Axis:
    """A dimension as Optuna sees it: a choice is the index of its value, among numbers an ordered one, whose neighbours
    are alike, otherwise a category."""

    def __init__(self, dimension: Dimension) -> None:
        optuna = _optuna().distributions
        self._dimension = dimension
        self._choices = dimension.ordered
        self.distribution: BaseDistribution
        if dimension.kind == "float":
            self.distribution = optuna.FloatDistribution(dimension.low, dimension.high, log=dimension.log)
        elif dimension.kind == "int":
            step = 1 if dimension.log else dimension.step  # Optuna has no steps on a logarithmic axis
            self.distribution = optuna.IntDistribution(
                int(dimension.low), int(dimension.values[-1]), log=dimension.log, step=step
            )
        elif any(isinstance(choice, (str, bool)) for choice in self._choices):
            self.distribution = optuna.CategoricalDistribution(range(len(self._choices)))
        else:
            self.distribution = optuna.IntDistribution(0, len(self._choices) - 1)

    def inner(self, value: Value) -> Value:
        """A value of the space, for Optuna."""
        return self._choices.index(value) if self._choices else value

    def outer(self, value: float | int) -> Value:
        """The value of the space that Optuna means."""
        return self._choices[int(value)] if self._choices else self._dimension.clamp(value)


@cache
def _optuna() -> ModuleType:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces every study
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # of ``group``
    return optuna
