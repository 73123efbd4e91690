"""Whether two curves are the same: figures, not when and by whom they were computed."""

from __future__ import annotations

import math

from pliant.observe.comparison import Comparison, compare


def entry(step: int, **figures: object) -> dict[str, object]:
    return {"step": step, "loss": 1 / step, "lr": 0.1, "time": 5.0, "attempt": 2, "world_size": 1, **figures}


def test_the_same_whenever_and_by_whomever() -> None:
    one = [entry(step, digest="a") for step in (1, 2, 3)]
    other = [entry(step, digest="a", time=9.0, attempt=4, world_size=3) for step in (1, 2, 3)]
    assert compare(one, other) == Comparison(3, 3, None, {}, 0, 0, 3)


def test_the_first_difference_and_what_only_one_has() -> None:
    one = [entry(1), entry(2), entry(3), entry(4)]
    other = [entry(1, extra=1.0), entry(2, loss=math.nextafter(1 / 2, 1)), entry(3, loss=9.0, lr=0.2)]
    found = compare(one, other)
    assert (found.steps, found.same, found.only_one, found.only_other, found.digests) == (3, 1, 1, 0, 0)
    assert (found.first_difference, found.differences) == (2, {"loss": (0.5, math.nextafter(1 / 2, 1))})
    assert compare(one, other[2:]).differences == {"loss": (1 / 3, 9.0), "lr": (0.1, 0.2)}


def test_bits_are_compared() -> None:
    same = compare([entry(1, loss=math.nan, skipped=True)], [entry(1, loss=math.nan, skipped=True)])
    assert same.same == 1
    assert compare([entry(1, loss=0.0)], [entry(1, loss=-0.0)]).same == 0
