"""What MLflow cannot take as it is, is changed visibly."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name, _validate_param_name

from pliant.track.names import flatten, numbers, ranges, shortened, stored_name, tag_value


@given(st.text(min_size=1, max_size=400))
def test_every_name_becomes_one_that_mlflow_takes(name: str) -> None:
    stored = stored_name(name)
    _validate_metric_name(stored)
    _validate_param_name(stored)
    assert len(stored) <= 250
    assert stored_name(stored) == stored


@given(st.from_regex(r"[a-z]([a-z0-9_.: -]|/[a-z]){0,50}", fullmatch=True))
def test_allowed_names_stay_as_they_are(name: str) -> None:
    assert stored_name(name) == name


def test_names_that_differ_where_mlflow_is_blind_stay_different() -> None:
    names = ["val/acc@1", "val/acc_1", "val/acc#1", "val/acc/1", "/val/acc_1", "val//acc_1"]
    assert len({stored_name(name) for name in names}) == len(names)
    assert stored_name("val/acc@1").startswith("val/acc_1_")


def test_long_values_say_where_they_stand_whole() -> None:
    value = "x" * 7000
    short = shortened(value, "config.resolved.yaml")
    assert len(short) == 6000
    assert short.startswith("xxx")
    assert "7,000 characters" in short
    assert short.endswith("whole in config.resolved.yaml")
    assert shortened("x" * 6000, "y") == "x" * 6000
    assert shortened(value[:-1] + "y", "z")[-60:] != shortened(value, "z")[-60:], "different values differ"


def test_settings_are_flattened() -> None:
    nested = {
        "optim": {"lr": 2e-5, "betas": [0.9, 0.99]},
        "seed": 0,
        "data": {"nulls": {}, "path": "a b", "tail": None},
    }
    assert dict(flatten(nested)) == {
        "optim.lr": "2e-05",
        "optim.betas": "[0.9, 0.99]",
        "seed": "0",
        "data.nulls": "{}",
        "data.path": "a b",
        "data.tail": "null",
    }


def test_numbers_of_an_entry() -> None:
    entry = {"step": 3, "time": 1.0, "loss": math.inf, "grad_norm": None, "skipped": True, "digest": "ab", "tokens": 7}
    found = numbers(entry, "x/")
    assert math.isnan(found.pop("x/grad_norm"))
    assert found == {"x/loss": math.inf, "x/skipped": 1.0, "x/tokens": 7.0}


@pytest.mark.parametrize(
    ("steps", "text"), [([], ""), ([3], "3"), ([1, 2, 3, 7, 9, 10], "1-3, 7, 9-10"), ([2, 1, 2], "1-2")]
)
def test_ranges(steps: list[int], text: str) -> None:
    assert ranges(steps) == text


def test_a_tag_is_cut_visibly() -> None:
    assert tag_value("x" * 6000).endswith("x …")
    assert len(tag_value("x" * 6000)) == 5000
