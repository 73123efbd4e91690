"""Commands that look at sweeps and stop them, on records as drivers write them: no training, no cluster."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pliant.storage.layout import CheckpointRef
from pliant.tune.types import End, Suggestion
from tests.cli.conftest import Run
from tests.command import ROOT
from tests.s3 import S3Server
from tests.tune.recording import ASHA, PBT, RecordedSweep, story


@pytest.fixture
def asha(tmp_path: Path) -> RecordedSweep:
    sweep = RecordedSweep(tmp_path)
    sweep.write(story())
    return sweep


def test_status_shows_the_best_configuration_and_every_trial(asha: RecordedSweep, tmp_path: Path, run: Run) -> None:
    asha.trial_run("t0003", chosen={"optim.lr": 0.0123456, "train.global_batch": 16})
    shown = run("status", "asha", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    pipeline, uri = asha.record.identity["pipeline"], asha.store.uri
    assert shown.stdout.splitlines() == [
        "sweep        asha",
        "state        stopped (signal)",
        "search       random, asha: accuracy (max)",
        "trials       5 of 10: 1 completed, 1 diverged, 1 paused, 1 stopped, 1 waiting",
        "decisions    7",
        "worker-hours 0.00625",
        "starts       1",
        f"pipeline     {pipeline}",
        f"uri          {uri}",
        "best         accuracy 0.971227: trial t0003 after 300 rows",
        "  optim:",
        "    lr: 0.0123456",
        "  train:",
        "    global_batch: 16",
        f"train it     pliant train {pipeline} optim.lr=0.0123456 train.global_batch=16",
        "",
        "  trial  status     rung  samples  accuracy      best  workers  why",
        "  t0000  completed  end       900      0.84      0.85           full length, 900 samples",
        "  t0001  stopped    1/2       100       0.7       0.7           rung 1 of 2: 2nd of 2",
        "  t0002  diverged   1/2       100         –                     no finite value at 100 samples",
        "* t0003  paused     2/2       300  0.971227  0.971227           rung 2 of 2: 1st of 2, waits",
        "  t0004  waiting",
    ]


def test_status_of_an_interrupted_sweep_says_who_drove_it(tmp_path: Path, run: Run) -> None:
    RecordedSweep(tmp_path).write(story(), None)
    lines = run("status", "asha", cwd=tmp_path).stdout.splitlines()
    assert "state        died, resumable" in lines
    assert next(line for line in lines if line.startswith("owner ")).endswith("(attempt 1)")
    assert any(line.startswith("last sign ") for line in lines)


def test_a_trial_runs_where_somebody_trains_it(tmp_path: Path, run: Run) -> None:
    sweep = RecordedSweep(tmp_path)
    sweep.write(story(), None, alive=True)

    def seen() -> tuple[str, str]:
        facts = json.loads(run("status", "asha", "--json", cwd=tmp_path).stdout)
        return facts["state"], facts["trials"][4]["status"]

    assert seen() == ("running", "waiting")
    trial = sweep.trial_run("t0004", chosen={"optim.lr": 0.05}, alive=True)
    assert seen() == ("running", "running")
    trial.attempt(1).stop("preemption")
    assert seen() == ("running", "waiting")


def test_sweeps_stand_beside_runs_and_trials_do_not(asha: RecordedSweep, tmp_path: Path, run: Run) -> None:
    asha.trial_run("t0000", chosen={"optim.lr": 0.1})
    broken = RecordedSweep(tmp_path, "broken")
    broken.record.store.put("attempts/a000001/claim.json", b"nonsense")
    lines = run("ls", cwd=tmp_path).stdout.splitlines()
    at = lines.index("sweeps in runs:")
    assert lines[at - 2] == "runs in runs: none"
    rows = sorted(line.split()[:3] for line in lines[at + 1 :])
    assert [row[:2] for row in rows] == [["asha", "stopped"], ["broken", "damaged"]]
    assert [line.split() for line in run("status", cwd=tmp_path).stdout.splitlines()] == [
        ["sweep", "state", "trials", "best", "metric", "decisions", "worker-hours"],
        ["asha", "stopped", "(signal)", "5/10", "0.971227", "(t0003)", "accuracy", "7", "0.0063"],
        ["broken", "damaged"],
    ]


@pytest.mark.parametrize("reference", ["asha/trials/t0000", "runs/asha/trials/t0000"])
def test_a_trial_is_a_run(reference: str, asha: RecordedSweep, tmp_path: Path, run: Run) -> None:
    asha.trial_run("t0000", chosen={"optim.lr": 0.1})
    facts = json.loads(run("status", reference, "--json", cwd=tmp_path).stdout)
    assert (facts["run"], facts["state"]) == ("asha-t0000", "done")


def test_metrics_are_the_decision_log(asha: RecordedSweep, tmp_path: Path, run: Run) -> None:
    entries = [json.loads(line) for line in run("metrics", "asha", "--json", cwd=tmp_path).stdout.splitlines()]
    assert [entry["kind"] for entry in entries[:4]] == ["settings", "suggestion", "report", "decision"]
    assert {entry["attempt"] for entry in entries} == {1}
    lines = run("metrics", "asha", cwd=tmp_path).stdout.splitlines()
    assert len(lines) == len(entries)
    assert [lines[at] for at in (0, 1, 2, 3, 8, -1)] == [
        "     1  settings of a start: 9 trials",
        "     2  t0000 begins (random): optim.lr 0.1, train.global_batch 32",
        "     3  t0000 reports 0.8 after 100 rows",
        "     4  t0000 goes on: rung 1 of 2: 1st of 1",
        "     9  t0000 ends, completed, after 900 rows",
        f"    {len(entries)}  t0004 is lost (preemption): node ab12 goes away in 28 s",
    ]


def test_a_clone_is_told_in_words(tmp_path: Path, run: Run) -> None:
    RecordedSweep(tmp_path, "pbt", PBT).drive()
    lines = run("metrics", "pbt", cwd=tmp_path).stdout.splitlines()
    assert any(
        re.search(r"t0000 clones t0003 at 300 rows, generation 1 of 3 .*: optim.lr 0.0\d+", line) for line in lines
    )
    assert any(line.endswith("waits") for line in lines)


def test_verify_says_that_decisions_follow_and_what_is_damaged(tmp_path: Path, run: Run) -> None:
    sweep = RecordedSweep(tmp_path, pipeline="digits")
    sweep.drive(entries=30)
    sweep.drive()
    trial = sweep.trial_run("t0000", chosen={"optim.lr": 0.1})
    shown = run("verify", "asha", cwd=tmp_path)
    assert shown.returncode == 0
    first, last = shown.stdout.splitlines()
    assert re.fullmatch(r"decision log: \d+ entries: each decision follows from those before it", first)
    assert last == "1 runs of trials, 0 checkpoints, none of those that count damaged"
    ref = CheckpointRef(10, 1)
    trial.store.put(ref.manifest, b"{}")
    shown = run("verify", "asha", cwd=tmp_path)
    assert shown.returncode == 4
    assert f"t0000/{ref.name}: damaged" in shown.stdout


def test_verify_without_the_pipeline_says_so(asha: RecordedSweep, tmp_path: Path, run: Run) -> None:
    shown = run("verify", "asha", cwd=tmp_path)
    assert shown.returncode == 0
    assert "whether the decisions follow cannot be seen: error[resume.no-pipeline]" in shown.stdout


def test_gc_goes_through_the_trials(asha: RecordedSweep, tmp_path: Path, run: Run) -> None:
    trial = asha.trial_run("t0000", chosen={"optim.lr": 0.1})
    ref = CheckpointRef(10, 1)
    trial.store.put(f"{ref.prefix}/shard", b"1234")
    lines = run("gc", "asha", cwd=tmp_path).stdout.splitlines()
    assert lines[0].startswith(f"t0000/{ref.name}: uncommitted, ")
    assert lines[1:] == ["to remove: 1 files, 4 B; remove them with --yes"]
    assert json.loads(run("gc", "asha", "--yes", "--json", cwd=tmp_path).stdout)["checkpoints"] == [f"t0000/{ref.name}"]
    assert trial.store.list("checkpoints") == []


def test_gc_of_a_sweep_that_is_driven_is_refused(tmp_path: Path, run: Run) -> None:
    RecordedSweep(tmp_path).write(story(), None, alive=True)
    shown = run("gc", "asha", cwd=tmp_path)
    assert shown.returncode == 2
    assert shown.stderr.startswith("error[run.owned]")
    assert "asha is being driven by pid " in shown.stderr


def test_explain_says_what_a_resume_would_do(tmp_path: Path, run: Run) -> None:
    sweep = RecordedSweep(tmp_path)
    assert run("resume", "asha", "--explain", cwd=tmp_path).stdout == (
        "a resume would begin: nothing is in its decision log\n"
    )
    sweep.write(story()[:-1], None)
    lines = run("resume", "asha", "--explain", cwd=tmp_path).stdout.splitlines()
    assert lines[0].endswith("did not say why it ended")
    assert lines[1].endswith("(attempt 1), dead")
    assert f"a resume would replay {len(story()) - 1} entries, 7 of them decisions" in lines
    assert "it would go on with t0004" in lines
    assert "the scheduler would decide on t0003" in lines
    assert "5 trials have not begun" in lines


def test_explain_of_a_sweep_that_is_done(tmp_path: Path, run: Run) -> None:
    sweep = RecordedSweep(tmp_path, settings={**ASHA, "scheduler": {"kind": "halving", "first_epochs": 1.0}})
    sweep.drive()
    assert (
        run("resume", "asha", "--explain", cwd=tmp_path)
        .stdout.splitlines()[-1]
        .startswith("nothing is left to do: more trials extend it, as sweep.trials=")
    )


@pytest.mark.parametrize(
    ("line", "code", "hint"),
    [
        (["metrics", "asha", "--eval"], "metrics.one", "its trials are runs: asha/trials/t0000"),
        (
            ["metrics", "asha/trials/t0000", "--against", "asha"],
            "run.is-sweep",
            "its trials are runs: asha/trials/t0000",
        ),
        (["status", "asha", "--time"], "status.time", "pliant status asha/trials/t0000 --time"),
        (["logs", "asha", "--rank", "3"], "logs.rank", "pliant logs asha/trials/t0000 --rank 3"),
        (["resume", "asha", "--in-process"], "resume.kind", ""),
        (["resume", "asha/trials/t0000", "--space", "x"], "resume.kind", ""),
        (["status", "asah"], "run.unknown", "did you mean asha?"),
        (["status", "asha/trials/t0099"], "record.unknown", "pliant ls"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_a_sweep_is_not(
    line: list[str], code: str, hint: str, asha: RecordedSweep, tmp_path: Path, run: Run
) -> None:
    asha.trial_run("t0000", chosen={"optim.lr": 0.1})
    shown = run(*line, cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith(f"error[{code}]")
    assert hint in shown.stderr


def test_stop_asks_the_driver_of_a_sweep(tmp_path: Path, run: Run) -> None:
    sweep = RecordedSweep(tmp_path)
    sweep.write(story(), None, alive=True)
    driver = sweep.record.attempt(1)
    requests: list[dict[str, Any]] = []

    def heard(request: dict[str, Any]) -> None:
        requests.append(request)
        driver.stop("signal")

    with driver.heartbeat(on_stop=heard):
        shown = run("stop", "asha", cwd=tmp_path)
    assert (shown.returncode, requests[0]["detail"]) == (0, "pliant stop")
    assert shown.stdout == "asha stopped (signal), 5 trials, 7 decisions\n"
    assert shown.stderr.endswith("resume with: pliant resume asha\n")
    shown = run("stop", "asha", cwd=tmp_path)
    assert shown.stdout.startswith("asha does not run: stopped (signal), ")


def test_status_is_watched_line_by_line_on_change(tmp_path: Path) -> None:
    sweep = RecordedSweep(tmp_path)
    sweep.write(story(), None, alive=True)
    command = [sys.executable, "-m", "pliant", "status", "asha", "--watch", "--every", "0.1"]
    environment = {"PYTHONPATH": str(ROOT / "platform"), "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(4)]
        sweep.record.attempt(1).stop("signal")
        last = process.communicate()[0]
    finally:
        process.kill()
        process.wait()
    assert [line.rstrip() for line in first] == [
        "t0000 completed, accuracy 0.84 after 900 rows: full length, 900 samples",
        "t0001 stopped at rung 1/2, accuracy 0.7 after 100 rows: rung 1 of 2: 2nd of 2",
        "t0002 diverged at rung 1/2, accuracy – after 100 rows: no finite value at 100 samples",
        "best so far: accuracy 0.971227, trial t0003",
    ]
    assert last == (
        "asha  5 of 10 trials: 1 paused, 1 waiting, 1 completed, 1 diverged, 1 stopped"
        "  best accuracy 0.971227 (t0003)  0.0063 worker-hours\n"
    )


def test_many_trials_are_shown_in_short(tmp_path: Path, run: Run) -> None:
    more = [
        entry
        for number in range(5, 100)
        for entry in (
            Suggestion(f"t{number:04d}", number, {"optim.lr": 0.1, "train.global_batch": 16}),
            End(f"t{number:04d}", "failed", 0, "ValueError: no"),
        )
    ]
    RecordedSweep(tmp_path).write([*story(), *more])
    lines = run("status", "asha", cwd=tmp_path).stdout.splitlines()
    table = lines[lines.index("") + 1 :]
    assert len(table) == 43
    assert [line.split()[1] for line in table[1:4]] == ["t0003", "waiting", "failed"]
    assert table[-2:] == ["  … 60 more: 1 completed, 1 diverged, 57 failed, 1 stopped", "  all of them: --json"]
    assert len(json.loads(run("status", "asha", "--json", cwd=tmp_path).stdout)["trials"]) == 100


def test_a_sweep_on_other_storage_is_found_by_its_uri(s3_server: S3Server, tmp_path: Path, run: Run) -> None:
    sweep = RecordedSweep(s3_server.uri("status"))
    sweep.write(story(), None)
    uri = sweep.store.uri
    facts = json.loads(run("status", uri, "--json", cwd=tmp_path).stdout)
    assert (facts["sweep"], len(facts["trials"])) == ("asha", 5)
    place = f"run.storage={uri.rpartition('/')[0]}"
    again = json.loads(run("status", "asha", place, "--json", cwd=tmp_path).stdout)
    assert again == {**facts, "last_sign_s": again["last_sign_s"]}
