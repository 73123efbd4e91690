"""PBT and PB2: ten generations of 270 samples, a population of four, one of whom clones."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.tune.domains import Dimension
from pliant.tune.space import Space
from pliant.tune.types import Decision, End, Params
from tests.tune.schedulers.driver import SPACE, Sweep, make, settings
from tests.tune.schedulers.steps import Steps, told

PBT = settings("pbt", population=4)
ALONE = settings("pbt", population=4, sync=False)
POINT: Params = {
    "optim.lr": 0.01,
    "train.global_batch": 64,
    "optim.weight_decay": 0.25,
    "model.width": 64,
    "schedule.kind": "cosine",
}


def started(own: Any = PBT, **options: Any) -> Steps:
    return Steps(make(own, **options), begun=4, params=POINT)


def generation(steps: Steps, samples: int, values: list[float | None]) -> list[Decision]:
    """All trials report; what follows when the last one has."""
    found = []
    for number, value in enumerate(values):
        found = steps.report(number, samples, value)
        assert told(found)[0] == (number, "pause")
    return found[1:]


def test_the_worst_clones_the_best_when_all_are_in() -> None:
    steps = started()
    decisions = generation(steps, 270, [0.3, 0.4, 0.1, 0.2])
    assert told(decisions) == [(0, "resume"), (1, "exploit"), (2, "resume"), (3, "resume")]
    clone = decisions[1]
    assert (clone.donor, clone.donor_samples) == ("t0002", 270)
    assert clone.why == "generation 1 of 10 (270 samples): 4th of 4, clones t0002, 1st"
    assert decisions[0].why == "generation 1 of 10 (270 samples): 3rd of 4"


def test_a_clone_has_the_donors_point_at_that_time_perturbed() -> None:
    steps = started()
    (first,) = [d for d in generation(steps, 270, [0.3, 0.4, 0.1, 0.2]) if d.params]
    (second,) = [d for d in generation(steps, 540, [0.3, 0.05, 0.4, 0.2]) if d.params]
    assert (second.trial, second.donor) == ("t0002", "t0001")
    assert first.params is not None
    assert second.params is not None
    for point in (first.params, second.params):
        assert SPACE.contains(point)
        assert point["model.width"] == 64, "is not mutable"
    exact = settings("pbt", population=4, resample=0.0)
    (near,) = [d for d in generation(started(exact), 270, [0.3, 0.4, 0.1, 0.2]) if d.params]
    assert near.params is not None
    assert near.params["optim.lr"] in (pytest.approx(0.008), pytest.approx(0.012))
    assert near.params["train.global_batch"] in (32, 128)


def test_of_equals_the_one_with_the_higher_number_clones() -> None:
    decisions = generation(started(), 270, [0.5, 0.5, 0.5, 0.5])
    assert [(d.trial, d.donor) for d in decisions if d.donor] == [("t0003", "t0000")]


def test_without_a_value_it_clones_at_once_and_is_never_cloned() -> None:
    decisions = generation(started(mode="max"), 270, [None, 0.2, float("inf"), 0.1])
    assert {(d.trial, d.donor) for d in decisions if d.donor} == {("t0000", "t0001"), ("t0002", "t0001")}


def test_nobody_has_a_value_and_there_is_nobody_to_clone() -> None:
    decisions = generation(started(), 270, [None, None, None, None])
    assert [d.action for d in decisions] == ["stop"] * 4
    assert decisions[0].why == "no finite value at 270 samples, and nobody to clone"


def test_the_dead_are_not_waited_for() -> None:
    steps = started()
    generation(steps, 270, [0.3, 0.4, 0.1, 0.2])
    for number in (0, 1, 2):
        assert told(steps.report(number, 540, 0.1 + number)) == [(number, "pause")]
    decided = steps.end(3, "failed", 270)
    assert told(decided) == [(0, "resume"), (1, "resume"), (2, "exploit")]
    assert decided[2].donor == "t0000"
    steps.end(0, "failed", 540)
    steps.end(1, "out-of-memory", 540)
    assert told(steps.report(2, 810, 1.0)) == [(2, "pause"), (2, "resume")], "alone it goes on"


def test_one_that_dies_before_its_first_value_is_replaced() -> None:
    steps = started()
    assert not steps.scheduler.wants_more()
    steps.end(1, "out-of-memory")
    assert steps.scheduler.wants_more()
    for number in (0, 2, 3):
        assert told(steps.report(number, 270, 0.1)) == [(number, "pause")]
    steps.begin(POINT)
    decided = steps.report(4, 270, 0.5)
    assert told(decided) == [(4, "pause"), (0, "resume"), (2, "resume"), (3, "resume"), (4, "exploit")]
    steps.end(4, "failed", 270)
    assert not steps.scheduler.wants_more()


def test_nobody_replaces_it_when_no_more_trials_come() -> None:
    steps = started()
    steps.end(1, "failed")
    for number in (0, 2, 3):
        steps.report(number, 270, 0.1 * (number + 1))
    assert told(steps.close()) == [(0, "resume"), (2, "resume"), (3, "exploit")]


def test_at_the_full_length_everybody_is_done() -> None:
    steps = started()
    for k in range(1, 10):
        generation(steps, 270 * k, [0.3, 0.4, 0.1, 0.2])
    (last,) = steps.report(1, 2700, 9.0)
    assert (last.action, last.why) == ("continue", "full length, 2,700 samples")


def test_one_that_passed_two_generations_at_once_is_met_at_the_second() -> None:
    steps = started()
    steps.report(0, 600, 0.9)
    for number in (1, 2, 3):
        decided = steps.report(number, 270, 0.1 * number)
    assert told(decided) == [(3, "pause"), (1, "resume"), (2, "resume"), (3, "exploit")]
    for number in (1, 2, 3):
        decided = steps.report(number, 540, 0.1 * number, int(number == 3))
    assert told(decided) == [(3, "pause"), (0, "exploit"), (1, "resume"), (2, "resume"), (3, "resume")]


def test_alone_each_is_compared_with_what_the_others_reported_last() -> None:
    steps = started(ALONE)
    (first,) = steps.report(0, 270, 0.5)
    assert (first.action, first.why) == ("continue", "generation 1 of 10 (270 samples): 1st of 1")
    (second,) = steps.report(1, 270, 0.9)
    assert (second.action, second.donor, second.donor_samples) == ("exploit", "t0000", 270)
    assert told(steps.report(0, 540, 0.4)) == [(0, "continue")]
    (third,) = steps.report(2, 270, 0.8)
    assert (third.action, third.donor, third.donor_samples) == ("exploit", "t0000", 540)
    assert told(steps.report(1, 540, 0.7, 1)) == [(1, "exploit")], "compared by its own report again"


def test_alone_and_without_a_value_it_clones_at_once_or_stops() -> None:
    steps = started(ALONE)
    (alone,) = steps.report(0, 270, None)
    assert (alone.action, alone.why) == ("stop", "no finite value at 270 samples, and nobody to clone")
    steps.report(1, 270, 0.5)
    assert told(steps.report(2, 270, None)) == [(2, "exploit")]


@pytest.mark.parametrize(("kind", "sync"), [("pbt", True), ("pb2", True), ("pbt", False)])
def test_a_population_gets_better_than_without_clones(kind: str, sync: bool) -> None:
    """Values fall the faster the better the point: whoever clones well reaches the lowest ones."""
    bests, plain = [], []
    for seed in range(4):
        own = settings(kind, trials=8, slots=8, seed=seed, sync=sync)
        alone = settings("none", trials=8, slots=8, seed=seed)
        for found, each in ((bests, own), (plain, alone)):
            sweep = Sweep(make(each), each, order=None).run()
            found.append(min(v for trial in sweep.trials.values() for v in trial.values[-1:] if v is not None))
            assert [e.how for e in sweep.log if isinstance(e, End)].count("completed") >= 4
    assert sum(bests) < sum(plain)


@pytest.mark.parametrize("kind", ["pbt", "pb2"])
def test_in_a_narrowed_space_new_points_are_inside_of_it(kind: str) -> None:
    own = settings(kind, population=6, slots=6)
    log = Sweep(make(own), own).run(most=60).log
    dimensions = (Dimension("optim.lr", "float", 1e-3, 2e-3, log=True), *SPACE.dimensions[1:])
    sweep = Sweep(make(own, space=Space(dimensions)), own).replay(log).run()
    clones = [decision.params for decision in sweep.decisions() if decision.params is not None]
    assert len(clones) >= 4
    assert all(1e-3 <= point["optim.lr"] <= 2e-3 for point in clones[-4:])
