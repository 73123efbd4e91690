"""YAML 1.2: what is a number, what is text, where things stand, what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.config.yamlfile import parse_yaml, scalar
from pliant.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e-5", 2e-5),
        ("1e-4", 1e-4),
        ("1.e-4", 1e-4),
        ("2E-5", 2e-5),
        ("+1e-3", 1e-3),
        ("-.5", -0.5),
        ("1e2", 100.0),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("-3", -3),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2026-01-31", "2026-01-31"),
        ("s3://bucket/data", "s3://bucket/data"),
        ("'2e-5'", "2e-5"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("|\n  5", "5"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    found = parse_yaml(f"key: {text}", "x.yaml").value["key"]
    assert (type(found), found) == (type(value), value)


def test_not_a_number_is_one() -> None:
    assert math.isnan(scalar(".nan"))


@given(st.floats(allow_nan=False))
def test_every_float_survives_its_own_text(x: float) -> None:
    text = repr(x).replace("inf", ".inf")
    assert scalar(text) == x
    assert isinstance(scalar(text), float)


def test_places_are_those_of_keys_and_items() -> None:
    document = parse_yaml("a: 1\nb:\n  c: [x, y]\n  d:\n    - z\n", "x.yaml")
    assert document.value == {"a": 1, "b": {"c": ["x", "y"], "d": ["z"]}}
    assert document.places == {
        ("a",): "x.yaml:1:1",
        ("b",): "x.yaml:2:1",
        ("b", "c"): "x.yaml:3:3",
        ("b", "c", 0): "x.yaml:3:7",
        ("b", "c", 1): "x.yaml:3:10",
        ("b", "d"): "x.yaml:4:3",
        ("b", "d", 0): "x.yaml:5:7",
    }


def test_an_empty_document_is_none() -> None:
    assert parse_yaml("# nothing\n", "x.yaml").value is None


def test_aliases_repeat_a_value() -> None:
    assert parse_yaml("a: &v {x: 1}\nb: *v\n", "x.yaml").value == {"a": {"x": 1}, "b": {"x": 1}}


def test_numbers_as_keys_are_text() -> None:
    assert parse_yaml("5: a", "x.yaml").value == {"5": "a"}


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a: [1,\nb: 2\n", "x.yaml:3:1", "not YAML: expected ',' or ']'"),
        ("a: 1\n  b: 2\n", "x.yaml:2:4", "not YAML: mapping values are not allowed here"),
        ("\ta: 1\n", "x.yaml:1:1", "cannot start any token"),
        ("a: *b\n", "x.yaml:1:4", "undefined alias 'b'"),
        ("a: &b [*b]\n", "x.yaml:1:", "an alias refers to the value that holds it"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2:1", "another document"),
        ("a: !thing 1\n", "x.yaml:1:4", "the tag !thing has no meaning here"),
        ("? [a, b]\n: 1\n", "x.yaml:1:3", "a key must be plain text"),
        ("a: \x01\n", "x.yaml", "not YAML: "),
    ],
)
def test_what_is_not_yaml_is_refused_with_its_place(text: str, place: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "x.yaml")
    assert caught.value.code == "config.yaml"
    assert caught.value.location.startswith(place)
    assert says in caught.value.message


def test_duplicate_keys_are_refused_with_both_places() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml("optim:\n  lr: 1\n  eps: 2\n  lr: 3\n", "x.yaml")
    error = caught.value
    assert (error.code, error.location) == ("config.duplicate-key", "x.yaml:4:3")
    assert error.message == "optim.lr stands here a second time; the first is at x.yaml:2:3"
