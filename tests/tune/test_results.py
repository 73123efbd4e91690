"""A sweep that is read: the same as the one that was driven, from its log alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pliant
from pliant.errors import DamageError, UsageError
from pliant.storage.record import RunRecord
from pliant.storage.settings import RunSettings, StorageSettings
from pliant.storage.store import Store
from pliant.tune.recorded import recorded_search
from pliant.tune.results import earlier_points, read_results
from pliant.tune.settings import SweepSettings
from pliant.tune.simulate import Fault
from tests.command import ROOT
from tests.tune.recording import ASHA, CONTENT, PBT, RecordedSweep, story


@pytest.fixture
def asha(tmp_path: Path) -> RecordedSweep:
    sweep = RecordedSweep(tmp_path)
    sweep.drive()
    return sweep


def test_it_says_of_each_trial_how_it_stands(asha: RecordedSweep) -> None:
    sweep = pliant.Sweep.open(asha.store.uri)
    facts = sweep.status()
    assert (facts["sweep"], facts["state"], facts["metric"], facts["mode"]) == ("asha", "done", "accuracy", "max")
    trials = facts["trials"]
    assert [trial["trial"] for trial in trials] == [f"t{number:04d}" for number in range(len(trials))]
    assert sum(facts["counts"].values()) == len(trials) == facts["planned"] == 10, "one diverged, and was replaced"
    diverged = next(trial for trial in trials if trial["status"] == "diverged")
    assert (diverged["value"], diverged["best"], diverged["samples"]) == (None, None, 100)
    full = [trial for trial in trials if trial["status"] == "completed"]
    assert {trial["samples"] for trial in full} == {900}
    assert facts["best"]["value"] == max(trial["best"] for trial in trials if trial["best"] is not None)
    assert facts["decisions"] == sum(entry["kind"] == "decision" for entry in sweep.decisions())
    assert facts["worker_hours"] == pytest.approx(sum(trial["worker_hours"] for trial in trials))
    assert facts["cost"] is None
    assert sweep.trials() == trials
    assert sweep.best() == facts["best"]
    assert list(sweep.metrics()) == list(sweep.decisions())


def test_an_interrupted_sweep_reads_as_far_as_its_log_goes(tmp_path: Path) -> None:
    sweep = RecordedSweep(tmp_path, settings={**ASHA, "budget": {"price_per_worker_hour": 36.0}})
    sweep.drive(entries=12)
    found = pliant.Sweep.open(sweep.store.uri)
    first = found.status()
    assert first["state"] == "died, resumable"
    assert [trial["status"] for trial in first["trials"]] == ["paused", "waiting", "paused"]
    assert first["cost"] == pytest.approx(36 * first["worker_hours"]) == pytest.approx(0.03)
    sweep.drive(entries=10, alive=True)
    assert found.status()["state"] == "running"
    sweep.drive()
    whole = RecordedSweep(tmp_path / "whole")
    whole.drive()
    mine, undisturbed = found.status(), pliant.Sweep.open(whole.store.uri).status()
    assert mine["attempts"] == 3
    for facts in (mine, undisturbed):
        for trial in facts["trials"]:
            del trial["run"], trial["worker_hours"]
    assert mine["trials"] == undisturbed["trials"]


def test_clones_are_runs_of_their_own(tmp_path: Path) -> None:
    sweep = RecordedSweep(tmp_path, "pbt", PBT)
    sweep.drive()
    trials = {trial["trial"]: trial for trial in pliant.Sweep.open(sweep.store.uri).trials()}
    clones = {name for name, trial in trials.items() if trial["generation"]}
    assert clones
    for name in clones:
        assert trials[name]["run"].endswith(f"/pbt/trials/{name}.g{trials[name]['generation']}")
    screen = read_results(sweep.record).screen()
    assert (screen.at, {row.at for row in screen.rows}) == ("generation", {"3/3"})


def test_losses_and_failures_are_shown(tmp_path: Path) -> None:
    def faults(leg: Any, samples: int) -> Fault | None:
        if leg.trial == "t0001" and leg.leg == 0:
            return Fault("preemption")
        return Fault("user", signature="ValueError") if leg.trial == "t0002" else None

    sweep = RecordedSweep(tmp_path, faults=faults)
    sweep.drive()
    first, second = (pliant.Sweep.open(sweep.store.uri).trials()[number] for number in (1, 2))
    assert (first["losses"], first["status"] in ("completed", "stopped")) == (1, True)
    assert (second["status"], second["why"]) == ("failed", "user before 100 samples")


def test_a_budget_that_is_used_up_is_told(tmp_path: Path) -> None:
    sweep = RecordedSweep(tmp_path, settings={**ASHA, "slots": 2, "budget": {"worker_hours": 0.001}})
    sweep.drive("limit")
    facts = pliant.Sweep.open(sweep.store.uri).status()
    assert facts["state"] == "stopped (limit)"
    assert facts["detail"].startswith("sweep.budget.worker_hours is used up: 0.00")
    assert facts["counts"] == {"limit": 3, "stopped": 1}


def test_the_best_trial_can_be_trained_again(asha: RecordedSweep) -> None:
    found = pliant.Sweep.open(asha.store.uri)
    best = found.best()
    assert best is not None
    assert (best["settings"], best["command"]) == (None, None), "its run has not been written"
    assert best["yaml"] == "optim:\n  lr: 0.0152218\ntrain:\n  global_batch: 16"
    chosen = {"data.lanes": 8, "optim.lr": 0.015, "schedule.unit": "samples", "run.storage": "x"}
    asha.trial_run(best["trial"], chosen=chosen, rest="seed: 0\n")
    best = found.best()
    assert best is not None
    assert best["settings"] == {"data.lanes": 8, "optim.lr": 0.015, "schedule.unit": "samples"}, (
        "what the sweep derived too: a run alone would come to other lanes, and count steps"
    )
    pipeline = asha.record.identity["pipeline"]
    assert best["command"] == f"pliant train {pipeline} data.lanes=8 optim.lr=0.015 schedule.unit=samples"
    assert found.trial(best["trial"]).state() == "done"


def test_what_was_recorded_of_the_search_is_read_again(asha: RecordedSweep) -> None:
    found = recorded_search(asha.record)
    assert found is not None
    assert (found.settings, found.content) == (asha.search.settings, CONTENT)
    asha.store.put("attempts/a000001/sweep.yaml", b"space: {}\n")
    with pytest.raises(DamageError, match="does not hold the sweep's settings"):
        recorded_search(asha.record)


def test_a_later_sweep_starts_from_the_best_points(tmp_path: Path) -> None:
    RecordedSweep(tmp_path).write(story())
    storage = RunSettings(storage=f"{tmp_path}/runs")

    def points(wanted: str | None) -> list[Any]:
        searcher = {"kind": "tpe", "warm_start": wanted}
        return earlier_points(SweepSettings.model_validate({"searcher": searcher}), storage)

    assert points(None) == []
    assert [(params["optim.lr"], value) for params, value in points("asha")] == [
        (0.1, 0.85), (0.0002, 0.7), (0.9, None), (0.0123456, 0.971227), (0.05, None),
    ]  # fmt: skip
    assert points(f"{tmp_path}/runs/asha") == points("asha")
    RunRecord.create(Store(f"{tmp_path}/runs/run", StorageSettings()), {"name": "run", "pipeline": "/a.py"})
    with pytest.raises(UsageError, match=r"sweep\.searcher\.warm_start is 'run', which is a run"):
        points("run")


def test_a_damaged_log_is_refused(asha: RecordedSweep) -> None:
    key = asha.store.list("logs/decisions")[0].key
    data = asha.store.get(key)
    asha.store.put(key, data.replace(b'"samples":300', b'"samples":301', 1))
    with pytest.raises(DamageError) as caught:
        pliant.Sweep.open(asha.store.uri).status()
    assert caught.value.code == "sweep.log-damaged"


def test_runs_and_sweeps_are_not_taken_for_each_other(asha: RecordedSweep, tmp_path: Path) -> None:
    run = RunRecord.create(Store(f"{tmp_path}/runs/first", StorageSettings()), {"name": "first", "pipeline": "/a.py"})
    with pytest.raises(UsageError, match="this is a sweep, not a run"):
        pliant.Run.open(asha.store.uri)
    with pytest.raises(UsageError, match="this is a run, not a sweep"):
        pliant.Sweep.open(run.store.uri)
    storage = str(tmp_path / "runs")
    assert [found.name for found in pliant.runs_in(storage)] == ["first"]
    assert [found.name for found in pliant.sweeps_in(storage)] == ["asha"]


def test_reading_needs_neither_torch_nor_ray(asha: RecordedSweep) -> None:
    heavy = "{'torch', 'ray', 'mlflow', 'optuna', 'scipy', 'pyarrow'}"
    code = (
        f"import sys, pliant; pliant.Sweep.open({asha.store.uri!r}).status(); print(sorted({heavy} & set(sys.modules)))"
    )
    environment = {"PYTHONPATH": str(ROOT / "platform")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
