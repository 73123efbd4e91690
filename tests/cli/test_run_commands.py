"""Commands that look at runs and stop them, on records as drivers write them: no training, no cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pliant.checkpoint.clone import pin
from pliant.cli.main import main
from pliant.errors import EXIT_USAGE
from pliant.observe.output import output_log
from pliant.storage.attempts import StopReason
from pliant.storage.layout import CheckpointRef
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.storage.view import DELETE, QUARANTINE
from tests.cli.conftest import Run
from tests.command import ROOT


class Driven:
    """A run under ``runs/`` whose record this process writes."""

    def __init__(self, folder: Path, name: str, *, dead: bool = False) -> None:
        identity = {"name": name, "pipeline": "/somewhere/lm.py"}
        store = Store(str(folder / "runs" / name), StorageSettings(heartbeat_every=0.05))
        self.record = RunRecord.create(store, identity)
        gone = {"pid": 2**22 + 1, "pid_start": 1.0} if dead else None
        self.driver = self.record.claim_driver(gone)
        self.group = self.record.claim_group(self.driver.number, {"world_size": 2})
        self.group.restore(None, {})

    def steps(self, *steps: int) -> None:
        self._write("metrics", [{"step": step, "loss": 1 / step, "world_size": 2} for step in steps])

    def prints(self, rank: int, *texts: str) -> None:
        self._write(output_log(rank), [{"time": 1.5 + rank, "stream": "out", "text": text} for text in texts])

    def end(self, reason: StopReason) -> None:
        self.group.stop(reason)
        self.driver.stop(reason)

    def _write(self, log: str, entries: list[dict[str, Any]]) -> None:
        writer = LogWriter(self.record.store, self.group, log, every_s=600.0)
        for entry in entries:
            writer.append(entry)
        writer.close()


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Any]:
    """``watching(*arguments)``: a command that runs beside the test, its stdout line by line."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pliant", *arguments]
        environment = {"PYTHONPATH": str(ROOT / "platform"), "PYTHONUNBUFFERED": "1"}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_ls_shows_pipelines_spaces_and_runs(tmp_path: Path, run: Run) -> None:
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "wide.yaml").write_text("pipeline: lm\nsweep: {scheduler: {kind: pbt}}\n")
    (tmp_path / "search_spaces" / "broken.yaml").write_text("space: {")
    Driven(tmp_path, "b-first").end("done")
    Driven(tmp_path, "a-second", dead=True)
    damaged = Driven(tmp_path, "c-third")
    damaged.record.store.put("attempts/a000001/claim.json", b"nonsense")
    lines = run("ls", cwd=tmp_path).stdout.splitlines()
    assert lines[0] == "pipelines:"
    assert lines[1].split()[0] == "digits"
    assert "search spaces:" in lines
    spaces = [line.split() for line in lines[lines.index("search spaces:") + 1 : lines.index("runs in runs:") - 1]]
    assert ["wide", "lm", "pbt", "search_spaces/wide.yaml"] in spaces
    assert ["broken", "search_spaces/broken.yaml"] in spaces
    assert ["digits_asha", "digits", "asha"] in [space[:3] for space in spaces]
    assert lines[-2:] == ["", "sweeps in runs: none"]
    rows = [line.split() for line in lines[lines.index("runs in runs:") + 1 : -2]]
    assert [row[0] for row in rows if row[1] == "damaged"] == ["c-third"]
    assert [row[:3] for row in rows if row[1] != "damaged"] == [
        ["b-first", "done", "lm"],
        ["a-second", "died,", "resumable"],
    ]


