"""What the models learn from, and that they do."""

from __future__ import annotations

import math
import statistics

import pytest

from pliant.tune.domains import Dimension
from pliant.tune.searchers.evidence import Evidence
from pliant.tune.space import Space
from pliant.tune.types import End, Report, Suggestion, trial_id

from .drive import BOWL, LENGTH, MILESTONES, bowl, choice, finish, search, searcher

SEEDS = range(6)
LINE = Space((Dimension("x", "float", 0.0, 1.0),))


def best(kind: str, seed: int, trials: int = 40) -> float:
    return min(map(bowl, search(searcher(kind, BOWL, seed=seed), bowl, trials)))


def test_models_find_better_points_than_chance() -> None:
    chance = [best("random", seed) for seed in SEEDS]
    for kind in ("tpe", "bohb"):
        found = [best(kind, seed) for seed in SEEDS]
        assert statistics.median(found) < 0.5 * statistics.median(chance)
        assert sum(f < c for f, c in zip(found, chance, strict=True)) >= 5


def test_a_model_maximizes_where_that_is_asked() -> None:
    found = [search(searcher("tpe", LINE, mode="max", seed=seed), lambda p: p["x"], 30) for seed in SEEDS]
    assert all(max(p["x"] for p in points) > 0.98 for points in found)
    assert statistics.fmean(p["x"] for points in found for p in points[10:]) > 0.7


def test_the_first_trials_are_random_ones() -> None:
    tpe, chance = searcher("tpe", BOWL, startup_trials=7), searcher("random", BOWL)
    assert search(tpe, bowl, 7) == search(chance, bowl, 7)
    assert tpe.suggest(7)[1] == "model"


def test_trials_that_run_do_not_count_as_the_first() -> None:
    tpe = searcher("tpe", BOWL, startup_trials=3)
    for number in range(9):
        params, note = tpe.suggest(number)
        tpe.add(Suggestion(trial_id(number), number, params))
        assert note == "random"


@pytest.mark.parametrize("end", ["failed", "diverged", "out-of-memory", None])
def test_a_model_keeps_away_from_where_trials_fail(end: str | None) -> None:
    """Better and better towards 1, but beyond 0.6 trials fail, or report no number, after a good start. A model that
    did not know of them would propose hardly anything else."""
    tpe = searcher("tpe", LINE, mode="max")
    failed = 0
    for number in range(40):
        params, _ = tpe.suggest(number)
        if params["x"] < 0.6:
            finish(tpe, number, params, lambda p: p["x"])
            continue
        failed += number >= 10
        tpe.add(Suggestion(trial_id(number), number, params))
        tpe.observe(Report(trial_id(number), 10, 2.0, {}))
        if end is None:
            tpe.observe(Report(trial_id(number), 30, float("nan"), {}))
        tpe.end(End(trial_id(number), end or "stopped", 30))
    assert failed < 18


def test_whoever_came_further_is_better() -> None:
    """Values at the first milestone are better by 10 and say the opposite of those at the last."""
    tpe = searcher("tpe", LINE)
    for number in range(40):
        x = number / 40
        trained = x > 0.5
        finish(tpe, number, {"x": x}, lambda p: p["x"] + (10 if p["x"] > 0.5 else 0), LENGTH if trained else 10)
    proposed = [tpe.suggest(number)[0]["x"] for number in range(40, 60)]
    assert statistics.fmean(proposed) > 0.5


def test_bohb_learns_at_the_highest_milestone_that_enough_trials_have_passed() -> None:
    """At the first milestone small values are better, at the second large ones."""
    bohb = searcher("bohb", LINE, startup_trials=10)
    for number in range(30):
        x = number / 30
        bohb.add(Suggestion(trial_id(number), number, {"x": x}))
        bohb.observe(Report(trial_id(number), 10, x, {}))
    low = [bohb.suggest(number)[0]["x"] for number in range(30, 60) if number % 3 != 2]
    for number in range(0, 30, 3):
        bohb.observe(Report(trial_id(number), 32, -number / 30, {}))
    high = [bohb.suggest(number)[0]["x"] for number in range(30, 60) if number % 3 != 2]
    assert statistics.fmean(low) < 0.4 < 0.6 < statistics.fmean(high)


