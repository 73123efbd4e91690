"""Which settings decided whether a trial was among the best: PED-ANOVA (Watanabe et al. 2023), from Optuna.

It compares where the best trials lie with where all of them lie, setting by setting: a setting on whose value the best
agree was important. What counts as better is what the searchers' models go by: first who came further, then the value.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from pliant.tune.domains import Dimension, Value
from pliant.tune.results import SweepResults
from pliant.tune.searchers.evidence import Evidence, Observation
from pliant.tune.types import End, Report, Suggestion

LEAST_TRIALS = 20
"""With fewer there is nothing to tell the best from."""
LEAST_BEST = 5
"""Trials among the best at least: Optuna's advice."""
_BEST = 0.1


def importance(results: SweepResults, dimensions: Sequence[Dimension]) -> list[tuple[str, float]] | str:
    """Shares of the settings, the largest first, which add up to 1; or why there are none, for people."""
    evidence = Evidence(results.state.mode, results.milestones, ())
    for entry in (logged.entry for logged in results.log):
        match entry:
            case Suggestion():
                evidence.add(entry)
            case Report():
                evidence.observe(entry)
            case End():
                evidence.end(entry)
    points = evidence.newest()
    if len(points) < LEAST_TRIALS:
        return f"{len(points)} trials say something of their settings; it takes {LEAST_TRIALS} to tell what mattered."
    shares = _ped_anova(points, dimensions)
    whole = sum(shares.values())
    if not whole > 0:
        return "The best trials lie where all of them do: no setting stands out."
    order = sorted(shares.items(), key=lambda one: (-one[1], one[0]))
    return [(name, share / whole) for name, share in order]


def _ped_anova(points: Sequence[Observation], dimensions: Sequence[Dimension]) -> dict[str, float]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kinds = {d.name: _distribution(d) for d in dimensions}
    known = {d.name: d for d in dimensions}
    # One that a condition takes from some trials would be compared among the few that have it.
    shared = set.intersection(*(set(point.params) for point in points))
    order = sorted(range(len(points)), key=lambda index: points[index].rank)
    ranks = {index: rank for rank, index in enumerate(order)}
    study = optuna.create_study()
    study.add_trials(
        optuna.trial.create_trial(
            params={name: _inner(known[name], point.params[name]) for name in sorted(shared)},
            distributions={name: kinds[name] for name in sorted(shared)},
            value=float(ranks[index]),
        )
        for index, point in enumerate(points)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is experimental
        best = max(_BEST, LEAST_BEST / len(points))
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=best)
        found: dict[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator, normalize=False)
    return found


def _distribution(dimension: Dimension) -> Any:
    """Numbers by their places in [0, 1], so that logarithms are taken already; choices by their index."""
    import optuna

    if dimension.kind == "choice":
        return optuna.distributions.CategoricalDistribution(range(len(dimension.choices)))
    return optuna.distributions.FloatDistribution(0.0, 1.0)


def _inner(dimension: Dimension, value: Value) -> float | int:
    if dimension.kind == "choice":
        return dimension.choices.index(value)
    return dimension.unit(value) if dimension.contains(value) else 0.5
