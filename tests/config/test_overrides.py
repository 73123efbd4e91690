"""Overrides that cannot be read or have no place: which one, where in it, and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.config.loader import load_settings
from pliant.errors import ConfigError
from tests.config.models import Tree

TEXT = "train: {batch: 32, steps: 1e2}\n"


@pytest.mark.parametrize(
    ("text", "overrides", "code", "location", "message", "hint"),
    [
        (
            TEXT,
            ["optim.lr"],
            "override",
            "override optim.lr",
            "found 'optim.lr'; an override is key=value, as in optim.lr=3e-4",
            "",
        ),
        (
            TEXT,
            ["optim..lr=1"],
            "override",
            "override optim..lr=1",
            "found 'optim..lr=1'; an override is key=value, as in optim.lr=3e-4",
            "",
        ),
        (
            TEXT,
            ["name="],
            "override",
            "override name=",
            "name has no value",
            "nothing is null, empty text is '\"\"'",
        ),
        (
            TEXT,
            ["name=#5"],
            "override",
            "override name=#5",
            "name has no value",
            "nothing is null, empty text is '\"\"'",
        ),
        (
            TEXT,
            ["name=[1"],
            "yaml",
            "override name=[1 at character 8",
            "not YAML: expected ',' or ']', but got '<stream end>'",
            "quote it: name='\"…\"'",
        ),
        (
            TEXT,
            ["seed.x=1"],
            "override",
            "override seed.x=1",
            "seed is a setting, not a section; it has no x",
            "write seed=…",
        ),
        (
            TEXT,
            ["seed=1", "seed=2"],
            "duplicate-key",
            "override seed=2",
            "seed is given twice; the first is seed=1",
            "keep one of them",
        ),
    ],
)
def test_refused(text: str, overrides: list[str], code: str, location: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(Tree, text=text, source="x.yaml", overrides=overrides)
    error = caught.value
    assert (error.code, error.location, error.message, error.hint) == (f"config.{code}", location, message, hint)


def test_a_place_inside_a_value_of_several_lines_counts_all_characters() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(Tree, text=TEXT, source="x.yaml", overrides=["optim=\n  lr: 1\n  kin: sgd\n"])
    given = "optim=\n  lr: 1\n  kin: sgd\n"
    assert caught.value.location == f"override {given} at character {given.index('kin') + 1}"


def test_a_file_is_laid_over_and_what_comes_later_wins(tmp_path: Path) -> None:
    file = tmp_path / "best.yaml"
    file.write_text("train:\n  steps: 7\n  batch: 64\nname: other\n")
    loaded = load_settings(Tree, text=TEXT, source="t.yaml", overrides=["train.batch=8", f"@{file}", "train.steps=9"])
    assert (loaded.settings.train.batch, loaded.settings.train.steps, loaded.settings.name) == (64, 9, "other")
    assert loaded.origins["train.batch"] == f"{file}:3:3"
    assert loaded.origins["train.steps"] == "override train.steps=9"


@pytest.mark.parametrize(
    ("content", "location", "message"),
    [
        (None, "", "cannot be read: No such file or directory"),
        ("train: {batch: [}", ":1:17", "not YAML"),
        ("- train", ":1:1", "holds ['train']; needed: a mapping"),
        ("train:\n  bach: 3", ":2:3", "train.bach is not a setting"),
        ("train:\n  batch: many", ":2:3", "train.batch is 'many'; allowed"),
    ],
)
def test_mistakes_in_a_file_are_named_there(tmp_path: Path, content: str | None, location: str, message: str) -> None:
    file = tmp_path / "best.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError) as raised:
        load_settings(Tree, text=TEXT, source="t.yaml", overrides=[f"@{file}"])
    assert raised.value.location == f"{file}{location}"
    assert message in raised.value.message
