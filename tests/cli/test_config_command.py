"""``pliant config``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pliant.config.loader import load_settings
from pliant.settings import RunConfig
from tests.cli.conftest import Run

YAML = "data: {path: d}\ntrain: {global_batch: 32, micro_batch: 8, steps: 10}\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with one small pipeline."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "toy.py").write_text("")
    (tmp_path / "pipelines" / "toy.yaml").write_text(YAML)
    return tmp_path


def test_show_prints_yaml_with_origins_that_loads_again(work: Path, run: Run) -> None:
    done = run("config", "show", "toy", "optim.lr=3e-4", cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    assert "  lr: 0.0003  # override optim.lr=3e-4\n" in done.stdout
    assert "  path: d  # pipelines/toy.yaml:1:8\n" in done.stdout
    assert "  lanes: 2  # derived: the smallest divisor of" in done.stdout
    assert load_settings(RunConfig, text=done.stdout, source="shown").settings.optim.lr == 3e-4


def test_show_as_json(work: Path, run: Run) -> None:
    shown = json.loads(run("config", "show", "toy", "--json", cwd=work).stdout)
    assert shown["config"]["train"]["global_batch"] == 32
    assert shown["origins"]["train.global_batch"] == "pipelines/toy.yaml:2:9"
    assert len(shown["digest"]) == 32


def test_check(work: Path, run: Run) -> None:
    done = run("config", "check", "toy", cwd=work)
    assert done.returncode == 0
    assert done.stdout.startswith("toy: ")
    assert done.stdout.endswith(" settings are valid, 5 of them not left to their defaults\n")
    assert json.loads(run("config", "check", "toy", "--json", cwd=work).stdout)["chosen"] == 5


def test_check_lists_every_problem_and_exits_2(work: Path, run: Run) -> None:
    done = run("config", "check", "toy", "optim.lrr=3", "train.steps=0", cwd=work)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error[config.invalid] 2 problems\n"
        "  override optim.lrr=3  optim.lrr is not a setting\n"
        "    did you mean optim.lr (a number above 0, default 0.001)?\n"
        "  override train.steps=0  train.steps is 0; allowed: a whole number at least 1 or null\n"
    )


def test_explain_a_setting(work: Path, run: Run) -> None:
    done = run("config", "explain", "optim.lr", cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "optim.lr\n"
        "  Peak learning rate; the schedule scales it.\n"
        "  a number above 0, default 0.001\n"
        "  a resume may change it, and the curve with it; the change is recorded\n"
    )


def test_explain_a_section_and_a_pipelines_own(work: Path, run: Run) -> None:
    entries = json.loads(run("config", "explain", "checkpoint", "--json", cwd=work).stdout)
    assert {"checkpoint.overhead", "checkpoint.max_interval"} <= {e["key"] for e in entries}
    assert all(set(e) == {"key", "about", "allowed", "on_resume"} and all(e.values()) for e in entries)
    assert run("config", "explain", "model.width", "--pipeline", "digits", cwd=work).returncode == 0


def test_explain_what_is_not_there(work: Path, run: Run) -> None:
    done = run("config", "explain", "optim.l", cwd=work)
    assert done.returncode == 2
    assert done.stderr == "error[config.unknown-key] optim.l is not a setting\n  did you mean optim.lr?\n"
    done = run("config", "explain", "qqq", cwd=work)
    assert done.stderr.endswith("\n  pliant config show PIPELINE lists all settings\n")
