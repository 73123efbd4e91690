"""Thinning keeps what matters: extremes, counts, and where values are not finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.report.envelope import envelope, labels, log_ticks, short, ticks

series = st.lists(st.tuples(st.integers(0, 10**7), st.floats()), max_size=80, unique_by=lambda p: p[0]).map(sorted)


@given(series, st.integers(1, 30))
def test_no_spike_and_no_value_gets_lost(points: list[tuple[int, float]], pieces: int) -> None:
    steps = np.array([s for s, _ in points], dtype=np.int64)
    values = np.array([v for _, v in points], dtype=np.float64)
    found = envelope(steps, values, pieces=pieces)
    assert len(found) <= pieces
    assert found.count.sum() == len(points)
    assert found.thinned == (len(found) < len(points))
    assert found.bad_steps.tolist() == steps[~np.isfinite(values)].tolist()
    for i in range(len(found)):
        mine = values[(steps >= found.first[i]) & (steps <= found.last[i])]
        finite = mine[np.isfinite(mine)]
        assert (found.count[i], found.bad[i]) == (len(mine), len(mine) - len(finite))
        if len(finite):
            assert (found.low[i], found.high[i]) == (finite.min(), finite.max())
            assert found.low[i] <= found.mean[i] <= found.high[i]
            exact = math.fsum(v / len(finite) for v in finite)
            largest = float(np.abs(finite).max())  # where values cancel, rounding is measured by them
            assert found.mean[i] == pytest.approx(exact, rel=1e-9, abs=max(1e-12 * largest, 1e-300))
        else:
            assert np.isnan([found.low[i], found.mean[i], found.high[i]]).all()


numbers = st.floats(-1e300, 1e300).filter(lambda v: v == 0 or abs(v) > 1e-290)


@given(numbers, numbers, st.integers(2, 8))
def test_ticks_lie_within_the_axis_and_are_told_apart(a: float, b: float, about: int) -> None:
    low, high = min(a, b), max(a, b)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return
    found = ticks(low, high, about=about)
    room = 1e-6 * (high - low)
    assert all(low - room <= t <= high + room for t in found)
    assert 1 <= len(found) <= 2 * about + 2
    assert len(set(labels(found))) == len(found)


@given(st.floats(1e-200, 1e200), st.floats(3.1, 1e90))
def test_ticks_of_a_logarithmic_axis(low: float, ratio: float) -> None:
    found = log_ticks(low, low * ratio)
    assert 1 <= len(found) <= 15
    assert all(low <= t <= low * ratio for t in found)


def test_numbers_on_axes() -> None:
    shown = [short(v) for v in (0.0, 1.0, 9999.0, 12e3, 123456.0, 1e6, 2.5e7, 3e-4, 1e-8, 1e20, 0.001, -5e-5)]
    assert shown == ["0", "1", "9999", "12k", "123.5k", "1M", "25M", "3e-4", "1e-8", "1e20", "0.001", "-5e-5"]
    assert labels([2.30211, 2.30212]) == ["2.30211", "2.30212"]
