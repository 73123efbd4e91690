"""How sweeps end, and what they go through before: stops, killed processes, errors, trials that nothing can hold."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pliant.storage.layout import RUN
from pliant.storage.record import RunRecord
from pliant.storage.store import Store
from tests.e2e.commands import Command, last_step, store_of
from tests.e2e.sweeping import FORWARDS, SWEEP, begin, decided, legs, log_of, space_file, status
from tests.train.pipelines.masked import ROWS, table
from tests.train.runs import PIPELINE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FAILING = PIPELINE.replace("masked.py", "failing.py")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, dataset: str) -> Store:
    """A sweep that nothing interrupted, in one slot."""
    folder = tmp_path_factory.mktemp("undisturbed")
    output = begin(folder, space_file(folder, dataset)).finish()
    assert "done: all 6 trials have ended" in output
    return store_of(str(folder / "runs"), "s")


def trial_of(store: Store, trial: str) -> Store:
    return store.child(f"trials/{trial}")


def begun(sweep: Store) -> int:
    """How many times the work of a trial was begun."""
    runs = [sweep.child(f"trials/{run}") for run in sweep.child("trials").folders()]
    attempts = [a for run in runs if run.head(RUN) is not None for a in RunRecord.open(run).attempts()]
    return sum(attempt.claim.kind == "group" for attempt in attempts)


@pytest.mark.long
def test_stopped_in_three_ways_and_a_process_killed_it_decides_as_if_nothing_had_happened(
    tmp_path: Path, dataset: str, undisturbed: Store
) -> None:
    store, go = store_of(str(tmp_path / "runs"), "s"), tmp_path / "go"
    space = space_file(tmp_path, dataset)
    held: Any = {"hold_before_forward": FORWARDS + 1, "hold_until": go}
    sweep = begin(tmp_path, space, **held)
    sweep.wait_until(lambda: last_step(trial_of(store, "t0000")) == 1)
    sweep.process.send_signal(signal.SIGINT)
    sweep.wait_for_output("stopping after a checkpoint: SIGINT")
    go.touch()
    assert "resume with: pliant resume s" in sweep.finish(130)
    run = json.loads(Command("status", "runs/s/trials/t0000", "--json", cwd=tmp_path).finish())
    assert run["step"] == run["checkpoint"] >= 1

    go.unlink()
    before = begun(store)
    sweep = Command("resume", "s", cwd=tmp_path, **held)
    sweep.wait_until(lambda: begun(store) > before)
    (leg,) = legs(sweep)
    leg.kill()
    sweep.wait_until(lambda: log_of(store, "loss")[-1:] != [] and log_of(store, "loss")[-1]["cause"] != "stopped")
    Command("stop", "s", "--no-wait", cwd=tmp_path).finish()
    sweep.wait_for_output("stopping after a checkpoint: pliant stop")
    go.touch()
    assert "Traceback" not in sweep.finish(75)
    (killed,) = [loss for loss in log_of(store, "loss") if loss["cause"] != "stopped"]
    assert killed["cause"] == "infrastructure"

    sweep = Command("resume", "s", cwd=tmp_path)
    reported = len(log_of(store, "report"))
    sweep.wait_until(lambda: len(log_of(store, "report")) > reported)
    sweep.process.send_signal(signal.SIGTERM)
    sweep.finish(75)

    Command("resume", "s", cwd=tmp_path).finish()
    assert decided(store) == decided(undisturbed)


def test_a_loss_that_is_no_number_and_more_trials_than_places(tmp_path: Path, dataset: str) -> None:
    sweep = begin(
        tmp_path,
        space_file(
            tmp_path,
            dataset,
            sweep={"trials": 4, "searcher": {"kind": "grid"}},
            space={"optim.lr": [0.01, 1e30, 0.001, 0.1]},
            settings={
                "train.epochs": 1,
                "train.clip_norm": None,
                "elastic.resources_per_worker": {"CPU": (os.cpu_count() or 1) / 2},
            },
        ),
    )
    output = sweep.finish()
    found = status(tmp_path)
    ends = {trial["trial"]: trial["status"] for trial in found["trials"]}
    assert ends == {"t0000": "completed", "t0001": "diverged", "t0002": "completed", "t0003": "completed"}
    assert found["best"]["trial"] != "t0001"
    assert "timed out" not in output
    assert "Traceback" not in output
    assert not log_of(store_of(str(tmp_path / "runs"), "s"), "loss")


def test_an_error_of_the_pipeline_that_each_trial_meets_ends_the_sweep_with_it(
    tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAISE_FOR", " ".join(map(str, table(ROWS, 1)["tokens"][0].as_py())))
    output = begin(tmp_path, space_file(tmp_path, dataset), pipeline=FAILING).finish(1)
    assert "3 trials in a row ended with one error" in output
    assert output.count("failing.py") == output.count("in loss") == 1, output
    assert "raise ValueError" in output
    assert [end["how"] for end in log_of(store_of(str(tmp_path / "runs"), "s"), "end")] == ["failed"] * 3


def test_a_trial_that_nothing_can_hold_is_refused_with_both_numbers(
    tmp_path: Path, dataset: str, ray_cluster: None
) -> None:
    import ray

    def refused(name: str, cpus: int, **settings: Any) -> str:
        given = {"elastic.resources_per_worker": {"CPU": cpus}, **settings}
        sweep = {name: value for name, value in SWEEP.items() if name != "slots"}
        return begin(tmp_path, space_file(tmp_path, dataset, sweep=sweep, settings=given), name=name).finish(3)

    cpus = (os.cpu_count() or 1) + 1
    output = refused("here", cpus)
    assert f"error[sweep.too-large] a trial needs {cpus} CPUs" in output
    assert f"this machine has {cpus - 1}" in output
    address = ray.get_runtime_context().gcs_address
    output = refused("joined", 5, **{"cluster.address": address})
    assert "error[cluster.too-small] the cluster can hold 0 workers of {'CPU': 5" in output
    assert "elastic.min_workers is 1" in output


@pytest.mark.long
def test_a_trial_of_two_workers_goes_on_after_one_was_killed(tmp_path: Path, dataset: str) -> None:
    store, go = store_of(str(tmp_path / "runs"), "s"), tmp_path / "go"
    space = space_file(
        tmp_path,
        dataset,
        sweep={"trials": 1},
        settings={"elastic.min_workers": 2, "elastic.max_workers": 2, "train.epochs": 2},
    )
    sweep = begin(tmp_path, space, hold_before_forward=3 * FORWARDS // 2 + 1, hold_until=go)
    sweep.wait_until(lambda: last_step(trial_of(store, "t0000")) == 3)
    workers = sweep.processes("ray::RayTrainWorker")
    assert len(workers) == 2
    workers[0].kill()
    go.touch()
    assert "done: all 1 trials have ended" in sweep.finish()
    (loss,) = log_of(store, "loss")
    assert (loss["trial"], loss["cause"]) == ("t0000", "infrastructure")
    (end,) = log_of(store, "end")
    assert (end["trial"], end["how"]) == ("t0000", "completed")


@pytest.mark.long
def test_a_node_that_says_goodbye_costs_a_trial_nothing(tmp_path: Path, dataset: str) -> None:
    store, go = store_of(str(tmp_path / "runs"), "s"), tmp_path / "go"
    # So long that a trial cannot be done before its process has heard of the notice, however busy the machine is.
    settings = {"cluster.nodes": 2, "train.epochs": 40}
    space = space_file(tmp_path, dataset, sweep={"trials": 3}, settings=settings)
    sweep = begin(tmp_path, space, hold_before_forward=3 * FORWARDS + 1, hold_until=go)
    sweep.wait_until(lambda: all(last_step(trial_of(store, trial)) == 3 for trial in ("t0000", "t0001")))
    notice = Command("chaos", "s", "--once", "drain", "--deadline", "60s", cwd=tmp_path)
    notice.wait_for_output("drain")
    go.touch()
    sweep.finish()
    notice.kill()
    (loss,) = log_of(store, "loss")
    assert loss["cause"] == "preemption"
    found = status(tmp_path)
    assert {trial["status"] for trial in found["trials"]} == {"completed"}
    kinds = [(entry["kind"], entry.get("trial")) for entry in log_of(store)]
    assert kinds.index(("loss", loss["trial"])) < kinds.index(("report", loss["trial"]))


def test_a_sweep_goes_on_with_more_trials_in_a_narrower_space_and_another_begins_with_its_best(
    tmp_path: Path, dataset: str, undisturbed: Store
) -> None:
    before = decided(undisturbed)
    shutil.copytree(undisturbed.uri, tmp_path / "runs" / "s")
    store = store_of(str(tmp_path / "runs"), "s")
    best = status(tmp_path)["best"]
    narrower = space_file(
        tmp_path,
        dataset,
        space={
            "schedule": {"kind": ["cosine"], "peak": {"log": [0.01, 0.02]}},
            "train.global_batch": {"choice": [16, 32, 64], "lr": "sqrt"},
        },
    )
    output = Command("resume", "runs/s", "--space", narrower, "sweep.trials=8", cwd=tmp_path).finish()
    assert "done: all 8 trials have ended" in output
    after = decided(store)
    assert after[: len(before)] == before
    more = [entry["params"] for entry in after[len(before) :] if entry["kind"] == "suggestion"]
    assert len(more) == 2
    assert all(0.01 <= params["schedule.peak"] <= 0.02 for params in more)

    warm = {**SWEEP, "trials": 2, "searcher": {"kind": "random", "warm_start": str(undisturbed.uri)}}
    begin(tmp_path, space_file(tmp_path, dataset, sweep=warm), name="warm").finish()
    first, second = log_of(store_of(str(tmp_path / "runs"), "warm"), "suggestion")
    assert first["params"] == best["params"] != second["params"]
    assert first["note"]


@pytest.mark.long
def test_legs_and_drivers_killed_in_turn_it_decides_as_if_nothing_had_happened(
    tmp_path: Path, dataset: str, undisturbed: Store
) -> None:
    store = store_of(str(tmp_path / "runs"), "s")
    sweep = begin(tmp_path, space_file(tmp_path, dataset, sweep={**SWEEP, "max_failures": 1000}))
    kills = 0
    while grows(sweep, store, by=3):
        kills += 1
        if kills % 2:
            for leg in legs(sweep):
                leg.kill()
        else:
            sweep.kill()
            sweep = Command("resume", "s", cwd=tmp_path)
    sweep.finish()
    assert kills > 4
    assert any(entry["cause"] == "infrastructure" for entry in log_of(store, "loss"))
    assert decided(store) == decided(undisturbed)


def grows(sweep: Command, store: Store, *, by: int) -> bool:
    """Returns when the log has so many entries more, losses apart; False when the command ends before."""
    before = len(decided(store))
    while sweep.process.poll() is None:
        if len(decided(store)) >= before + by:
            return True
        time.sleep(0.2)
    return False
