"""Canonical YAML: what is written reads back as the same settings, bit for bit."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pliant.config.dump import config_digest, config_to_dict, config_to_yaml
from pliant.config.loader import load_settings
from tests.config.models import Tree

TEXTS = st.text(min_size=1, max_size=20)
TREES = st.fixed_dictionaries(
    {"train": st.fixed_dictionaries({"batch": st.integers(1, 10**9), "epochs": st.floats(1e-300, 1e300)})},
    optional={
        "seed": st.integers(0, 2**63),
        "name": TEXTS,
        "columns": st.none() | st.lists(TEXTS, max_size=3),
        "resources": st.dictionaries(TEXTS, st.floats(allow_nan=False, allow_infinity=False), max_size=3),
        "anything": st.none()
        | st.booleans()
        | st.floats(allow_nan=False)
        | TEXTS
        | st.lists(st.integers(), max_size=3),
        "optim": st.fixed_dictionaries({}, optional={"lr": st.floats(1e-300, 1e300)}),
        "extra": st.none() | st.just({"depth": 3}),
    },
)


def load(text: str) -> Tree:
    return load_settings(Tree, text=text, source="x.yaml").settings


@given(TREES)
def test_what_is_written_reads_back(values: dict[str, Any]) -> None:
    tree = Tree.model_validate(values)
    text = config_to_yaml(tree)
    assert load(text) == tree
    assert config_to_yaml(load(text)) == text
    assert config_digest(load(text)) == config_digest(tree)


def test_the_text_is_readable_and_may_name_origins() -> None:
    loaded = load_settings(
        Tree, text="name: 'no'\ntrain: {batch: 8, steps: 3}\n", source="x.yaml", overrides=["from=true-"]
    )
    text = config_to_yaml(loaded.settings, loaded.origins)
    assert text.splitlines()[:5] == [
        "seed: 0  # default",
        "name: no  # x.yaml:1:1",
        "size: 1024  # default",
        "columns: null  # default",
        "resources: {CPU: 1.0}  # default",
    ]
    assert "  inner:\n    depth: 2  # default\n" in text
    assert text.endswith("extra: null\npause: null  # default\nfrom: true-  # override from=true-\n")


def test_the_digest_depends_on_values_alone() -> None:
    one = load("train: {batch: 8, steps: 3}\nseed: 0\n")
    other = load("seed: 0\ntrain:\n  steps: 3.0\n  batch: 8  # rows\n")
    assert config_digest(one) == config_digest(other)
    assert config_digest(one) != config_digest(load("train: {batch: 8, steps: 4}"))


def test_plain_values_use_the_names_of_files() -> None:
    values = config_to_dict(load("train: {batch: 8, steps: 3}\nfrom: x\n"))
    assert values["from"] == "x"
    assert values["optim"]["betas"] == [0.9, 0.999]
