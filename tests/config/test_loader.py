"""Values, origins, and every error of loading settings, with the place, what was found and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.config.loader import load_settings, read_text
from pliant.config.overrides import Overrides
from pliant.errors import ConfigError
from tests.config.models import Optim, Tree

TEXT = """\
seed: 7
optim:
  lr: 3e-4
train: {batch: 32, steps: 1e2}
"""


def refused(text: str, overrides: Overrides = ()) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_settings(Tree, text=text, source="x.yaml", overrides=overrides)
    assert caught.value.exit_code == 2
    return caught.value


def test_file_values_overrides_and_defaults_with_their_origins() -> None:
    loaded = load_settings(Tree, text=TEXT, source="x.yaml", overrides=["optim.betas=[0.8, 0.9]", "extra.wait=2min"])
    settings, origins = loaded.settings, loaded.origins
    assert (settings.seed, settings.optim.lr, settings.train.steps) == (7, 3e-4, 100)
    assert settings.optim.betas == (0.8, 0.9)
    assert settings.extra is not None
    assert settings.extra.wait == 120.0
    assert origins["seed"] == "x.yaml:1:1"
    assert origins["optim.lr"] == "x.yaml:3:3"
    assert origins["train.steps"] == "x.yaml:4:20"
    assert origins["optim.betas"] == "override optim.betas=[0.8, 0.9]"
    assert origins["optim.kind"] == "default"


def test_every_setting_has_an_origin() -> None:
    origins = load_settings(Tree, text=TEXT, source="x.yaml").origins
    assert len(origins) == 21
    assert "optim.inner.depth" in origins
    assert "from" in origins


def test_sections_merge_and_are_never_replaced() -> None:
    loaded = load_settings(Tree, text=TEXT, source="x.yaml", overrides=["optim={kind: sgd, inner: {depth: 3}}"])
    assert loaded.settings.optim == Optim.model_validate({"lr": 3e-4, "kind": "sgd", "inner": {"depth": 3}})
    assert loaded.origins["optim.lr"] == "x.yaml:3:3"
    assert loaded.origins["optim.inner.depth"] == "override optim={kind: sgd, inner: {depth: 3}} at character 27"


def test_a_mapping_setting_is_replaced_whole_or_changed_by_entry() -> None:
    def resources(*overrides: str) -> dict[str, float]:
        return load_settings(Tree, text=TEXT, source="x.yaml", overrides=overrides).settings.resources

    assert resources("resources={GPU: 1}") == {"GPU": 1.0}
    assert resources("resources.GPU=1") == {"CPU": 1.0, "GPU": 1.0}
    assert resources("resources={A: 2}", "resources.GPU=1") == {"A": 2.0, "GPU": 1.0}


def test_an_entry_override_is_the_origin_of_its_setting() -> None:
    loaded = load_settings(Tree, text=TEXT, source="x.yaml", overrides=["resources.GPU=1"])
    assert loaded.origins["resources"] == "override resources.GPU=1"


def test_overrides_from_python_keep_their_types() -> None:
    loaded = load_settings(Tree, text=TEXT, source="x.yaml", overrides={"train.audit": True, "name": "2e-5"})
    assert loaded.settings.train.audit is True
    assert loaded.settings.name == "2e-5"
    assert loaded.origins["name"] == "override name='2e-5'"


def test_an_empty_section_is_an_empty_section() -> None:
    assert load_settings(Tree, text=TEXT.replace("\n  lr: 3e-4", ""), source="x.yaml").settings.optim == Optim()


def test_a_null_override_takes_a_file_value_back() -> None:
    loaded = load_settings(Tree, text=TEXT, source="x.yaml", overrides=["train.steps=null", "train.epochs=2"])
    assert (loaded.settings.train.steps, loaded.settings.train.epochs) == (None, 2.0)


@pytest.mark.parametrize(
    ("text", "overrides", "code", "location", "message", "hint"),
    [
        # unknown keys
        (
            TEXT + "sed: 1\n",
            [],
            "unknown-key",
            "x.yaml:5:1",
            "sed is not a setting",
            "did you mean seed (a whole number at least 0, default 0)?",
        ),
        (
            TEXT,
            ["optim.lrr=3"],
            "unknown-key",
            "override optim.lrr=3",
            "optim.lrr is not a setting",
            "did you mean optim.lr (a number above 0, default 0.001)?",
        ),
        (
            TEXT + "Optim-: {}\n",
            [],
            "unknown-key",
            "x.yaml:5:1",
            "Optim- is not a setting",
            "did you mean optim?",
        ),
        (
            TEXT,
            ["optim.steps=3"],
            "unknown-key",
            "override optim.steps=3",
            "optim.steps is not a setting",
            "steps belongs under train: train.steps (a whole number at least 1 or null)?",
        ),
        (
            TEXT,
            ["optim.seed=3"],
            "unknown-key",
            "override optim.seed=3",
            "optim.seed is not a setting",
            "seed belongs at the top level: seed (a whole number at least 0, default 0)?",
        ),
        (
            TEXT,
            ["trian.steps=3"],
            "unknown-key",
            "override trian.steps=3",
            "trian is not a setting",
            "did you mean train?",
        ),
        (
            TEXT,
            ["colums=3"],
            "unknown-key",
            "override colums=3",
            "colums is not a setting",
            "did you mean columns (a list, each text or null)?",
        ),
        (
            TEXT,
            ["optim.inner.stepz=3"],
            "unknown-key",
            "override optim.inner.stepz=3",
            "optim.inner.stepz is not a setting",
            "did you mean train.steps (a whole number at least 1 or null)?",
        ),
        (
            TEXT,
            ["optim.inner.zzz=3"],
            "unknown-key",
            "override optim.inner.zzz=3",
            "optim.inner.zzz is not a setting",
            "optim.inner has depth, wait",
        ),
        (
            TEXT + "optim.lr: 5\n",
            [],
            "unknown-key",
            "x.yaml:5:1",
            "optim.lr is not a setting",
            "dotted keys are for overrides; in a file, write a section with the key below it",
        ),
        (
            TEXT,
            ["zzz=x"],
            "unknown-key",
            "override zzz=x",
            "zzz is not a setting",
            "the top level has seed, name, size, columns, resources, anything, short, optim, train, extra, pause, from",
        ),
        # a misspelt required key is one problem, not two
        (
            TEXT.replace("batch", "batc"),
            [],
            "unknown-key",
            "x.yaml:4:9",
            "train.batc is not a setting",
            "did you mean train.batch (a whole number at least 1)?",
        ),
        # values
        (TEXT, ["seed=-1"], "value", "override seed=-1", "seed is -1; allowed: a whole number at least 0", ""),
        (TEXT, ["seed=1.5"], "value", "override seed=1.5", "seed is 1.5; allowed: a whole number at least 0", ""),
        (TEXT, ["seed=yes"], "value", "override seed=yes", "seed is 'yes'; allowed: a whole number at least 0", ""),
        (TEXT, ["seed=true"], "value", "override seed=true", "seed is true; allowed: a whole number at least 0", ""),
        (
            TEXT,
            ["train.batch=false"],
            "value",
            "override train.batch=false",
            "train.batch is false; allowed: a whole number at least 1",
            "",
        ),
        (TEXT, ["name=3"], "value", "override name=3", "name is 3; allowed: text of length at least 1", ""),
        (TEXT, ["name=null"], "value", "override name=null", "name is null; allowed: text of length at least 1", ""),
        (
            TEXT,
            ["short=abcd"],
            "value",
            "override short=abcd",
            "short is 'abcd'; allowed: text of length at most 3",
            "",
        ),
        (
            TEXT,
            ["optim.inner.depth=10"],
            "value",
            "override optim.inner.depth=10",
            "optim.inner.depth is 10; allowed: a whole number at least 1 and at most 9",
            "",
        ),
        (
            TEXT,
            ["optim.kind=adam"],
            "value",
            "override optim.kind=adam",
            "optim.kind is 'adam'; allowed: one of adamw, sgd",
            "did you mean adamw?",
        ),
        (
            TEXT,
            ["optim.betas=[1, 2, x]"],
            "value",
            "override optim.betas=[1, 2, x]",
            "optim.betas is [1, 2, 'x']; allowed: a list of 2: a number, a number",
            "",
        ),
        (
            TEXT,
            ["resources={CPU: [x]}"],
            "value",
            "override resources={CPU: [x]}",
            "resources is {CPU: ['x']}; allowed: a mapping, each value a number",
            "",
        ),
        (
            TEXT,
            ["train.fill={}"],
            "value",
            "override train.fill={}",
            "train.fill is {}; allowed: one of error, mask, a number",
            "",
        ),
        (
            TEXT,
            ["train.audit=maybe"],
            "value",
            "override train.audit=maybe",
            "train.audit is 'maybe'; allowed: true or false",
            "",
        ),
        (
            TEXT + "columns:\n  - a\n  - 5\n",
            [],
            "value",
            "x.yaml:5:1",
            "columns is ['a', 5]; allowed: a list, each text or null",
            "",
        ),
        (
            TEXT,
            ["optim=5"],
            "value",
            "override optim=5",
            "optim is 5; allowed: a section with lr, betas, kind, inner",
            "",
        ),
        (
            TEXT,
            ["optim=true"],
            "value",
            "override optim=true",
            "optim is true; allowed: a section with lr, betas, kind, inner",
            "",
        ),
        (
            TEXT.replace("\n  lr: 3e-4", " 5"),
            ["optim.lr=3"],
            "value",
            "x.yaml:2:1",
            "optim is 5; allowed: a section with lr, betas, kind, inner",
            "",
        ),
        (
            TEXT,
            ["optim.inner.wait=0"],
            "value",
            "override optim.inner.wait=0",
            "optim.inner.wait is 0; allowed: a duration (30s, 10min, 2h) above 0",
            "",
        ),
        (TEXT, ["size=0"], "value", "override size=0", "size is 0; allowed: a size (64MiB, 2GB) at least 1", ""),
        (
            TEXT,
            ["optim.inner.wait=10parsecs"],
            "value",
            "override optim.inner.wait=10parsecs",
            "optim.inner.wait: '10parsecs' is not a duration; write a number with one of ms, s, min, h, d",
            "",
        ),
        # rules of a section, and what is missing
        (
            TEXT,
            ["train.epochs=2"],
            "value",
            "override train.epochs=2",
            "train: exactly one of steps and epochs is needed",
            "",
        ),
        (
            TEXT.replace("batch: 32, ", ""),
            [],
            "missing",
            "x.yaml:4:1",
            "train.batch is missing; needed: a whole number at least 1",
            "",
        ),
        ("seed: 7\n", [], "missing", "x.yaml", "train.batch is missing; needed: a whole number at least 1", ""),
        ("", [], "missing", "x.yaml", "train.batch is missing; needed: a whole number at least 1", ""),
        ("- a\n", [], "yaml", "x.yaml:1:1", "holds ['a']; needed: a mapping", ""),
        ("a: [\n", [], "yaml", "x.yaml:2:1", "not YAML: expected the node content, but found '<stream end>'", ""),
    ],
)
def test_refused(text: str, overrides: list[str], code: str, location: str, message: str, hint: str) -> None:
    error = refused(text, overrides)
    assert (error.code, error.location, error.message, error.hint) == (f"config.{code}", location, message, hint)


def test_all_problems_are_said_at_once() -> None:
    text = "sed: 1\noptim: {lr: -1}\ntrain: {batch: x, step: 5}\n"
    error = refused(text, ["foo", "optim.kind=adam", "seed.x=1"])
    assert str(error) == (
        "error[config.invalid] 7 problems\n"
        "  x.yaml:1:1  sed is not a setting\n"
        "    did you mean seed (a whole number at least 0, default 0)?\n"
        "  x.yaml:2:9  optim.lr is -1; allowed: a number above 0\n"
        "  x.yaml:3:9  train.batch is 'x'; allowed: a whole number at least 1\n"
        "  x.yaml:3:19  train.step is not a setting\n"
        "    did you mean train.steps (a whole number at least 1 or null)?\n"
        "  override foo  found 'foo'; an override is key=value, as in optim.lr=3e-4\n"
        "  override optim.kind=adam  optim.kind is 'adam'; allowed: one of adamw, sgd\n"
        "    did you mean adamw?\n"
        "  override seed.x=1  seed is a setting, not a section; it has no x\n"
        "    write seed=…"
    )


def test_a_long_value_is_shortened() -> None:
    assert refused(TEXT, {"seed": "x" * 500}).message == f"seed is '{'x' * 58}…; allowed: a whole number at least 0"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        read_text(tmp_path / "none.yaml", "none.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="is not UTF-8 at byte 3"):
        read_text(bad, "bad.yaml")
    bad.write_text("a: ü", encoding="utf-8")
    assert read_text(bad, "bad.yaml") == "a: ü"
