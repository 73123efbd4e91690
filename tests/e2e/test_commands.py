"""Training commands as a user has them: what they print, how they end, what they refuse."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from pliant.api import Run as ApiRun
from pliant.api import runs_in
from tests.e2e.commands import Command, store_of
from tests.train.runs import PIPELINE, SETTINGS, STEPS, Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ONE_STEP = 16
"""Forward passes of a step of one worker: 8 lanes with two micro-batches each."""


def train(folder: Path, dataset: str, *, hold: int = 0, until: Path | None = None) -> Command:
    return Command(
        "train", PIPELINE, "--name", "run", "--in-process", f"data.path={dataset}", *SETTINGS,
        cwd=folder, hold_before_forward=hold, hold_until=until,
    )  # fmt: skip


def pliant(folder: Path, *arguments: str, code: int = 0) -> str:
    return Command(*arguments, cwd=folder).finish(code)


def test_a_run_from_its_start_to_its_record(tmp_path: Path, dataset: str, whole: Run) -> None:
    output = train(tmp_path, dataset).finish()
    assert f"step {STEPS}/{STEPS}" in output
    assert f"done: step {STEPS} of {STEPS}" in output
    assert "pliant resume run train.steps=42" in output
    assert Run(store_of(str(tmp_path / "runs"), "run"), "run").curve() == whole.curve()

    lines = [json.loads(line) for line in pliant(tmp_path, "metrics", "run", "--json").splitlines()]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert {"step", "epoch", "position", "loss", "lr", "grad_norm", "world_size", "attempt"} <= lines[0].keys()
    samples = [json.loads(line) for line in pliant(tmp_path, "metrics", "run", "--audit", "--json").splitlines()]
    assert len(samples) == STEPS * 32
    first_epoch = samples[:203]
    assert [(s["epoch"], s["position"]) for s in first_epoch] == [(0, position) for position in range(203)]
    assert len({(s["file"], s["row"]) for s in first_epoch}) == 203
    assert {s["file"] for s in first_epoch} == {f"part-0000{i}.parquet" for i in range(4)}
    assert max(s["row"] for s in first_epoch) == 59, "rows are counted within the file"

    status = json.loads(pliant(tmp_path, "status", "run", "--json"))
    assert (status["state"], status["step"], status["checkpoint"]) == ("done", STEPS, STEPS)
    assert "done" in pliant(tmp_path, "status")
    assert "intact" in pliant(tmp_path, "verify", "run")
    assert "go on from it" in pliant(tmp_path, "resume", "run", "--explain")
    assert [r.name for r in runs_in(str(tmp_path / "runs"))] == ["run"]
    run = ApiRun.open(str(tmp_path / "runs" / "run"))
    assert [entry["step"] for entry in run.metrics()] == list(range(1, STEPS + 1))
    assert [entry["step"] for entry in run.evaluations()] == [7, 14, 21]

    (newest,) = (tmp_path / "runs" / "run" / "checkpoints").glob("step-00000021*/__0_0.distcp")
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    assert "__0_0.distcp" in pliant(tmp_path, "verify", "run", code=4)
    output = pliant(tmp_path, "resume", "run", "--in-process")
    assert "is damaged and will not be used" in output
    assert "from step 20" in output


def test_a_name_that_is_taken_is_refused_and_nothing_is_lost(tmp_path: Path, dataset: str) -> None:
    settings = [s for s in SETTINGS if not s.startswith("train.steps")]
    start = ["train", PIPELINE, "--name", "run", "--in-process", f"data.path={dataset}", *settings, "train.steps=4"]
    pliant(tmp_path, *start)
    assert "there is a run of this name already" in pliant(tmp_path, *start, code=2)


def test_a_live_run_is_not_resumed_and_its_owner_named(tmp_path: Path, dataset: str) -> None:
    live = train(tmp_path, dataset, hold=6 * ONE_STEP + 1)
    live.wait_for_step(store_of(str(tmp_path / "runs"), "run"), 6)
    refusal = pliant(tmp_path, "resume", "run", "--in-process", code=2)
    assert f"pid {live.process.pid}" in refusal
    assert "--take-over" in refusal
    assert "running" in pliant(tmp_path, "status", "run")
    output = pliant(tmp_path, "resume", "run", "--in-process", "--take-over")
    assert f"done: step {STEPS}" in output
    live.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)], ids=["ctrl-c", "sigterm"])
def test_a_signal_stops_after_a_checkpoint_and_the_run_goes_on_from_there(
    tmp_path: Path, dataset: str, whole: Run, number: int, code: int
) -> None:
    store, go = store_of(str(tmp_path / "runs"), "run"), tmp_path / "go"
    held = train(tmp_path, dataset, hold=8 * ONE_STEP + 1, until=go)
    held.wait_for_step(store, 8)
    held.process.send_signal(number)
    go.touch()
    output = held.finish(code)
    assert "stopping after a checkpoint" in output
    assert "resume with: pliant resume run" in output
    status = json.loads(pliant(tmp_path, "status", "run", "--json"))
    assert status["state"] == "stopped (signal)"
    assert 8 < status["step"] == status["checkpoint"] < STEPS
    pliant(tmp_path, "resume", "run", "--in-process")
    run = Run(store, "run")
    assert run.curve() == whole.curve()
    assert len({entry["attempt"] for entry in run.log("metrics")}) == 2
