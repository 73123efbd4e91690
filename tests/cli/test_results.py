"""Every ``--json`` parses, strictly, and is what cli/results.py says; on runs and sweeps whose cluster and driver are
gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer

from pliant.api import Run as ApiRun
from pliant.cli.common import emit, emit_lines
from pliant.cli.main import app
from pliant.cli.results import RESULTS, Failure, schema
from pliant.observe.console import Console
from tests.cli.conftest import Run
from tests.train.runs import PIPELINE, SETTINGS, prepare
from tests.tune.recording import ASHA, PBT, RecordedSweep

LINES = ("metrics", "logs", "chaos")
TALKING = str(Path(PIPELINE).with_name("talking.py"))


def parsed(text: str) -> Any:
    """A document, read as a strict parser reads it."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def hold_to_schema(command: str, output: str) -> list[Any]:
    """The documents of a command's output, each of which is valid."""
    documents = [parsed(line) for line in output.splitlines()] if command in LINES else [parsed(output)]
    validator = jsonschema.Draft202012Validator(schema(command))
    for document in documents:
        validator.validate(document)
    return documents


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset, a run of four steps, and another that has not started."""
    folder = tmp_path_factory.mktemp("results")
    prepare(str(folder / "data"))
    given = {text.partition("=")[0]: text for text in SETTINGS}
    given |= {"train.steps": "train.steps=4", "eval.every_steps": "eval.every_steps=2"}
    place = [f"data.path={folder / 'data'}", f"run.storage={folder / 'runs'}", f"tracking.uri=sqlite:///{folder}/m.db"]
    settings = [*given.values(), *place]
    settings.remove("tracking.kind=none")
    ended = ApiRun.new(TALKING, settings, name="ended", in_process=True).train(Console(quiet=True))
    assert (ended.reason, ended.step) == ("done", 4)
    ApiRun.new(TALKING, settings, name="other", in_process=True)
    for name, given_sweep in (("asha", ASHA), ("pbt", PBT)):
        sweep = RecordedSweep(folder, name, given_sweep, pipeline="digits")
        sweep.drive()
        sweep.trial_run("t0000", chosen={"optim.lr": 0.01})
    return folder


def settings(folder: Path) -> list[str]:
    place = [f"data.path={folder / 'data'}", "tracking.kind=none"]
    return [*place, "train.global_batch=32", "train.micro_batch=4", "train.steps=4", "data.reader=local"]


COMMANDS: dict[str, list[str]] = {
    "ls": [],
    "init": ["mine"],
    "plan": [PIPELINE, "SETTINGS"],
    "preflight": [PIPELINE, "SETTINGS"],
    "status": [],
    "logs": ["ended", "--rank", "all"],
    "stop": ["ended"],
    "metrics": ["ended"],
    "report": ["ended"],
    "verify": ["ended"],
    "sync": ["ended"],
    "gc": ["ended"],
    "chaos": ["ended", "--dry-run"],
    "doctor": [],
    "data inspect": ["data"],
    "data repack": ["data/train", "repacked"],
    "data verify": ["data"],
    "config show": ["ended"],
    "config check": ["ended"],
    "config explain": ["optim"],
    "config diff": ["ended", "digits"],
    "prepare": ["digits", "data.path=digits"],
    "train": [PIPELINE, "--in-process", "--name", "new", "SETTINGS"],
    "resume": ["new", "--in-process"],
    "sweep": ["digits", "--space", "digits_asha", "--dry-run", "data.path=digits"],
}


def test_every_command_that_writes_json_is_here() -> None:
    root: Any = typer.main.get_command(app)
    found = {}
    for name, command in root.commands.items():
        for below, one in getattr(command, "commands", {"": command}).items():
            found[f"{name} {below}".strip()] = any("--json" in option.opts for option in one.params)
    assert len(found) > 20
    # One writes JSON as it is; the other runs as long as its machine.
    assert {name for name, has_json in found.items() if not has_json} == {"config schema", "cluster notice-agent"}
    assert sorted(RESULTS) == sorted(COMMANDS) == sorted(name for name, has_json in found.items() if has_json)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_writes_is_what_its_schema_says(command: str, folder: Path, run: Run) -> None:
    given = [word for one in COMMANDS[command] for word in (settings(folder) if one == "SETTINGS" else [one])]
    done = run(*command.split(), *given, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    documents = hold_to_schema(command, done.stdout)
    assert documents
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        ["status", "ended"], ["status", "ended", "--time"], ["status", "other"], ["status", "other", "--time"],
        ["status", "--watch"], ["metrics", "ended", "--eval"],
        ["metrics", "ended", "--audit"], ["metrics", "ended", "--against", "ended"],
        ["resume", "ended", "--explain"], ["logs", "ended", "--follow"],
        ["stop", "other", "--no-wait"],
        ["status", "asha"], ["status", "pbt"], ["status", "asha", "--watch"],
        ["status", "asha/trials/t0000"], ["metrics", "asha"], ["metrics", "pbt"], ["logs", "asha"], ["stop", "asha"],
        ["verify", "asha"], ["report", "asha"], ["gc", "asha"], ["resume", "asha", "--explain"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_options_keep_to_the_schema(line: list[str], folder: Path, run: Run) -> None:
    done = run(*line, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    if "--watch" in line:
        done.stdout = done.stdout.splitlines()[0]
    assert hold_to_schema(line[0], done.stdout) or line[0] == "logs"


def test_a_failed_check_keeps_to_the_schema(folder: Path, run: Run) -> None:
    gpus = "elastic.resources_per_worker={GPU: 64}"
    (folder / "file").write_text("")
    lost = f"run.storage={folder / 'file' / 'runs'}"
    done = run("preflight", PIPELINE, *settings(folder), gpus, lost, "run.store.retry_for=0", "--json", cwd=folder)
    assert done.returncode == 3
    (result,) = hold_to_schema("preflight", done.stdout)
    states = {check["name"]: check["status"] for check in result["checks"]}
    assert states == {
        "data": "ok", "schedule": "failed", "storage": "failed", "batches": "skipped", "checkpoint": "skipped",
        "restore": "skipped", "tracking": "skipped",
    }  # fmt: skip
    assert result["checks"][1]["error"]["hint"].startswith("use fewer workers")


@pytest.mark.parametrize(
    ("line", "code", "problems"),
    [
        (["status", "endet"], "run.unknown", 0),
        (["config", "check", "digits", "optim.lrr=1", "train.stepps=3"], "config.invalid", 2),
        (["logs", "ended", "--rank", "first"], "logs.rank", 0),
    ],
)
def test_failures_keep_to_their_schema(line: list[str], code: str, problems: int, folder: Path, run: Run) -> None:
    done = run(*line, "--json", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    document = parsed(done.stderr)
    jsonschema.validate(document, Failure.model_json_schema())
    assert document["error"]["code"] == code
    assert len(document.get("problems", [])) == problems


def test_what_json_cannot_hold_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"values": {"loss": float("nan"), "best": [1.5, float("-inf")]}}, as_json=True, text="")
    emit_lines([{"loss": float("inf"), "step": 3}])
    first, second = map(parsed, capsys.readouterr().out.splitlines())
    assert (first, second) == ({"values": {"loss": None, "best": [1.5, None]}}, {"loss": None, "step": 3})
