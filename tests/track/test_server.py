"""A run that is killed twice while its MLflow server is killed, stays away and comes back: one history, and true."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.api import Run as ApiRun
from pliant.storage.store import Store
from tests.e2e.commands import Command, store_of
from tests.track.records import history, runs_of, the_run
from tests.track.server import MlflowServer
from tests.train.runs import PIPELINE, SETTINGS, STEPS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ONE_STEP = 16
"""Forward passes of a step of one worker: 8 lanes with two micro-batches each."""
SYSTEM = {"cpu_utilization_percentage", "system_memory_usage_percentage", "network_receive_megabytes"}


class Told(Command):
    """A command whose lines are read as they come."""

    def __init__(self, *arguments: str, cwd: Path, hold: int = 0, until: Path | None = None) -> None:
        super().__init__(*arguments, cwd=cwd, hold_before_forward=hold, hold_until=until)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def wait_for_line(self, text: str) -> None:
        while not any(text in line for line in self.lines):
            assert self._reader.is_alive(), "".join(self.lines)
            time.sleep(0.05)

    def wait_for_step(self, store: Store, step: int) -> None:
        self.wait_for_line(f"step {step}/")

    def finish(self, code: int = 0) -> str:
        self._reader.join()
        assert self.process.wait() == code, "".join(self.lines)
        return "".join(self.lines)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def server(tmp_path: Path, empty_database: Path) -> Iterator[MlflowServer]:
    with MlflowServer(tmp_path / "server") as server:
        shutil.copyfile(empty_database, server.store.removeprefix("sqlite:///"))
        yield server


def settings(dataset: str, uri: str) -> list[str]:
    given = [*SETTINGS, f"data.path={dataset}", "tracking.kind=mlflow", f"tracking.uri={uri}", "tracking.every=0.1"]
    return list({text.partition("=")[0]: text for text in given}.values())


def wait_until_told(store: str, step: int) -> None:
    """Returns when MLflow has a step."""
    while not runs_of(store) or [s for s, _ in history(store, "loss")][-1:] != [step]:
        time.sleep(0.1)


def test_killed_twice_with_a_server_that_is_killed_and_stays_away(
    tmp_path: Path, dataset: str, server: MlflowServer
) -> None:
    store = store_of(str(tmp_path / "runs"), "run")
    server.start()
    first = Told(
        "train", PIPELINE, "--name", "run", "--in-process", *settings(dataset, server.uri),
        cwd=tmp_path, hold=8 * ONE_STEP + 1,
    )  # fmt: skip
    wait_until_told(server.store, 5)
    server.kill()
    first.wait_for_line("cannot be told just now")
    first.kill()

    assert "could not be told that the run's driver died" in Command("status", "run", cwd=tmp_path).finish()
    assert the_run(server.store).info.status == "RUNNING", "nobody could say otherwise"
    second = Told("resume", "run", "--in-process", cwd=tmp_path, hold=8 * ONE_STEP + 1)
    second.wait_for_line("cannot be told just now")
    server.start()
    second.wait_for_line("is caught up")
    wait_until_told(server.store, 10)
    second.kill()

    assert json.loads(Command("status", "run", "--json", cwd=tmp_path).finish())["state"] == "died, resumable"
    assert the_run(server.store).info.status == "KILLED"
    last = Told("resume", "run", "--in-process", cwd=tmp_path).finish()
    run = the_run(server.store)
    assert f"has the run as {run.info.run_id}" in last
    assert run.info.status == "FINISHED"
    assert "pliant.steps_that_differ" not in run.data.tags
    metrics = list(ApiRun.open(store.uri).metrics())
    assert [entry["step"] for entry in metrics] == list(range(1, STEPS + 1))
    keys = {k for k, v in metrics[0].items() if isinstance(v, (int, float)) and k not in ("step", "time")}
    assert {"loss", "accuracy", "lr", "grad_norm", "world_size", "attempt", "position"} <= keys
    for key in keys:
        assert history(server.store, key) == [(entry["step"], entry[key]) for entry in metrics], key
    evaluations = list(ApiRun.open(store.uri).evaluations())
    assert history(server.store, "eval/accuracy") == [(e["step"], e["accuracy"]) for e in evaluations]
    system = [key.split("/") for key in run.data.metrics if key.startswith("system/")]
    assert {name for _, _, name in system} >= SYSTEM
    assert len({node for _, node, _ in system}) == 1
    assert all(math.isfinite(value) for value in run.data.metrics.values())

    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, server.uri, run.info.run_id], cwd="/", capture_output=True, text=True, check=False
    )
    assert loaded.returncode == 0, loaded.stderr
    shape, digest, inputs = loaded.stdout.split("|")
    assert shape == "(2, 7, 17)"
    assert digest.strip() == metrics[-1]["digest"]
    assert "int64" in inputs


LOAD = """
import sys, mlflow, torch
from pliant.checkpoint.digest import named_shards, parameter_digest
mlflow.set_tracking_uri(sys.argv[1])
uri = f"runs:/{sys.argv[2]}/model"
model = mlflow.pytorch.load_model(uri)
print(tuple(model(torch.zeros((2, 7), dtype=torch.int64)).shape), end="|")
print(parameter_digest(named_shards(model), None, 0), end="|")
print(mlflow.models.get_model_info(uri).signature)
"""


def test_a_server_that_never_comes_costs_a_warning_and_a_command_delivers_later(
    tmp_path: Path, dataset: str, empty_database: Path
) -> None:
    store, go = store_of(str(tmp_path / "runs"), "run"), tmp_path / "go"
    mlflow = f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}"  # the default
    (tmp_path / "runs").mkdir()
    shutil.copyfile(empty_database, tmp_path / "runs" / "mlflow.db")  # this process and the driver both look into it
    own = [text for text in settings(dataset, "") if not text.startswith("tracking.uri")]
    start = ["train", PIPELINE, "--name", "run", "--in-process", *own]
    first = Told(*start, cwd=tmp_path, hold=8 * ONE_STEP + 1, until=go)
    wait_until_told(mlflow, 5)
    first.process.send_signal(signal.SIGTERM)
    go.touch()
    first.finish(75)
    stopped = the_run(mlflow)
    assert stopped.info.status == "KILLED"

    nowhere = "http://127.0.0.1:9"
    output = Command("resume", "run", "--in-process", f"tracking.uri={nowhere}", cwd=tmp_path).finish()
    assert output.count(f"MLflow at {nowhere} cannot be told just now") == 1
    assert f"MLflow at {nowhere} does not have all of the run (metrics up to step 0)" in output
    assert f"pliant sync {store.uri}" in output
    assert f"done: step {STEPS} of {STEPS}" in output
    refusal = Command("sync", store.uri, cwd=tmp_path).finish(4)
    assert "track.unavailable" in refusal
    assert "Traceback" not in output + refusal

    delivered = json.loads(Command("sync", "run", f"tracking.uri={mlflow}", "--json", cwd=tmp_path).finish())
    assert delivered == {
        "run": store.uri, "tracking": mlflow, "id": stopped.info.run_id, "status": "FINISHED", "step": STEPS,
    }  # fmt: skip
    losses = [(entry["step"], entry["loss"]) for entry in ApiRun.open(store.uri).metrics()]
    assert history(mlflow, "loss") == losses
    assert the_run(mlflow).info.status == "FINISHED"
    assert the_run(mlflow).data.tags["pliant.model"].startswith("step-00000021")