def test_gc_says_what_it_would_remove_and_why_the_rest_is_kept(tmp_path: Path, run: Run) -> None:
    driven = Driven(tmp_path, "r")
    whole, damaged, unfinished, retired = (CheckpointRef(step, driven.group.number) for step in (1, 2, 3, 4))
    for ref in (whole, damaged, retired):
        driven.record.store.put(ref.manifest, b"{}")
    driven.group.put_marker(DELETE, retired.name, {"reason": "retention"})
    for ref in (whole, retired):
        pin(driven.record.store, ref, driven.record.store.child("clone"))
    driven.record.store.put(f"checkpoints/{unfinished.name}/shard", b"1234")
    driven.group.put_marker(QUARANTINE, damaged.name, {"reason": "a test"})
    driven.end("done")
    lines = run("gc", "r", cwd=tmp_path).stdout.splitlines()
    assert lines[0].startswith(f"{unfinished.name}: uncommitted, ")
    assert lines[1:] == [
        f"{damaged.name}: kept, it is damaged: for whoever wants to know how",
        f"{whole.name}: kept, it can be resumed from (how many: checkpoint.keep_last, keep_best, keep_every_steps)",
        f"{retired.name}: kept, another run is being cloned from it",
        "to remove: 1 files, 4 B; remove them with --yes",
    ]


def test_ls_of_nothing_says_so(tmp_path: Path, run: Run) -> None:
    shown = run("ls", f"run.storage={tmp_path / 'none'}", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    place = tmp_path / "none"
    assert shown.stdout.endswith(f"\n\nruns in {place}: none\n\nsweeps in {place}: none\n")


def test_logs_of_one_rank_and_of_all(tmp_path: Path, run: Run) -> None:
    driven = Driven(tmp_path, "r", dead=True)
    driven.prints(0, "one", "two")
    driven.prints(11, "from eleven")
    shown = run("logs", "r", cwd=tmp_path)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "one\ntwo\n", "── attempt 2\n")
    assert run("logs", "r", "--rank", "11", cwd=tmp_path).stdout == "from eleven\n"
    assert run("logs", "r", "--rank", "all", cwd=tmp_path).stdout == "[0] one\n[0] two\n[11] from eleven\n"
    shown = run("logs", "r", "--rank", "1", cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (0, "")
    assert shown.stderr == "rank 1 has printed nothing yet; ranks that did: 0, 11\n"
    assert run("logs", "r", "--rank", "x", cwd=tmp_path).stderr == (
        "error[logs.rank] --rank is 'x'; allowed: a number from 0, all, or driver\n"
    )


def test_quiet_leaves_the_result(tmp_path: Path, run: Run) -> None:
    Driven(tmp_path, "r").prints(0, "one")
    for line in (["-q", "logs", "r"], ["logs", "r", "--quiet"]):
        shown = run(*line, cwd=tmp_path)
        assert (shown.stdout, shown.stderr) == ("one\n", "")
    assert run("logs", "r", cwd=tmp_path).stderr == "── attempt 2\n", "the next line is not quiet any more"
    assert run("-q", "logs", "q", cwd=tmp_path).stderr.startswith("error[run.unknown]")


def test_logs_are_followed_to_the_end_of_the_run(tmp_path: Path, watching: Any) -> None:
    driven = Driven(tmp_path, "r")
    driven.prints(0, "one")
    process = watching("logs", "r", "--rank", "all", "-f")
    assert process.stdout.readline() == "[0] one\n"
    driven.prints(1, "two")
    assert process.stdout.readline() == "[1] two\n"
    driven.prints(2, "the last word")
    driven.end("done")
    assert process.communicate()[0] == "[2] the last word\n"
    assert process.returncode == 0


def test_status_is_watched_line_by_line_on_change(tmp_path: Path, watching: Any) -> None:
    driven = Driven(tmp_path, "r")
    driven.steps(1, 2)
    process = watching("status", "r", "--watch", "--every", "0.1")
    assert process.stdout.readline() == "r  running  step 2  train loss 0.5  workers 2\n"
    driven.end("signal")
    assert process.communicate()[0] == "r  stopped (signal)  step 2  train loss 0.5  workers 2\n"
    assert process.returncode == 0


def test_status_of_many_is_watched_until_none_runs(tmp_path: Path, watching: Any) -> None:
    Driven(tmp_path, "a").end("done")
    driven = Driven(tmp_path, "b")
    process = watching("status", "--watch", "--every", "0.1", "--json")
    assert [json.loads(process.stdout.readline())["run"] for _ in range(2)] == ["a", "b"]
    driven.end("done")
    (last,) = process.communicate()[0].splitlines()
    assert (json.loads(last)["run"], json.loads(last)["state"]) == ("b", "done")


def test_status_with_a_damaged_run_shows_the_others(tmp_path: Path, run: Run) -> None:
    Driven(tmp_path, "whole").end("done")
    Driven(tmp_path, "broken").record.store.put("attempts/a000001/claim.json", b"nonsense")
    shown = run("status", cwd=tmp_path)
    assert shown.returncode == 0
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:]] == [["broken", "damaged"], ["whole", "done"]]


