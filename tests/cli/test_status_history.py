"""What ``pliant status RUN`` says of the starts of a run's workers: how many, which steps, why each ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.report.records import WrittenRun


@pytest.fixture
def written(tmp_path: Path) -> WrittenRun:
    return WrittenRun(str(tmp_path / "runs" / "r"), name="r")


def shown(run: Run, folder: Path, *options: str) -> list[str]:
    """Lines about attempts and what follows them."""
    lines = run("status", "r", *options, cwd=folder).stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("uri "))
    return lines[first + 1 :]


def test_each_start_of_the_workers_is_a_line(written: WrittenRun, tmp_path: Path, run: Run) -> None:
    written.start()
    written.join(workers=3)
    written.steps(140, workers=3)
    saved = written.save()
    written.event("preemption", "node ab12 goes away in 28 s: saving, then leaving", log="driver")
    written.leave("preemption")
    written.join(saved, workers=2)
    written.steps(150)
    written.event(
        "failure", "rank 1 died: starting again (1 of 100 elastic.max_failures)", log="driver", cause="infrastructure"
    )
    written.join(saved, workers=1)
    written.die()
    written.start()
    written.join(saved, workers=1)
    written.steps(141, workers=1)
    written.end("signal")
    assert shown(run, tmp_path) == [
        "attempt 2     3 workers  steps 1–140    preemption: node ab12 goes away in 28 s: saving, then leaving",
        "attempt 3     2 workers  steps 141–150  infrastructure: rank 1 died: starting again"
        " (1 of 100 elastic.max_failures)",
        "attempt 4     1 worker   no step        its driver ended without a word",
        "attempt 6     1 worker   step 141       stopped",
    ]
    document = json.loads(run("status", "r", "--json", cwd=tmp_path).stdout)
    assert [(g["driver"], g["workers"], g["from_step"], g["to_step"], g["cause"]) for g in document["history"]] == [
        (1, 3, 0, 140, "preemption"), (1, 2, 140, 150, "infrastructure"), (1, 1, 140, None, "driver"),
        (5, 1, 140, 141, "stop"),
    ]  # fmt: skip
    assert "history" not in json.loads(run("status", "--json", cwd=tmp_path).stdout)["runs"][0]


def test_time_is_shown_by_what_it_went_into_and_why(written: WrittenRun, tmp_path: Path, run: Run) -> None:
    written.start()
    written.join(startup_s=10)
    written.steps(100, data_s=0.1, step_s=0.9)
    saved = written.save(stall_s=0.5)
    written.event("preemption", "node ab12 goes away in 28 s: saving, then leaving", log="driver")
    written.leave("preemption", after_s=0.5)
    written.wait(1)
    written.event("waiting", "waiting for machines: no worker fits, elastic.min_workers is 1", log="driver")
    written.wait(29)
    written.join(saved, startup_s=9)
    written.steps(110, data_s=0.1, step_s=0.9)
    written.event("failure", "rank 1 died", log="driver", cause="infrastructure")
    written.wait(5)
    written.join(saved, startup_s=5)
    written.steps(150, data_s=0.1, step_s=0.9)
    written.end("done", after_s=2)
    lines = shown(run, tmp_path, "--time")
    assert lines[3:] == [
        "time         3m42s, goodput 69.9%",
        "  step       2m15s  60.8%",
        "  data        15 s   6.8%",
        "  checkpoint 0.5 s   0.2%",
        "  replayed    10 s   4.5%  infrastructure 10 s",
        "  init        10 s   4.5%",
        "  recovery    20 s   9.0%  preemption 10 s, infrastructure 10 s",
        "  waiting     29 s  13.1%  preemption 29 s",
        "  other      2.5 s   1.1%",
    ]
    document = json.loads(run("status", "r", "--time", "--json", cwd=tmp_path).stdout)
    assert document["time"]["seconds"]["step"] == pytest.approx(135)
    refused = run("status", "--time", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        2,
        "error[status.time] --time is of one run, and not with --watch",
    )


def test_a_long_history_is_cut(written: WrittenRun, tmp_path: Path, run: Run) -> None:
    written.start()
    for _ in range(12):
        written.join()
        written.wait(10)
    written.end("signal")
    lines = shown(run, tmp_path)
    assert len(lines) == 11
    assert lines[0].strip() == "2 earlier ones: --json shows them"
    assert lines[1].split() == ["attempt", "4", "2", "workers", "no", "step", "it", "ended", "without", "a", "word"]


def test_a_run_that_waits_for_machines_says_for_which(written: WrittenRun, tmp_path: Path, run: Run) -> None:
    reason = "waiting for machines: 1 worker fits, elastic.min_workers is 2"
    written.start(alive=True)
    written.event("waiting", reason, log="driver")
    written.wait(5)
    lines = run("status", "r", cwd=tmp_path).stdout.splitlines()
    assert "state        waiting for machines" in lines
    assert f"detail       {reason}" in lines
    written.join()
    lines = run("status", "r", cwd=tmp_path).stdout.splitlines()
    assert "state        running" in lines
    assert not any(line.startswith("detail") for line in lines)
