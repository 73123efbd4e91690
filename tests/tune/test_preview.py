"""What a sweep will come to, against what it comes to, and against arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pliant.tune.build import Search, build_sweep
from pliant.tune.preview import Preview, preview
from pliant.tune.settings import SweepSettings
from pliant.tune.simulate import Simulation, curves
from tests.tune.recording import SPACE, accuracy


def search(**settings: Any) -> Search:
    """Trials of up to 2,700 rows, 27 epochs."""
    return Search(SweepSettings.model_validate(settings), SPACE, "accuracy", "max", 2700, 100)


def stages(found: Preview) -> list[tuple[str, int, int, int]]:
    return [(stage.at, stage.samples, stage.trials, stage.rows) for stage in found.stages]


def test_halving_is_known_exactly() -> None:
    found = preview(search(trials=27, scheduler={"kind": "halving"}))
    assert stages(found) == [
        ("rung 1 of 3", 100, 27, 2700), ("rung 2 of 3", 300, 9, 1800), ("rung 3 of 3", 900, 3, 1800),
        ("end", 2700, 1, 1800),
    ]  # fmt: skip
    assert (found.exact, found.trials, found.rows, found.to_the_end) == (True, 27, 8100, 72_900)
    assert (found.worker_hours, found.cost) == (None, None)


def test_pbt_keeps_all_to_the_end() -> None:
    found = preview(search(trials=8, scheduler={"kind": "pbt", "every_epochs": 9}))
    assert stages(found) == [(f"generation {n} of 3", 900 * n, 8, 7200) for n in (1, 2, 3)]
    assert found.exact
    assert found.rows == found.to_the_end == 21_600


def test_without_a_scheduler_there_is_the_end_alone() -> None:
    assert stages(preview(search(trials=5))) == [("end", 2700, 5, 13_500)]


def test_a_grid_has_as_many_trials_as_points() -> None:
    space = replace(SPACE, dimensions=SPACE.dimensions[1:])
    found = preview(replace(search(trials=20, searcher={"kind": "grid"}), space=space))
    assert found.trials == 2


@pytest.mark.parametrize("kind", ["asha", "median"])
def test_what_depends_on_luck_is_a_mean_and_says_so(kind: str) -> None:
    given = search(trials=27, slots=4, scheduler={"kind": kind})
    found = preview(given)
    assert not found.exact
    assert found.stages[0].trials == 27
    assert [stage.trials for stage in found.stages] == sorted((s.trials for s in found.stages), reverse=True)
    assert found.rows == sum(stage.rows for stage in found.stages)
    sweep = build_sweep(given, slots=4)
    simulation = Simulation(curves(lambda params, samples: (accuracy(params, samples)[0] or 0.0, 1.0)), slots=4)
    sweep.begin()
    simulation.run(sweep)
    assert found.rows == pytest.approx(simulation.samples, rel=0.5)
    assert preview(given) == found, "it is the same at every look"


def test_worker_hours_and_cost_follow_from_the_rows() -> None:
    priced = search(
        trials=27, scheduler={"kind": "halving"}, budget={"price_per_worker_hour": 2.5, "worker_hours": 1e-6}
    )
    found = preview(priced, worker_seconds_per_row=4.0)
    assert found.trials == 27, "a budget that will end it is no reason to show less"
    assert (found.worker_hours, found.cost) == (pytest.approx(9.0), pytest.approx(22.5))


def test_model_based_searchers_are_not_asked() -> None:
    tpe = preview(search(trials=200, scheduler={"kind": "halving"}, searcher={"kind": "tpe"}))
    assert stages(tpe) == stages(preview(search(trials=200, scheduler={"kind": "halving"})))
