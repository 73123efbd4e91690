"""Model-based search with Optuna's tree-structured Parzen estimator: tpe on all that is known, bohb at one fidelity.

The model is built anew for each suggestion, from what was observed and from a seed of its own: so a suggestion depends
on nothing else, and a sweep that goes on after an interruption proposes what it would have proposed without one. No
other searcher knows Optuna, which is imported when a model is asked for the first time.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pliant.tune.domains import Dimension, Value
from pliant.tune.draws import unit, word
from pliant.tune.searchers.base import BaseSearcher, Proposal
from pliant.tune.searchers.evidence import Observation
from pliant.tune.space import Space
from pliant.tune.types import Params

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

ASKED = 3
"""Proposals that the model is asked for while they are points that were tried before, or that constraints refuse."""
CHANGED = 200
"""Points near the model's proposal that are looked at after that."""
RANDOM_EVERY = 3
"""One of so many trials of bohb is random (Falkner et al. 2018)."""


class TpeSearcher(BaseSearcher):
    """Learns from each trial at the last milestone that it has passed: who came further is better, then who had the
    better value; a failed trial or one without a finite value is worst. The first trials are random.

    Trials that run teach nothing: taking them for bad ones, Optuna's constant liar, gained nothing with 4 and 8 of
    them at once on tables of trained networks; that no point is proposed twice is enough.
    """

    def propose(self, number: int) -> Proposal | None:
        points = self.evidence.newest()
        if len(points) < self.settings.startup_trials:
            return self.random(number)
        return self.modelled(number, points)

    def modelled(self, number: int, points: Sequence[Observation]) -> Proposal | None:
        """A new point by the model of these ones."""
        model = _Model(self.space, points, seed=word(self.seed, "model", number))
        for _ in range(ASKED):
            places = model.ask()
            if (params := self._new_point(places)) is not None:
                return params, "model"
        near = self._near(places, number)
        return (near, "near the model's") if near is not None else self.random(number)

    def _near(self, places: Mapping[str, float], number: int) -> Params | None:
        """A new point that differs in one dimension, then in more of them: where a model has seen the best of a small
        space it proposes that again and again."""
        for attempt in range(CHANGED):
            order = sorted(places, key=lambda name: unit(self.seed, "changed", number, attempt, name))
            changed = order[: 1 + attempt * len(order) // CHANGED]
            moved = {name: unit(self.seed, "near", number, attempt, name) for name in changed}
            if (params := self._new_point({**places, **moved})) is not None:
                return params
        return None

    def _new_point(self, places: Mapping[str, float]) -> Params | None:
        params = self.space.from_unit(places)
        return params if self.space.allowed(params) and self.is_new(params) else None


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

    def __init__(self, space: Space, points: Sequence[Observation], *, seed: int) -> None:
        optuna = _optuna()
        self._axes = {dimension.name: _Axis(dimension) for dimension in space.dimensions}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of ``group``, since 2021
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

    def ask(self) -> dict[str, float]:
        """A proposal, another one with each call: places in [0, 1] of all dimensions, also of those that do not count
        with the others. Constraints are not asked."""
        trial = self._study.ask({name: axis.distribution for name, axis in self._axes.items()})
        return {name: axis.place(trial.params[name]) for name, axis in self._axes.items()}


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

    def place(self, inner: float | int) -> float:
        """Where Optuna's value lies in [0, 1]."""
        return self._dimension.unit(self._choices[int(inner)] if self._choices else self._dimension.clamp(inner))


@cache
def _optuna() -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces every study
    return optuna
