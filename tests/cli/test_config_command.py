"""``pliant config``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pliant.config.loader import load_settings
from pliant.configure import absolute_paths, load_config
from pliant.registry import find_pipeline
from pliant.settings import RunConfig
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.train.recorded import Code, record_start
from tests.cli.conftest import Run
from tests.command import python

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


def test_show_says_what_a_start_would_derive(work: Path, run: Run) -> None:
    done = run("config", "show", "toy", cwd=work)
    assert "  micro_batch: null  # default; derived at start: 8, as train.micro_batch\n" in done.stdout
    shown = json.loads(run("config", "show", "toy", "--json", cwd=work).stdout)
    assert shown["derived"]["schedule.total"] == "10, the run's own length"
    assert shown["config"]["schedule"]["total"] is None


def test_a_yaml_file_is_shown_with_the_model_of_the_pipeline_beside_it(work: Path, run: Run) -> None:
    (work / "own.py").write_text("from pipelines.digits_settings import ModelSettings\n")
    (work / "own.yaml").write_text(YAML + "model: {width: 3}\n")
    (work / "loose.yaml").write_text(YAML + "model: {width: 3}\n")
    assert "  width: 3  # own.yaml:3:9\n" in run("config", "show", "own.yaml", cwd=work).stdout
    done = run("config", "check", "loose.yaml", cwd=work)
    assert (done.returncode, done.stderr) == (
        2,
        "error[config.unknown-key] loose.yaml:3:9  model.width is not a setting\n  model has allow_rank_local\n",
    )
    assert run("config", "diff", "loose.yaml", "own.yaml", cwd=work).stdout == "no setting differs\n"


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


def test_check_notes_a_dataset_that_is_not_on_this_host(work: Path, run: Run) -> None:
    note = "note: there is nothing at data.path d on this host\n"
    assert run("config", "check", "toy", cwd=work).stderr == note
    (work / "d").mkdir()
    assert run("config", "check", "toy", cwd=work).stderr == ""
    assert run("config", "check", "toy", "data.path=s3://bucket/d", cwd=work).stderr == ""


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


def test_explain_a_setting_that_needs_another(work: Path, run: Run) -> None:
    assert run("config", "explain", "optim.nesterov", cwd=work).stdout == (
        "optim.nesterov\n"
        "  SGD with Nesterov momentum.\n"
        "  true or false, default false\n"
        "  has an effect only with optim.kind sgd\n"
        "  frozen for the life of a run\n"
    )


def test_explain_a_setting_of_sweeps(work: Path, run: Run) -> None:
    assert run("config", "explain", "sweep.budget.time", cwd=work).stdout == (
        "sweep.budget.time\n"
        "  Time of this start of the sweep.\n"
        "  a duration (30s, 10min, 2h) above 0 or null\n"
        "  a resume may change it\n"
    )
    done = run("config", "explain", "sweep.trails", cwd=work)
    assert done.stderr == "error[config.unknown-key] sweep.trails is not a setting\n  did you mean sweep.trials?\n"


def test_schema(work: Path, run: Run) -> None:
    schema = json.loads(run("config", "schema", "digits", cwd=work).stdout)
    assert schema["properties"]["model"]["properties"]["width"]["minimum"] == 1
    assert schema["properties"]["model"]["additionalProperties"] is False
    assert json.loads(run("config", "schema", cwd=work).stdout)["properties"]["model"]["additionalProperties"] is True
    space = json.loads(run("config", "schema", "digits", "--space", cwd=work).stdout)["properties"]["space"]
    assert {"optim.lr", "model.width", "schedule", "train.global_batch"} <= space["properties"].keys()


def test_diff_of_a_pipeline_and_a_file(work: Path, run: Run) -> None:
    (work / "other.yaml").write_text(YAML.replace("steps: 10", "epochs: 2") + "model: {width: 3}\n")
    done = run("config", "diff", "other.yaml", "digits", cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    assert "train.global_batch\n  other.yaml  32  # other.yaml:2:9\n  digits      64  # " in done.stdout
    found = json.loads(run("config", "diff", "toy", "other.yaml", "--json", cwd=work).stderr)
    assert found["error"]["message"] == "model.width is not a setting"
    (work / "other.yaml").write_text(YAML.replace("steps: 10", "epochs: 2"))
    found = json.loads(run("config", "diff", "toy", "other.yaml", "--json", cwd=work).stdout)
    assert found["differences"] == [
        {
            "key": "train.steps",
            "on_resume": "curve",
            "a": {"value": 10, "origin": "pipelines/toy.yaml:2:43"},
            "b": {"value": None, "origin": "default"},
        },
        {
            "key": "train.epochs",
            "on_resume": "curve",
            "a": {"value": None, "origin": "default"},
            "b": {"value": 2.0, "origin": "other.yaml:2:43"},
        },
    ]


def test_diff_names_settings_that_one_side_alone_has(work: Path, run: Run) -> None:
    done = run("config", "diff", "toy", "digits", cwd=work)
    assert "model.width\n  toy     has no such setting\n  digits  64  # " in done.stdout


def test_a_run_keeps_the_origins_that_its_settings_had(work: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    ref = find_pipeline("toy", cwd=work)
    config, origins = load_config(ref, ["optim.lr=3e-4"])
    record = RunRecord.create(
        Store(f"{work}/runs/first", StorageSettings()), {"name": "first", "pipeline": str(ref.file)}
    )
    record_start(record.claim_driver(), absolute_paths(config), origins, Code.of(ref))
    for subject in ("first", "runs/first"):
        shown = json.loads(run("config", "show", subject, "optim.eps=1e-7", "--json", cwd=work).stdout)
        assert shown["origins"]["optim.lr"] == "override optim.lr=3e-4"
        assert shown["origins"]["optim.eps"] == "override optim.eps=1e-7"
        assert shown["origins"]["seed"] == "default"
        assert shown["origins"]["data.lanes"].startswith("derived: ")
        done = run("config", "diff", "toy", subject, cwd=work)
        assert done.stdout.startswith("optim.lr\n")
        assert len(done.stdout.splitlines()) == 3
    assert run("config", "diff", "toy", "first", "run.storage=elsewhere", cwd=work).returncode == 2
    assert run("config", "diff", "toy", "toy", "optim.lr=1", cwd=work).returncode == 2


def test_what_is_no_subject(work: Path, run: Run) -> None:
    assert run("config", "show", "runs/none", cwd=work).stderr.startswith("error[record.unknown] ")
    assert run("config", "show", "none.yaml", cwd=work).stderr == (
        "error[config.file] none.yaml  cannot be read: No such file or directory\n"
    )
    assert run("config", "diff", "toy", "tou", cwd=work).stderr.endswith("\n  did you mean toy?\n")


def test_problems_as_json_are_listed_one_by_one(work: Path, run: Run) -> None:
    shown = json.loads(run("config", "check", "toy", "optim.lrr=3", "train.steps=0", "--json", cwd=work).stderr)
    assert [(p["code"], p["location"]) for p in shown["problems"]] == [
        ("config.unknown-key", "override optim.lrr=3"),
        ("config.value", "override train.steps=0"),
    ]


@pytest.mark.parametrize(
    "arguments", [["show", "digits"], ["check", "stdlib_lm"], ["schema", "digits"], ["diff", "digits", "stdlib_lm"]]
)
def test_settings_of_the_shipped_pipelines_need_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    heavy = ("torch", "ray", "mlflow", "pyarrow", "pandas", "obstore", "sklearn")
    code = (
        "import sys; from pliant.cli.main import main; "
        f"code = main({['config', *arguments]!r}); "
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = python("-c", code, cwd=tmp_path)
    note = "note: there is nothing at data.path datasets/stdlib_lm on this host\n" if arguments[0] == "check" else ""
    assert (done.returncode, done.stderr) == (0, f"{note}[]\n")


def test_explain_a_section_and_a_pipelines_own(work: Path, run: Run) -> None:
    entries = json.loads(run("config", "explain", "checkpoint", "--json", cwd=work).stdout)
    assert {"checkpoint.overhead", "checkpoint.max_interval"} <= {e["key"] for e in entries}
    assert all(set(e) == {"key", "about", "allowed", "only_with", "on_resume"} for e in entries)
    assert all(e[name] for e in entries for name in ("key", "about", "allowed", "on_resume"))
    assert run("config", "explain", "model.width", "--pipeline", "digits", cwd=work).returncode == 0


def test_explain_an_entry_of_a_mapping(work: Path, run: Run) -> None:
    done = run("config", "explain", "data.nulls.salary", cwd=work)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("data.nulls\n")
    assert "COLUMN__valid" in done.stdout


def test_explain_what_is_not_there(work: Path, run: Run) -> None:
    done = run("config", "explain", "optim.l", cwd=work)
    assert done.returncode == 2
    assert done.stderr == "error[config.unknown-key] optim.l is not a setting\n  did you mean optim.lr?\n"
    done = run("config", "explain", "qqq", cwd=work)
    assert done.stderr.endswith("\n  pliant config show PIPELINE lists all settings\n")