def test_stop_of_a_run_that_nobody_drives(tmp_path: Path, run: Run) -> None:
    Driven(tmp_path, "ended").end("done")
    Driven(tmp_path, "killed", dead=True)
    shown = run("stop", "ended", cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (0, "ended does not run: done, step 0, checkpoint None\n")
    shown = run("stop", "killed", cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (0, "killed does not run: died, resumable, step 0, checkpoint None\n")
    assert shown.stderr == "resume with: pliant resume killed\n"


def test_stop_asks_and_waits_for_the_stop_reason(tmp_path: Path, watching: Any) -> None:
    driven = Driven(tmp_path, "r")
    driven.steps(1, 2, 3)
    asked = threading.Event()
    requests: list[dict[str, Any]] = []
    with driven.driver.heartbeat(on_stop=lambda request: (requests.append(request), asked.set())):
        process = watching("stop", "r")
        assert asked.wait(60)
        driven.end("signal")
        output, talk = process.communicate()
    assert (process.returncode, output) == (0, "r stopped (signal), step 3, checkpoint None\n")
    assert talk.splitlines()[0].startswith("asked pid ")
    assert talk.splitlines()[1] == "resume with: pliant resume r"
    assert [(request["detail"], request["pid"]) for request in requests] == [("pliant stop", process.pid)]


def test_stop_of_a_silent_driver_elsewhere_ends_with_4_and_the_request_stands(tmp_path: Path, run: Run) -> None:
    record = RunRecord.create(
        Store(str(tmp_path / "runs" / "far"), StorageSettings()), {"name": "far", "pipeline": "x"}
    )
    driver = record.claim_driver({"boot_id": "of another machine", "host": "far-away", "pid": 7})
    shown = run("stop", "far", "run.store.heartbeat_fresh=0.5", cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (4, "")
    assert "error[run.silent]" in shown.stderr
    assert "pid 7 on host far-away (attempt 1) has shown no sign of life for 0 s" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert driver.stop_request() is not None


def test_doctor_leaves_secrets_out(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-1")
    monkeypatch.setenv("AWS_SESSION_NAME_OF_SORTS", "hush-2")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hush-3")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hush-4@server")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    for line in (["doctor"], ["doctor", "--json"]):
        shown = run(*line, cwd=tmp_path)
        assert shown.returncode == 0
        assert "hush" not in shown.stdout
        assert "http://me:***@server" in shown.stdout
        assert "eu-west-1" in shown.stdout
    assert json.loads(shown.stdout)["packages"]["torch"].startswith("2.")


@pytest.mark.parametrize("command", ["status", "metrics", "logs", "stop", "verify", "gc", "report", "sync", "resume"])
def test_every_command_names_the_closest_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Driven(tmp_path, "first").end("done")
    monkeypatch.chdir(tmp_path)
    assert main([command, "frist"]) == EXIT_USAGE
    assert capsys.readouterr().err == (
        f"error[run.unknown] {tmp_path}/runs/frist  there is no run frist\n  did you mean first?\n"
    )
