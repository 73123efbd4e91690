"""What every searcher keeps to."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import ConfigError
from pliant.tune.constraints import Constraint
from pliant.tune.domains import Dimension
from pliant.tune.searchers import SEARCHERS
from pliant.tune.space import Space
from pliant.tune.types import Suggestion, trial_id

from .drive import BOWL, bowl, choice, finish, search, searcher

SMALL = Space((choice("kind", "a", "b"), choice("batch", 16, 32, 64), Dimension("layers", "int", 1, 2)))
DRAWING = sorted(set(SEARCHERS) - {"grid"})
MODELS = ("tpe", "bohb")


def small(params: dict) -> float:
    return params["batch"] * params["layers"] + (params["kind"] == "a")


@pytest.mark.parametrize("kind", sorted(SEARCHERS))
def test_same_seed_same_points(kind: str) -> None:
    space = SMALL if kind == "grid" else BOWL
    value = small if kind == "grid" else bowl
    assert search(searcher(kind, space), value, 16) == search(searcher(kind, space), value, 16)


@pytest.mark.parametrize("kind", DRAWING)
def test_another_seed_other_points(kind: str) -> None:
    one, other = (search(searcher(kind, BOWL, seed=seed), bowl, 14) for seed in (1, 2))
    assert not any(point in other for point in one)


@pytest.mark.parametrize("kind", sorted(SEARCHERS))
def test_rebuilt_from_what_was_observed_it_goes_on_as_before(kind: str) -> None:
    space, value = (SMALL, small) if kind == "grid" else (BOWL, bowl)
    whole = search(searcher(kind, space), value, 16)
    for kept in (1, 11):
        rebuilt = searcher(kind, space)
        for number, params in enumerate(whole[:kept]):
            finish(rebuilt, number, params, value)
        assert search(rebuilt, value, 16 - kept, first=kept) == whole[kept:]


@pytest.mark.parametrize("kind", sorted(SEARCHERS))
def test_asking_twice_changes_nothing(kind: str) -> None:
    asked = searcher(kind, SMALL)
    points = search(asked, small, 11)
    again = asked.suggest(len(points))
    assert again is not None
    assert asked.suggest(len(points)) == again


@pytest.mark.parametrize("kind", MODELS)
def test_the_order_in_which_trials_report_does_not_matter(kind: str) -> None:
    drawn = search(searcher("random", BOWL), bowl, 14)
    forth, back = searcher(kind, BOWL), searcher(kind, BOWL)
    for number, params in enumerate(drawn):
        finish(forth, number, params, bowl)
    for number, params in reversed(list(enumerate(drawn))):
        finish(back, number, params, bowl)
    assert forth.suggest(15) == back.suggest(15)
    assert forth.suggest(15)[1] == "model"


@pytest.mark.parametrize("kind", sorted(SEARCHERS))
def test_a_small_space_is_tried_once_and_to_its_end(kind: str) -> None:
    points = search(searcher(kind, SMALL), small, 100)
    assert len(points) == 12
    assert all(point in points for point in SMALL.grid())


@pytest.mark.parametrize("kind", DRAWING)
def test_points_are_of_the_space_and_meet_its_constraints(kind: str) -> None:
    space = Space(
        (
            choice("batch", 16, 32, 64),
            choice("micro", 8, 16, 32, 64),
            choice("kind", "sgd", "adam"),
            Dimension("momentum", "float", 0.0, 0.99, when={"kind": ("sgd",)}),
            Dimension("lr", "float", 1e-4, 1e-1, log=True),
            Dimension("width", "int", 16, 64, step=16),
        ),
        (Constraint("batch >= 2 * micro"), Constraint("lr * batch <= 1")),
    )
    points = search(searcher(kind, space), lambda p: p["lr"] - p["batch"], 40)
    assert len(points) == 40
    assert all(space.contains(point) for point in points)
    assert {point["kind"] for point in points} == {"sgd", "adam"}


def test_constraints_that_leave_nothing_are_an_error() -> None:
    space = Space((Dimension("lr", "float", 0.1, 1.0),), (Constraint("lr > 2"),))
    with pytest.raises(ConfigError, match="meets the constraints") as caught:
        searcher("random", space).suggest(0)
    assert "'lr > 2'" in caught.value.hint


@settings(max_examples=50, deadline=None)
@given(number=st.integers(0, 10_000), seed=st.integers(0, 2**63 - 1))
def test_random_points_depend_on_seed_and_number_alone(number: int, seed: int) -> None:
    fresh, used = searcher("random", BOWL, seed=seed), searcher("random", BOWL, seed=seed)
    search(used, bowl, 3, first=20_000)
    assert fresh.suggest(number) == used.suggest(number)
    assert BOWL.contains(fresh.suggest(number)[0])


def test_random_points_fill_the_space() -> None:
    points = search(searcher("random", BOWL), bowl, 400)
    for kind in "abc":
        assert 90 < sum(point["kind"] == kind for point in points) < 180
    assert 150 < sum(point["lr"] < 10**-2.5 for point in points) < 250  # half of its logarithmic range
    assert all(("share" in point) == (point["kind"] != "a") for point in points)


def test_a_grid_has_its_order() -> None:
    space = Space((choice("kind", "b", "a"), Dimension("layers", "int", 2, 4, when={"kind": ("a",)})))
    points = search(searcher("grid", space), lambda p: 0.0, 9)
    assert points == [{"kind": "b"}, *({"kind": "a", "layers": layers} for layers in (2, 3, 4))]


@pytest.mark.parametrize("kind", sorted(SEARCHERS))
def test_an_earlier_sweeps_best_points_come_first_once(kind: str) -> None:
    inside = [{"kind": "a", "batch": 16, "layers": 1}, {"kind": "b", "batch": 64, "layers": 2}]
    outside = {"kind": "a", "batch": 1024, "layers": 1}
    nowhere = {"kind": "b", "batch": 16, "layers": 1}
    earlier = [(inside[0], 0.7), (outside, 1.0), (inside[1], 0.9), (inside[1], 0.2), (nowhere, float("nan"))]
    warm = searcher(kind, SMALL, mode="max", earlier=earlier, warm_start="before", warm_start_trials=5)
    assert [warm.suggest(number) for number in range(2)] == [
        (inside[1], "from the earlier sweep"),
        (inside[0], "from the earlier sweep"),
    ]
    points = search(warm, small, 100)
    assert points[:2] == [inside[1], inside[0]]
    assert len(points) == 12
    assert all(point in points for point in SMALL.grid())


def test_optuna_is_imported_when_a_model_is_asked_for() -> None:
    code = """
import sys
from drive import BOWL, bowl, search, searcher
tpe = searcher("tpe", BOWL)
search(tpe, bowl, 10)
assert "optuna" not in sys.modules
assert tpe.suggest(10)[1] == "model"
assert "optuna" in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=__file__.rpartition("/")[0], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "optuna" not in done.stderr.lower()


@pytest.mark.parametrize("kind", sorted(SEARCHERS))
def test_trials_that_run_are_not_proposed_again(kind: str) -> None:
    asked = searcher(kind, SMALL)
    points = []
    for number in range(12):
        params, _ = asked.suggest(number)
        asked.add(Suggestion(trial_id(number), number, params))
        points.append(params)
    assert asked.suggest(12) is None
    assert all(point in points for point in SMALL.grid())
