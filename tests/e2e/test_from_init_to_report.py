"""Each shipped pipeline and the starter, from ``pliant init`` to the report and the model in MLflow, in a new folder,
by commands alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pliant.registry import known_pipelines
from tests.command import ROOT, python
from tests.e2e.commands import Command, last_step, store_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

STARTER = "homes"
SHIPPED = {"digits": ["train.epochs=null"], "flights": ["train.epochs=null"], "stdlib_lm": ["eval.at_end=false"]}
"""Settings that make a run short; the bytes of the standard library would be evaluated for a minute."""
LOAD = """
import sys, mlflow, numpy, torch
mlflow.set_tracking_uri("sqlite:///runs/mlflow.db")
(run,) = mlflow.search_runs(experiment_names=[sys.argv[1]], filter_string="attributes.run_name = 'first'",
                            output_format="list")
assert run.info.status == "FINISHED", run.info.status
uri = f"runs:/{run.info.run_id}/model"
inputs = mlflow.models.get_model_info(uri).signature.inputs
batch = [torch.from_numpy(numpy.zeros([2, *spec.shape[1:]], spec.type)) for spec in inputs]
names = [spec.name for spec in inputs]
model = mlflow.pytorch.load_model(uri)
out = model(*batch) if names == [None] else model(**dict(zip(names, batch)))
print(len(out), names)
"""


def pliant(folder: Path, *arguments: str, code: int = 0) -> str:
    return Command(*arguments, cwd=folder).finish(code)


def test_what_is_shipped() -> None:
    assert sorted(SHIPPED) == sorted(known_pipelines(cwd=ROOT))


@pytest.mark.parametrize("name", [STARTER, *SHIPPED])
def test_from_init_to_report(name: str, tmp_path: Path) -> None:
    pliant(tmp_path, "init", "mine", *([] if name == STARTER else ["--from", name]))
    here = tmp_path / "mine"
    short = ["schedule.warmup=1", "checkpoint.every_steps=2", *SHIPPED.get(name, [])]
    assert "note: there is nothing at data.path" in pliant(here, "config", "check", name)
    assert "train" in pliant(here, "prepare", name)
    assert "note" not in pliant(here, "config", "check", name)
    assert "variance ratio" in pliant(here, "data", "inspect", f"datasets/{name}")
    assert "step time" in pliant(here, "plan", name, "train.steps=4", *short)
    assert f"{name} is ready" in pliant(here, "preflight", name, "--in-process", "train.steps=4", *short)

    output = pliant(here, "train", name, "--name", "first", "--in-process", "train.steps=4", *short)
    assert "done: step 4 of 4" in output
    assert "go on with: pliant resume first train.steps=8" in output
    assert "done: step 6 of 6" in pliant(here, "resume", "first", "--in-process", "train.steps=6")
    assert last_step(store_of(str(here / "runs"), "first")) == 6
    status = json.loads(pliant(here, "status", "first", "--json"))
    assert (status["state"], status["step"], status["checkpoint"], status["attempts"]) == ("done", 6, 6, 2)
    steps = [json.loads(line)["step"] for line in pliant(here, "metrics", "first", "--json").splitlines()]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert "intact" in pliant(here, "verify", "first")
    assert "first" in pliant(here, "ls")
    pliant(here, "report", "first")
    assert "first" in (here / "runs" / "first" / "report.html").read_text(encoding="utf-8")
    loaded = python("-c", LOAD, name, cwd=here)
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.startswith("2 ")
    assert "label" not in loaded.stdout


def test_the_starter_with_ray_and_two_workers_has_the_same_numbers(tmp_path: Path) -> None:
    pliant(tmp_path, "init", "mine")
    here = tmp_path / "mine"
    pliant(here, "prepare", STARTER)
    short = ["train.steps=6", "schedule.warmup=1", "tracking.kind=none"]
    pliant(here, "train", STARTER, "--name", "first", "--in-process", *short)
    output = pliant(here, "train", STARTER, "--name", "second", *short)
    assert "starting Ray (cluster.address local) …\n" in output
    assert "2 × cpu, from the beginning" in output
    pliant(here, "metrics", "first", "--against", "second")
