"""An MLflow server that is away for two minutes of a run: it is caught up with, and nothing is lost."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from pliant.api import Run
from tests.e2e.commands import store_of
from tests.track.records import history, the_run
from tests.track.server import MlflowServer
from tests.track.test_server import ONE_STEP, Told, settings, wait_until_told
from tests.train.runs import PIPELINE

OUTAGE_S = 120.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_two_minutes(tmp_path: Path, dataset: str, empty_database: Path) -> None:
    store, go = store_of(str(tmp_path / "runs"), "run"), tmp_path / "go"
    with MlflowServer(tmp_path / "server") as server:
        shutil.copyfile(empty_database, server.store.removeprefix("sqlite:///"))
        server.start()
        begin = ["train", PIPELINE, "--name", "run", "--in-process", *settings(dataset, server.uri)]
        run = Told(*begin, cwd=tmp_path, hold=8 * ONE_STEP + 1, until=go)
        wait_until_told(server.store, 5)
        server.kill()
        began = time.monotonic()
        run.wait_for_line("cannot be told just now")
        while time.monotonic() - began < OUTAGE_S:
            time.sleep(1.0)
        server.start()
        run.wait_for_line("is caught up")
        go.touch()
        said = run.finish()
        assert said.count("cannot be told just now") == 1
        assert f"has the run as {the_run(server.store).info.run_id}" in said
        losses = [(entry["step"], entry["loss"]) for entry in Run.open(store.uri).metrics()]
        assert history(server.store, "loss") == losses
        assert the_run(server.store).info.status == "FINISHED"
