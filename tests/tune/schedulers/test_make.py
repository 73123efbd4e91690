"""Milestones from settings, and settings that do not fit a trial's length."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.errors import ConfigError
from pliant.tune.schedulers.base import ordinal
from tests.tune.schedulers.driver import make, settings

MILESTONES: list[tuple[dict[str, Any], int, tuple[int, ...]]] = [
    ({"kind": "asha"}, 2700, (100, 300, 900, 2700)),
    ({"kind": "asha", "first_epochs": 1.0}, 1000, (100, 300, 900, 1000)),
    ({"kind": "asha", "eta": 4}, 1000, (16, 62, 250, 1000)),
    ({"kind": "asha"}, 1, (1,)),
    ({"kind": "halving"}, 10, (1, 3, 10)),
    ({"kind": "hyperband"}, 2700, (100, 300, 900, 2700)),
    ({"kind": "hyperband", "first_epochs": 1.0}, 1000, (111, 333, 1000)),
    ({"kind": "hyperband"}, 2, (2,)),
    ({"kind": "median"}, 5, (1, 2, 3, 4, 5)),
    ({"kind": "pbt", "every_epochs": 4.0}, 1000, (400, 800, 1000)),
    ({"kind": "pbt", "every_epochs": 5.0}, 1000, (500, 1000)),
    ({"kind": "pb2", "every_epochs": 10.0}, 1000, (1000,)),
]


@pytest.mark.parametrize(("kind", "length", "expected"), MILESTONES)
def test_milestones(kind: dict[str, Any], length: int, expected: tuple[int, ...]) -> None:
    assert make(settings(**kind), length=length).milestones == expected


MISTAKES: list[tuple[dict[str, Any], str]] = [
    (
        {"kind": "asha", "first_epochs": 27.0},
        "error[config.scheduler] sweep.scheduler.first_epochs  it is 27 epochs; a trial has 27 (2,700 samples), and "
        "sweep.scheduler.first_epochs must lie below that\n  use fewer, or longer trials: train.epochs or train.steps",
    ),
    (
        {"kind": "pbt", "every_epochs": 30.0},
        "error[config.scheduler] sweep.scheduler.every_epochs  it is 30 epochs; a trial has 27 (2,700 samples), and "
        "sweep.scheduler.every_epochs must lie within that\n  use fewer, or longer trials: train.epochs or train.steps",
    ),
    (
        {"kind": "asha", "brackets": 4},
        "error[config.scheduler] sweep.scheduler.brackets  it is 4; each bracket leaves out one more rung, and there "
        "are 3: 100, 300, 900 samples\n  use 3 or fewer, or more rungs: a smaller sweep.scheduler.first_epochs",
    ),
    (
        {"kind": "pb2", "population": 30},
        "error[config.scheduler] sweep.trials  it is 27; pb2 needs sweep.scheduler.population 30 or more\n"
        "  use sweep.trials=30, or a smaller population",
    ),
]


@pytest.mark.parametrize(("kind", "message"), MISTAKES)
def test_mistakes(kind: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(settings(**kind))
    assert str(caught.value) == message


def test_ordinals() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 101, 111)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "101st", "111th",
    ]  # fmt: skip
