"""The model of PB2, and what PB2 makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.tune.draws import units
from pliant.tune.schedulers.gaussian import best_candidate
from pliant.tune.types import Params
from tests.tune.schedulers.driver import SPACE, Sweep, make, settings

NONE = np.zeros((0, 2))


def gains(x: np.ndarray, peak: float) -> np.ndarray:
    return 1.0 - 10.0 * (x[:, 0] - peak) ** 2


def test_it_finds_where_most_is_gained() -> None:
    x, candidates = units(0, (40, 2), "observed"), units(0, (300, 2), "candidates")
    best = best_candidate(x, np.arange(40.0) // 4, gains(x, 0.3), NONE, candidates, 10.0)
    assert candidates[best][0] == pytest.approx(0.3, abs=0.12)


def test_what_was_gained_long_ago_counts_less() -> None:
    """The peak has moved from 0.2 to 0.8."""
    x, candidates = units(1, (60, 2), "observed"), units(1, (300, 2), "candidates")
    at = np.repeat([0.0, 20.0], 30)
    y = np.where(at == 0, gains(x, 0.2), gains(x, 0.8))
    assert candidates[best_candidate(x, at, y, NONE, candidates, 21.0)][0] == pytest.approx(0.8, abs=0.12)


def test_what_others_try_just_now_is_not_tried_again() -> None:
    x = np.array([[0.5, 0.5], [0.5, 0.5]])
    candidates = np.array([[0.9, 0.1], [0.1, 0.9]])
    y = np.array([0.5, 0.5])
    assert best_candidate(x, np.zeros(2), y, candidates[:1], candidates, 1.0) == 1
    assert best_candidate(x, np.zeros(2), y, candidates[1:], candidates, 1.0) == 0


def test_gains_that_are_all_equal_are_no_reason_to_fail() -> None:
    x = np.zeros((3, 2))
    assert best_candidate(x, np.zeros(3), np.zeros(3), NONE, x, 1.0) == 0


def test_the_choices_of_a_population_gather_where_most_is_gained() -> None:
    """Gain follows the learning rate alone, with its peak at 0.01: clones come near it, and stay in the domain."""

    def train(state: float | None, params: Params, before: int, now: int) -> tuple[float, float]:
        state = (state or 0.0) + (now - before) * (3.0 - abs(np.log10(params["optim.lr"]) + 2.0))
        return state, -state

    own = settings("pb2", population=8, slots=8)
    sweep = Sweep(make(own), own, order=None, train=train).run()
    clones = [decision.params for decision in sweep.decisions() if decision.params is not None]
    assert len(clones) >= 16
    assert all(SPACE.contains(point) for point in clones)
    late = [abs(np.log10(point["optim.lr"]) + 2.0) for point in clones[-8:]]
    assert np.median(late) < 0.5  # of drawn ones 0.75
