"""A population that really trains, whose driver is stopped, killed and resumed: in MLflow one family, and a model."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import mlflow.pytorch
import pytest
import torch
from mlflow import MlflowClient

from pliant.api import Run
from pliant.checkpoint.digest import named_shards, parameter_digest
from tests.e2e.commands import Command, store_of
from tests.e2e.test_sweeps import decided, written
from tests.track.records import runs_of
from tests.track.sweeps import curve, family, tag
from tests.train.runs import PIPELINE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SETTINGS = ["tracking.kind=mlflow", "tracking.every=0.5", "tracking.register_as=found", "sweep.scheduler.population=3"]


def test_stopped_killed_and_resumed_it_is_one_family_and_the_best_model_is_registered(
    tmp_path: Path, dataset: str, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, database = str(tmp_path / "runs"), tmp_path / "shared.db"
    shutil.copyfile(empty_database, database)
    uri, store = f"sqlite:///{database}", store_of(storage, "pbt")
    space = written(tmp_path, storage, dataset, "pbt")
    given = [*SETTINGS, f"tracking.uri={uri}"]
    first = Command("sweep", PIPELINE, "--space", space, "--name", "pbt", *given, cwd=tmp_path)
    first.wait_until(lambda: decided(store) >= 6)
    first.process.send_signal(signal.SIGTERM)
    stopped = first.finish(75)
    assert {run.info.status for run in runs_of(uri)} == {"KILLED"}, stopped
    second = Command("resume", store.uri, cwd=tmp_path)
    second.wait_until(lambda: decided(store) >= 14)
    second.kill()
    assert json.loads(Command("status", store.uri, "--json", cwd=tmp_path).finish())["state"] == "died, resumable"
    assert {run.info.status for run in runs_of(uri)} <= {"KILLED", "FINISHED"}
    said = Command("resume", store.uri, cwd=tmp_path).finish()

    parent, trials = family(uri)
    assert f"has the sweep as {parent.info.run_id}" in said
    assert trials.keys() == {"t0000", "t0001", "t0002"}
    assert {run.info.status for run in (parent, *trials.values())} == {"FINISHED"}
    clones = {name: run for name, run in trials.items() if "pliant.donor" in run.data.tags}
    assert clones
    for name, child in trials.items():
        runs = [name, *(f"{name}.g{n + 1}" for n in range(int(child.data.tags.get("pliant.generation", 0))))]
        every = [(g, e) for g, run in enumerate(runs) for e in Run.open(f"{store.uri}/trials/{run}").metrics()]
        for key in ("loss", "lr", "global_batch"):
            assert sorted(curve(uri, child, key)) == sorted((entry["samples"], entry[key]) for _, entry in every), key
        assert sorted(curve(uri, child, "generation")) == sorted((entry["samples"], float(g)) for g, entry in every)
        assert "pliant.steps_that_differ" not in child.data.tags
        assert {"params/schedule.peak", "params/train.global_batch", "eval/accuracy"} <= child.data.metrics.keys()

    best = tag(parent, "pliant.best")
    version = MlflowClient(tracking_uri=uri).get_model_version_by_alias("found", "best")
    assert parent.data.tags["pliant.registered"] == f"models:/found/{version.version}"
    assert version.run_id == trials[best["trial"]].info.run_id == parent.data.tags["pliant.best.run_id"]
    assert version.tags["pliant.trial"] == best["trial"]
    assert int(version.tags["pliant.samples"]) == best["samples"]
    assert {"pliant.lr", "pliant.global_batch", "pliant.sweep"} <= version.tags.keys()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    model = mlflow.pytorch.load_model("models:/found@best")
    assert tuple(model(torch.zeros((2, 7), dtype=torch.int64)).shape) == (2, 7, 17)
    assert parameter_digest(named_shards(model), None, 0) == version.tags["pliant.parameter_digest"]

    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    shutil.copyfile(empty_database, tmp_path / "elsewhere.db")
    more = ["tracking.register_as=null", "--json"]
    told = json.loads(Command("sync", store.uri, f"tracking.uri={elsewhere}", *more, cwd=tmp_path).finish())
    copy, others = family(elsewhere)
    assert told == {
        "sweep": store.uri, "tracking": elsewhere, "id": copy.info.run_id, "status": "FINISHED", "trials": 3,
    }  # fmt: skip
    for name, child in others.items():
        assert sorted(curve(elsewhere, child, "loss")) == sorted(curve(uri, trials[name], "loss"))
    refused = Command("sync", f"{store.uri}/trials/t0000", cwd=tmp_path).finish(2)
    assert "track.trial" in refused
    assert f"pliant sync {store.uri}" in refused
