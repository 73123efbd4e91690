"""``pliant init``: what it copies runs, from the CSV file to the report."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from pliant.cli.main import app
from pliant.tune.spacefile import load_sweep
from tests.cli.conftest import Run
from tests.command import ROOT

STARTER = ROOT / "platform" / "pliant" / "starter"
SHORT = ["train.steps=20", "schedule.warmup=5", "tracking.kind=none"]


def test_the_starter_runs_from_a_csv_to_a_report(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("init", "mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "mine/homes.csv\nmine/pipelines/homes.py\nmine/pipelines/homes.yaml\nmine/search_spaces/homes_asha.yaml\n"
        "mine/README.md\n\n"
        "go on with:\n  cd mine\n  pliant prepare homes\n  pliant train homes --name first --in-process\n"
        "  pliant sweep homes --space homes_asha --name search\n"
    )
    here = tmp_path / "mine"
    done = run("prepare", "homes", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    splits = json.loads(done.stdout)["splits"]
    assert {name: split["rows"] for name, split in splits.items()} == {"train": 480, "validation": 120}
    monkeypatch.chdir(here)
    sweep = load_sweep("homes", "homes_asha")
    assert (sweep.settings.trials, sweep.metric, sweep.base.data.lanes) == (27, "loss", 4)
    done = run("train", "homes", "--name", "first", "--in-process", "--json", *SHORT, cwd=here)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["reason"], result["step"]) == ("done", 20)
    assert {"loss", "accuracy"} <= result["values"].keys()
    losses = [json.loads(line)["loss"] for line in run("metrics", "first", "--json", cwd=here).stdout.splitlines()]
    assert sum(losses[-5:]) < sum(losses[:5])
    assert run("report", "first", cwd=here).returncode == 0
    assert (here / "runs" / "first" / "report.html").is_file()


def test_a_csv_of_ones_own_with_values_that_were_never_seen(tmp_path: Path, run: Run) -> None:
    run("init", "mine", cwd=tmp_path)
    here = tmp_path / "mine"
    with (here / "homes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))[:90]
    for row in rows[:3]:
        row |= {"sold": "", "district": "elsewhere"}  # without a target a row is of no use
    rows[3] |= {"rooms": "", "heating": ""}
    with (here / "other.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*reversed(rows[0]), "unused"])
        writer.writeheader()
        writer.writerows({**row, "unused": "x"} for row in rows)
    done = run("prepare", "homes", "model.csv=other.csv", "--json", cwd=here)
    assert sum(split["rows"] for split in json.loads(done.stdout)["splits"].values()) == 87
    done = run("train", "homes", "--in-process", *SHORT, cwd=here)
    assert done.returncode == 0, done.stderr


def test_a_csv_that_is_not_there_is_the_users_error(tmp_path: Path, run: Run) -> None:
    run("init", "mine", cwd=tmp_path)
    done = run("prepare", "homes", "model.csv=none.csv", cwd=tmp_path / "mine")
    assert done.returncode == 1
    assert "error[pipeline.prepare]" in done.stderr
    assert "FileNotFoundError" in done.stderr
    assert re.search(rf'File "{tmp_path}/mine/pipelines/homes\.py", line \d+, in prepare', done.stderr)
    assert "platform/pliant" not in done.stderr


def test_nothing_is_overwritten(tmp_path: Path, run: Run) -> None:
    (tmp_path / "README.md").write_text("mine")
    done = run("init", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error[init.exists] .  would overwrite README.md\n  give another folder, or move these away\n"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]


def test_a_pipeline_that_there_is_can_be_copied(tmp_path: Path, run: Run) -> None:
    done = run("init", "copy", "--from", "digits", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)["files"]
    assert files == ["pipelines/digits.py", "pipelines/digits_settings.py", "pipelines/digits.yaml",
                     "search_spaces/digits_asha.yaml", "search_spaces/digits_pbt.yaml", "README.md"]  # fmt: skip
    for file in files[:5]:
        assert (tmp_path / "copy" / file).read_bytes() == (ROOT / file).read_bytes()
    assert run("config", "check", "pipelines/digits.py", cwd=tmp_path / "copy").returncode == 0
    readme = (tmp_path / "copy" / "README.md").read_text()
    assert "pliant sweep digits --space digits_asha --name search" in readme
    (tmp_path / "lonely.py").write_text("")
    assert run("init", "alone", "--from", "lonely.py", cwd=tmp_path).returncode == 0
    assert "pliant sweep" not in (tmp_path / "alone" / "README.md").read_text()
    done = run("init", "other", "--from", "digitz", cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean digits?" in done.stderr


def test_the_readme_is_short_and_its_commands_exist() -> None:
    readme = (STARTER / "README.md").read_text()
    assert len(readme.splitlines()) <= 16
    named = set(re.findall(r"pliant ([a-z]+) ", readme))
    assert {"prepare", "train", "resume", "report"} <= named
    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    assert named <= known


@pytest.mark.parametrize(
    "file", ["homes.csv", "README.md", "pipelines/homes.py", "pipelines/homes.yaml", "search_spaces/homes_asha.yaml"]
)
def test_the_starter_is_part_of_the_package(file: str) -> None:
    assert (STARTER / file).is_file()
    assert '"starter/**/*"' in (ROOT / "pyproject.toml").read_text()
