"""Searchers in whole sweeps, on a virtual clock."""

from __future__ import annotations

import statistics

import pytest

from pliant.tune.build import Search, build_sweep
from pliant.tune.settings import SchedulerSettings, SearcherSettings, SweepSettings
from pliant.tune.simulate import Simulation, curves
from pliant.tune.sweep import Sweep

from .drive import BOWL, bowl

TRIALS = 40


def swept(kind: str, scheduler: str, *, seed: int, slots: int = 1) -> Sweep:
    settings = SweepSettings(
        seed=seed,
        trials=TRIALS,
        scheduler=SchedulerSettings(kind=scheduler),  # type: ignore[arg-type]
        searcher=SearcherSettings(kind=kind),  # type: ignore[arg-type]
    )
    sweep = build_sweep(Search(settings, BOWL, "loss", "min", length=270, rows=30), slots=slots)
    train = curves(lambda params, samples: (bowl(params) + 10 / samples, samples * (1 + params["layers"])))
    Simulation(train, slots=slots, batch=lambda params: params["batch"]).run(sweep)
    return sweep


@pytest.mark.parametrize("scheduler", ["asha", "halving"])
@pytest.mark.parametrize("kind", ["tpe", "bohb"])
def test_models_learn_while_trials_stop_and_pause(kind: str, scheduler: str) -> None:
    """Each trial reports by its own batch, so no two at the same samples."""
    slots = 1 if scheduler == "asha" else 4
    chance = [swept("random", scheduler, seed=seed, slots=slots) for seed in range(4)]
    model = [swept(kind, scheduler, seed=seed, slots=slots) for seed in range(4)]
    for sweep in (*chance, *model):
        assert len(sweep.trials) == TRIALS
        assert all(BOWL.contains(trial.params) for trial in sweep.trials.values())

    def middle(sweeps: list[Sweep], note: str) -> float:
        trials = [trial for sweep in sweeps for trial in sweep.trials.values()]
        return statistics.median(bowl(trial.params) for trial in trials if trial.suggestion.note == note)

    # A synchronous bracket begins nearly all of its trials before it knows much.
    assert middle(model, "model") < (0.8 if scheduler == "asha" else 1.0) * middle(chance, "random")


def test_slots_change_what_is_known_and_nothing_else() -> None:
    one, again, four = (swept("tpe", "asha", seed=1, slots=slots) for slots in (1, 1, 4))
    points = [[trial.params for trial in sweep.trials.values()] for sweep in (one, again, four)]
    assert points[0] == points[1] != points[2]
    assert points[0][:10] == points[2][:10]
