"""``pliant config``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pliant.config.loader import load_settings
from pliant.settings import RunConfig
from tests.command import pliant

YAML = "data: {path: d}\ntrain: {global_batch: 32, micro_batch: 8, steps: 10}\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with one small pipeline."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "toy.py").write_text("")
    (tmp_path / "pipelines" / "toy.yaml").write_text(YAML)
    return tmp_path


def test_show_prints_yaml_with_origins_that_loads_again(work: Path) -> None:
    done = pliant("config", "show", "toy", "optim.lr=3e-4", cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    assert "  lr: 0.0003  # override optim.lr=3e-4\n" in done.stdout
    assert "  path: d  # pipelines/toy.yaml:1:8\n" in done.stdout
    assert "  lanes: 2  # smallest divisor of" in done.stdout
    assert load_settings(RunConfig, text=done.stdout, source="shown").settings.optim.lr == 3e-4


def test_show_as_json(work: Path) -> None:
    shown = json.loads(pliant("config", "show", "toy", "--json", cwd=work).stdout)
    assert shown["config"]["train"]["global_batch"] == 32
    assert shown["origins"]["train.global_batch"] == "pipelines/toy.yaml:2:9"
    assert len(shown["digest"]) == 32


def test_check(work: Path) -> None:
    done = pliant("config", "check", "toy", cwd=work)
    assert done.returncode == 0
    assert done.stdout.startswith("toy: ")
    assert done.stdout.endswith(" settings are valid, 5 of them not left to their defaults\n")
    assert json.loads(pliant("config", "check", "toy", "--json", cwd=work).stdout)["chosen"] == 5


def test_check_lists_every_problem_and_exits_2(work: Path) -> None:
    done = pliant("config", "check", "toy", "optim.lrr=3", "train.steps=0", cwd=work)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error[config.invalid] 2 problems\n"
        "  override optim.lrr=3  optim.lrr is not a setting\n"
        "    did you mean optim.lr (a number above 0, default 0.001)?\n"
        "  override train.steps=0  train.steps is 0; allowed: a whole number at least 1 or null\n"
    )