def test_every_third_trial_of_bohb_is_random() -> None:
    bohb = searcher("bohb", BOWL)
    search(bohb, bowl, 20)
    notes = [bohb.suggest(number)[1] for number in range(20, 26)]
    assert notes == ["random", "model", "model"] * 2


def test_bohb_needs_a_trial_more_than_dimensions() -> None:
    bohb = searcher("bohb", BOWL, startup_trials=1)
    points = search(bohb, bowl, len(BOWL.dimensions))
    assert bohb.suggest(len(points))[1] == "random"
    finish(bohb, len(points), bohb.suggest(len(points))[0], bowl)
    assert bohb.suggest(len(points) + 1)[1] == "model"


def test_earlier_trials_teach_the_model_at_once() -> None:
    earlier = [(params, bowl(params)) for params in search(searcher("random", BOWL, seed=9), bowl, 60)]
    warm = searcher("tpe", BOWL, earlier=earlier, warm_start="before")
    assert warm.suggest(1)[1] == "model"
    proposed = [bowl(warm.suggest(number)[0]) for number in range(1, 13)]
    assert statistics.fmean(proposed) < 0.5 * statistics.fmean(value for _, value in earlier)


def test_conditions_are_learned() -> None:
    """Only with kind b the share counts, and it is best at 0.9."""
    space = Space((choice("kind", "a", "b"), Dimension("share", "float", 0.0, 1.0, when={"kind": ("b",)})))
    tpe = searcher("tpe", space)
    points = search(tpe, lambda p: abs(p["share"] - 0.9) if p["kind"] == "b" else 0.5, 40)
    assert all(space.contains(point) for point in points)
    late = [point["share"] for point in points[25:] if point["kind"] == "b"]
    assert len(late) >= 10
    assert statistics.fmean(abs(share - 0.9) for share in late) < 0.2


@pytest.mark.parametrize("kind", ["tpe", "bohb"])
def test_points_outside_of_a_narrowed_space_teach_nothing(kind: str) -> None:
    model = searcher(kind, Space((Dimension("x", "float", 0.0, 0.2),)), startup_trials=5)
    for number in range(20):
        finish(model, number, {"x": 1 - 0.01 * number}, lambda p: p["x"])
    assert model.suggest(21)[1] == "random"
    for number in range(20, 26):
        finish(model, number, {"x": 0.01 * number - 0.15}, lambda p: p["x"])
    assert model.suggest(27)[1] == "model"
    assert 0.0 <= model.suggest(27)[0]["x"] <= 0.2


def evidence(reports: dict[str, dict[int, float]], lost: tuple[str, ...] = ()) -> Evidence:
    known = Evidence("max", MILESTONES, [({"x": 9.0}, 5.0)])
    for number, (trial, values) in enumerate(reports.items()):
        known.add(Suggestion(trial, number, {"x": float(number)}))
        for samples, value in values.items():
            known.observe(Report(trial, samples, value, {}))
    for trial in lost:
        known.end(End(trial, "failed", 0))
    return known


def test_trials_are_compared_at_the_milestone_they_have_passed() -> None:
    """Batches differ, so they report a little beyond it."""
    known = evidence({"a": {12: 0.5}, "b": {10: 0.7, 33: 0.1}, "c": {10: 0.9}, "d": {}, "e": {15: 0.2}}, lost=("e",))
    order = sorted(known.newest(), key=lambda seen: seen.rank)
    assert [(seen.params["x"], seen.level, seen.loss) for seen in order] == [
        (9.0, 3, -5.0),
        (1.0, 2, -0.1),
        (2.0, 1, -0.9),
        (0.0, 1, -0.5),
        (4.0, 0, math.inf),
    ]
    assert [seen.loss for seen in known.at_highest(4)] == [-0.5, -0.7, -0.9, math.inf]
    assert known.at_highest(5) == []
