"""How a run is stopped from outside, and what its screen and its logs have of it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.command import ROOT
from tests.e2e.commands import Command, last_step, store_of
from tests.observe.terminal import Terminal
from tests.train.runs import PIPELINE, SETTINGS, STEPS, Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ONE_STEP = 16
"""Forward passes of a step of one worker: 8 lanes with two micro-batches each."""
TALKING = str(Path(PIPELINE).with_name("talking.py"))
QUICK = "run.store.heartbeat_every=0.2"


def pliant(folder: Path, *arguments: str, code: int = 0) -> str:
    return Command(*arguments, cwd=folder).finish(code)


@pytest.mark.parametrize("storage", ["s3"], indirect=True)  # a local path is the lesser part of it
def test_stop_from_elsewhere_takes_a_checkpoint_first(tmp_path: Path, storage: str, dataset: str, whole: Run) -> None:
    go, place = tmp_path / "go", f"run.storage={storage}"
    held = Command(
        "train", PIPELINE, "--name", "run", "--in-process", f"data.path={dataset}", *SETTINGS, place, QUICK,
        cwd=tmp_path, hold_before_forward=8 * ONE_STEP + 1, hold_until=go,
    )  # fmt: skip
    held.wait_for_step(store_of(storage, "run"), 8)
    output = pliant(tmp_path, "stop", "run", place, "--no-wait", "--json")
    result = json.loads(output.splitlines()[-1])
    assert (result["asked"], result["state"], result["step"]) == (True, "running", 8)
    held.wait_for_output("stopping after a checkpoint: pliant stop, from pid")
    go.touch()
    assert "resume with: pliant resume" in held.finish(75)
    output = pliant(tmp_path, "stop", "run", place)
    step = json.loads(pliant(tmp_path, "status", "run", place, "--json"))["step"]
    assert f"run does not run: stopped (signal), step {step}, checkpoint {step}" in output
    assert 8 < step < STEPS
    pliant(tmp_path, "resume", "run", "--in-process", place)
    assert Run(store_of(storage, "run"), "run").curve() == whole.curve()


def test_a_second_ctrl_c_ends_at_once_and_the_last_checkpoint_serves(tmp_path: Path, dataset: str) -> None:
    store = store_of(str(tmp_path / "runs"), "run")
    held = Command(
        "train", PIPELINE, "--name", "run", "--in-process", f"data.path={dataset}", *SETTINGS,
        cwd=tmp_path, hold_before_forward=8 * ONE_STEP + 1,
    )  # fmt: skip
    held.wait_for_step(store, 8)
    held.wait_for_checkpoint(store, 5)
    held.process.send_signal(signal.SIGINT)
    held.wait_for_output("press Ctrl-C again to stop at once")
    held.process.send_signal(signal.SIGINT)
    output = held.finish(130)
    assert "interrupted at once; resume with: pliant resume run" in output
    assert "Traceback" not in output
    status = json.loads(pliant(tmp_path, "status", "run", "--json"))
    assert (status["state"], status["checkpoint"], status["detail"]) == ("stopped (signal)", 5, "interrupted at once")


def test_through_ray_train_sigterm_saves_and_every_rank_has_its_log(tmp_path: Path, dataset: str) -> None:
    go, store = tmp_path / "go", store_of(str(tmp_path / "runs"), "run")
    settings = [s for s in SETTINGS if not s.startswith(("data.reader", "elastic."))]
    workers = ["elastic.max_workers=2", "elastic.resources_per_worker={CPU: 0.5}", "data.reader=ray"]
    held = Command(
        "train", TALKING, "--name", "run", f"data.path={dataset}", *settings, *workers,
        cwd=tmp_path, hold_before_forward=3 * 8 + 1, hold_until=go,
    )  # fmt: skip
    held.wait_for_step(store, 3)
    held.process.send_signal(signal.SIGTERM)
    held.wait_for_output("stopping after a checkpoint: SIGTERM")
    go.touch()
    output = held.finish(75)
    assert output.count("a model is built\n") == 1, "rank 0 alone is on the screen"
    assert "and a complaint\n" in output
    assert not re.search(r"\(\w+ pid=|raylet|INFO|Traceback|ray\.", output), output
    status = json.loads(pliant(tmp_path, "status", "run", "--json"))
    assert 3 < status["step"] == status["checkpoint"] < STEPS
    for rank in (0, 1):  # the cluster is gone
        lines = pliant(tmp_path, "logs", "run", "--rank", str(rank)).splitlines()
        assert {"a model is built", "and a complaint", "forward pass 10"} <= set(lines)


def on_terminal(*arguments: str, cwd: Path) -> tuple[int, Terminal]:
    """Runs a command on a terminal of 80 columns: its exit code, and what stands there in the end."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(
        [sys.executable, "-m", "pliant", *arguments],
        cwd=cwd,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    screen = Terminal(80)
    screen.write(written.decode().replace("\r\n", "\n"))
    return process.wait(), screen


MANY_STEPS = 3000
IN_RAY = [
    *(text for text in SETTINGS if not text.startswith(("data.reader", "elastic."))),
    "data.reader=ray",
    "elastic.max_workers=2",
    "elastic.resources_per_worker={CPU: 0.5}",
]


@pytest.mark.parametrize(
    ("settings", "step", "passes"),
    [
        pytest.param(["--in-process", *SETTINGS], 8, ONE_STEP, id="in-process"),
        pytest.param(IN_RAY, 3, 8, id="ray", marks=pytest.mark.long),
    ],
)
def test_a_terminal_that_is_closed_stops_the_run_after_a_checkpoint(
    tmp_path: Path, dataset: str, settings: list[str], step: int, passes: int
) -> None:
    ours, theirs = pty.openpty()
    go, store = tmp_path / "go", store_of(str(tmp_path / "runs"), "run")
    # So many steps that it cannot be done before it has heard, however busy the machine is.
    settings = [text for text in settings if not text.startswith("train.steps=")] + [f"train.steps={MANY_STEPS}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pliant", "train", PIPELINE, "--name", "run", f"data.path={dataset}", *settings],
        cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={
            **os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "TERM": "xterm",
            "HOLD_BEFORE_FORWARD": str(step * passes + 1), "HOLD_UNTIL": str(go),
        },
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    while last_step(store) != step:
        assert process.poll() is None
        if select.select([ours], [], [], 0.2)[0]:  # what nobody reads would block it
            os.read(ours, 65536)
    os.close(ours)
    go.touch()
    assert process.wait() == 75
    status = json.loads(pliant(tmp_path, "status", "run", "--json"))
    assert (status["state"], status["detail"]) == ("stopped (signal)", "SIGHUP")
    assert step < status["step"] == status["checkpoint"] < MANY_STEPS


def test_on_a_terminal_the_users_lines_stand_above_the_bar_and_none_is_lost(tmp_path: Path, dataset: str) -> None:
    code, screen = on_terminal(
        "train", TALKING, "--name", "run", "--in-process", f"data.path={dataset}", *SETTINGS, cwd=tmp_path
    )
    assert code == 0
    passes = [line for line in screen.lines if line.startswith("forward pass ")]
    assert passes == [f"forward pass {n}" for n in range(10, STEPS * ONE_STEP + 1, 10)]
    for line in ("a model is built", "and a complaint", f"done: step {STEPS} of {STEPS}"):
        assert screen.lines.count(line) == 1
    assert not [line for line in screen.lines if line.startswith("step ")], "the bar is gone"
    assert screen.lines[-1] == ""
    assert f"\rstep {STEPS}/{STEPS} " in screen.getvalue()
