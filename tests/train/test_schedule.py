"""Learning rate schedules as functions of progress."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.train.schedule import lr_factor
from pliant.train.settings import ScheduleSettings


def factors(settings: ScheduleSettings, total: int) -> list[float]:
    return [lr_factor(settings, before=i, after=i + 1, total=total) for i in range(total)]


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "wsd"])
def test_warmup_rises_from_the_first_step_to_the_peak(kind: str) -> None:
    values = factors(ScheduleSettings(kind=kind, warmup=4), 20)
    assert values[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_shapes() -> None:
    assert factors(ScheduleSettings(kind="constant"), 3) == [1.0, 1.0, 1.0]
    assert factors(ScheduleSettings(kind="linear"), 4) == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert factors(ScheduleSettings(kind="cosine"), 2) == pytest.approx([1.0, 0.5])
    assert factors(ScheduleSettings(kind="wsd", decay=0.5), 8) == pytest.approx([1, 1, 1, 1, 1, 0.75, 0.5, 0.25])


def test_final_ratio_is_where_it_ends_and_stays() -> None:
    settings = ScheduleSettings(kind="linear", final_ratio=0.1)
    assert lr_factor(settings, before=10, after=11, total=10) == pytest.approx(0.1)
    assert lr_factor(settings, before=99, after=100, total=10) == pytest.approx(0.1)


@given(
    kind=st.sampled_from(["constant", "linear", "cosine", "wsd"]),
    warmup=st.integers(0, 50),
    total=st.integers(1, 200),
    decay=st.floats(0.01, 1.0),
    final=st.floats(0.0, 1.0),
)
def test_stays_within_bounds_and_never_rises_after_warmup(
    kind: str, warmup: int, total: int, decay: float, final: float
) -> None:
    settings = ScheduleSettings(kind=kind, warmup=warmup, decay=decay, final_ratio=final)
    values = factors(settings, total)
    assert all(0 < v <= 1 + 1e-12 for v in values)
    after = values[warmup:]
    assert all(b <= a + 1e-9 for a, b in pairwise(after))


@given(batch=st.integers(1, 64), warmup=st.integers(0, 500))
def test_a_unit_of_samples_is_the_same_curve_in_other_words(batch: int, warmup: int) -> None:
    in_steps = ScheduleSettings(kind="cosine", warmup=warmup)
    in_samples = ScheduleSettings(kind="cosine", warmup=warmup * batch, unit="samples")
    for step in (0, 1, 7, 99):
        a = lr_factor(in_steps, before=step, after=step + 1, total=600)
        b = lr_factor(in_samples, before=step * batch, after=(step + 1) * batch, total=600 * batch)
        assert a == pytest.approx(b)
