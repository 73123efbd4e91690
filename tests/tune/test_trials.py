"""Legs of trials in one process, one after the other: what they leave behind, and what they say when they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pliant.tune.trial import LegSpec, Outcome, run_leg, steps_of
from tests.command import ROOT
from tests.train.pipelines.masked import ROWS, table
from tests.tune.legs import LENGTH, leg

pytestmark = pytest.mark.slow
MANY = 50


def run(spec: LegSpec, answers: list[bool] | None = None) -> tuple[Outcome, list[tuple[int, dict[str, float]]]]:
    """The outcome of a leg and what it reported; ``answers`` to its reports, yes to the rest."""
    told: list[tuple[int, dict[str, float]]] = []
    left = list(answers or [])

    def ask(samples: int, values: Any, seconds: float) -> bool:
        told.append((samples, dict(values)))
        assert seconds > 0
        return left.pop(0) if left else True

    return run_leg(spec, ask, lambda notes: 0), told


def test_a_trial_reports_at_its_milestones_and_is_done(dataset: str, tmp_path: Path) -> None:
    outcome, told = run(leg(dataset, tmp_path, milestones=(64, 150, LENGTH)))
    assert outcome == Outcome("done")
    assert [samples for samples, _ in told] == [64, 160, LENGTH]
    assert all(set(values) == {"loss", "accuracy", "threes"} for _, values in told)


def test_told_to_leave_and_begun_again_it_goes_on_where_it_was(dataset: str, tmp_path: Path) -> None:
    _, whole = run(leg(dataset, tmp_path / "whole", milestones=(64, 128, LENGTH)))
    spec = leg(dataset, tmp_path / "twice", milestones=(64, 128, LENGTH))
    outcome, first = run(spec, [True, False])
    assert outcome == Outcome("left")
    again = leg(dataset, tmp_path / "twice", milestones=(64, 128, LENGTH), reported=128)
    outcome, rest = run(again)
    assert outcome == Outcome("done")
    assert first + rest == whole


def test_a_report_that_was_never_answered_is_made_again(dataset: str, tmp_path: Path) -> None:
    spec = leg(dataset, tmp_path, milestones=(64, LENGTH), durable=True)
    asked: list[tuple[int, dict[str, float]]] = []

    class Killed(BaseException):
        pass

    def ask(samples: int, values: Any, seconds: float) -> bool:
        asked.append((samples, dict(values)))
        raise Killed

    with pytest.raises(Killed):
        run_leg(spec, ask, lambda notes: 0)
    outcome, told = run(spec)
    assert outcome == Outcome("done")
    assert told[0] == asked[0]


def test_a_wish_to_stop_is_a_loss_that_keeps_its_place(dataset: str, tmp_path: Path) -> None:
    from pliant.observe.board import STOP

    outcome = run_leg(leg(dataset, tmp_path), lambda *_: True, lambda notes: STOP)
    assert (outcome.how, outcome.cause) in (("lost", "stopped"), ("done", None))


def test_a_loss_that_is_no_number_diverges(dataset: str, tmp_path: Path) -> None:
    outcome, _ = run(leg(dataset, tmp_path, settings={"optim.lr": 1e30, "train.clip_norm": None}))
    assert outcome.how == "diverged"
    assert outcome.text


def test_an_error_of_the_pipeline_has_a_signature_and_the_users_frames(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAISE_FOR", " ".join(map(str, table(ROWS, 1)["tokens"][0].as_py())))
    first, _ = run(leg(dataset, tmp_path / "a", pipeline="failing"))
    second, _ = run(leg(dataset, tmp_path / "b", pipeline="failing"))
    assert (first.how, first.cause) == ("lost", "user")
    assert "failing.py" in first.text
    assert first.signature == second.signature != ""


def test_steps_from_samples() -> None:
    assert steps_of(100, 32, None) == 4
    assert steps_of(100, 64, {"checkpoint": "step-00000002.a000001", "samples": 64}) == 3


@pytest.mark.timeout(300)
def test_many_trials_in_one_process_leave_nothing_behind(dataset: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.tune.many_legs", dataset, str(tmp_path), str(MANY)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    after = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(after) == MANY
    early, late = after[4], after[-1]
    assert late["threads"] == early["threads"]
    assert late["files"] == early["files"]
    assert late["random"] == after[0]["random"]
    assert {one["reported"] for one in after} == {after[0]["reported"]}, "each trial is the same"
    assert late["bytes"] - early["bytes"] < 30 * 2**20
    assert not late["process_group"]
