"""Eight processes that find no database yet and deliver to it at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.command import ROOT
from tests.track.records import runs_of
from tests.track.writer import ROUNDS, STEPS

WRITERS = 8


@pytest.mark.slow
def test_eight_writers_on_one_sqlite_file(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'shared' / 'mlflow.db'}"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"}
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.track.writer", str(tmp_path), str(number), uri],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(WRITERS)
    ]
    while any(not (tmp_path / f"ready{n}").exists() for n in range(WRITERS)):
        assert all(writer.poll() is None for writer in writers)
        time.sleep(0.05)
    (tmp_path / "go").touch()
    outputs = [writer.communicate()[0] for writer in writers]
    assert [(writer.returncode, output) for writer, output in zip(writers, outputs, strict=True)] == [(0, "")] * WRITERS
    runs = runs_of(uri)
    assert len(runs) == WRITERS
    assert {run.info.status for run in runs} == {"FINISHED"}
    client = MlflowClient(tracking_uri=uri)
    steps = [sorted(m.step for m in client.get_metric_history(run.info.run_id, "loss")) for run in runs]
    assert steps == [list(range(1, ROUNDS * STEPS + 1))] * WRITERS
    assert {client.get_experiment(run.info.experiment_id).name for run in runs} == {"lm"}
