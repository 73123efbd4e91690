"""Eight processes that find no database yet and deliver runs and sweeps to it at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.command import ROOT
from tests.track.records import runs_of
from tests.track.writer import EXPERIMENT, ROUNDS, STEPS, TRIALS

WRITERS = 8


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_eight_writers_on_one_sqlite_file(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'shared' / 'mlflow.db'}"
    write(tmp_path, uri)
    check_what_was_written(uri)


def write(folder: Path, uri: str) -> None:
    """Lets eight processes write; each ends without a word."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"}
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.track.writer", str(folder), str(number), uri],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(WRITERS)
    ]
    while any(not (folder / f"ready{n}").exists() for n in range(WRITERS)):
        ended = [writer.communicate()[0] for writer in writers if writer.poll() is not None]
        assert ended == []
        time.sleep(0.05)
    (folder / "go").touch()
    outputs = [writer.communicate()[0] for writer in writers]
    assert [(writer.returncode, output) for writer, output in zip(writers, outputs, strict=True)] == [(0, "")] * WRITERS


def check_what_was_written(uri: str) -> None:
    """All runs, sweeps and trials of theirs, in one experiment, with every step once."""
    runs = runs_of(uri, EXPERIMENT)
    assert {run.info.status for run in runs} == {"FINISHED"}
    trials = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    sweeps = {run.info.run_id for run in runs if run.info.run_name == "search"}
    assert Counter(run.data.tags["mlflow.parentRunId"] for run in trials) == dict.fromkeys(sweeps, TRIALS)
    alone = [run for run in runs if run.info.run_name == "run"]
    assert (len(alone), len(sweeps), len(runs)) == (WRITERS, WRITERS, WRITERS * (2 + TRIALS))
    client = MlflowClient(tracking_uri=uri)
    every = range(1, ROUNDS * STEPS + 1)
    for run in alone:
        assert sorted(m.step for m in client.get_metric_history(run.info.run_id, "loss")) == list(every)
    for run in trials:
        samples = sorted(m.step for m in client.get_metric_history(run.info.run_id, "loss"))
        assert samples == [step * 8 for step in every]
