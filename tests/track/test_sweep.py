"""What MLflow is told of a sweep, on a real SQLite store: a parent, a child for each trial, each moment once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from mlflow import MlflowClient

from pliant.storage.attempts import StopReason
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.track.mlflow import MlflowTracker
from pliant.track.settings import TrackingSettings
from pliant.track.tracker import Card, Point
from pliant.tune.tracking.delivery import SweepDelivery
from pliant.tune.tracking.outbox import connect_sweep, settle_status
from pliant.tune.types import How
from tests.track.records import runs_of
from tests.track.sweeps import DrivenSweep, curve, dead_process, family, tag


@pytest.fixture
def sweep(tmp_path: Path, uri: str) -> DrivenSweep:
    return DrivenSweep(Store(str(tmp_path / "runs" / "search"), StorageSettings()), uri)


@pytest.fixture
def population(tmp_path: Path, uri: str) -> DrivenSweep:
    return DrivenSweep(Store(str(tmp_path / "runs" / "search"), StorageSettings()), uri, kind="pbt")


def delivery(sweep: DrivenSweep, uri: str) -> SweepDelivery:
    """As another process would make it."""
    return connect_sweep(sweep.record, TrackingSettings(uri=uri), str(Path(sweep.record.store.uri).parent))


def two_trials(sweep: DrivenSweep) -> None:
    """One that is trained to its end, one that is stopped at its first report."""
    good, bad = sweep.suggest(lr=0.3), sweep.suggest(lr=0.02, batch=16)
    sweep.trials[bad].train(2)
    sweep.report(bad, 0.2)
    sweep.decide(bad, "stop", "rung 1 of 2: 2nd of 2, 1 goes on")
    sweep.end_trial(bad, "stopped", "rung 1 of 2: 2nd of 2, 1 goes on")
    sweep.trials[good].train(4)
    sweep.report(good, 0.9)
    sweep.decide(good, "continue", "rung 1 of 2: 1st of 2")
    sweep.trials[good].train(4)
    sweep.report(good, 0.8)
    sweep.end_trial(good, "completed")


def test_a_sweep_is_a_parent_and_its_trials_are_children(sweep: DrivenSweep, uri: str) -> None:
    sweep.start()
    two_trials(sweep)
    sweep.stop("done")
    for _ in range(2):  # the second time by a process that knows nothing of the first
        delivery(sweep, uri).deliver()
        parent, trials = family(uri)
        assert (parent.info.run_name, parent.info.status) == ("search", "FINISHED")
        good, bad = trials.pop("t0000"), trials.pop("t0001")
        assert trials == {}
        assert (good.info.status, bad.info.status) == ("FINISHED", "FINISHED")
        assert (good.data.tags["pliant.state"], bad.data.tags["pliant.state"]) == ("completed", "stopped")
        assert bad.data.tags["pliant.why"] == "rung 1 of 2: 2nd of 2, 1 goes on"
        assert good.data.params == {"optim.lr": "0.3", "schedule.kind": "wsd"}
        assert bad.data.params == {"optim.lr": "0.02", "schedule.kind": "wsd", "train.global_batch": "16"}
        assert parent.data.params.items() >= {"optim.lr": "0.1", "sweep.trials": "4", "train.global_batch": "8"}.items()
        assert parent.data.params["space.optim.lr.log"] == "[0.01, 1.0]"
        assert curve(uri, good, "loss") == [(s, 1 / s) for s in range(8, 72, 8)], "the axis is samples"
        assert curve(uri, bad, "loss") == [(16, 1 / 16), (32, 1 / 32)]
        assert curve(uri, bad, "global_batch") == [(16, 16), (32, 16)]
        assert curve(uri, good, "lr")[0] == (8, 0.3)
        assert curve(uri, good, "eval/accuracy") == [(32, 0.032), (64, 0.064)]
        assert curve(uri, good, "best/accuracy") == [(32, 0.9), (64, 0.9)]
        assert "generation" not in good.data.metrics
        assert [best for _, best in curve(uri, parent, "best/accuracy")] == [0.2, 0.2, 0.9, 0.9, 0.9]
        assert parent.data.metrics["samples"] == 96
        assert parent.data.metrics["worker_hours"] == pytest.approx(0.03)
        assert tag(parent, "pliant.trials") == {"completed": 1, "stopped": 1}
        assert tag(parent, "pliant.best") == {"trial": "t0000", "generation": 0, "samples": 32, "value": 0.9}
        assert parent.data.tags["pliant.best.run_id"] == good.info.run_id
    client = MlflowClient(tracking_uri=uri)
    assert {"attempts", "best.yaml", "config.resolved.yaml", "decisions.jsonl"} == {
        info.path for info in client.list_artifacts(parent.info.run_id)
    }
    log = Path(client.download_artifacts(parent.info.run_id, "decisions.jsonl")).read_text().splitlines()
    assert len(log) == parent.data.metrics["trials_ended"] + 8
    assert "lr: 0.3" in Path(client.download_artifacts(parent.info.run_id, "best.yaml")).read_text()


def test_while_it_goes_on_only_what_a_checkpoint_covers_is_told(sweep: DrivenSweep, uri: str) -> None:
    sweep.start()
    trial = sweep.suggest(lr=0.3)
    sweep.trials[trial].train(2)
    sweep.trials[trial].train(2, commit=False)
    mlflow = delivery(sweep, uri)
    mlflow.deliver()
    parent, trials = family(uri)
    assert (parent.info.status, trials[trial].info.status) == ("RUNNING", "RUNNING")
    assert [step for step, _ in curve(uri, trials[trial], "loss")] == [8, 16]
    sweep.lose(trial, "node b goes away in 30 s")
    sweep.trials[trial].train(3)
    sweep.report(trial, 0.5)
    sweep.decide(trial, "pause", "rung 1 of 2: waits for the others")
    sweep.trials[trial].end()
    mlflow.deliver()
    _, trials = family(uri)
    assert [step for step, _ in curve(uri, trials[trial], "loss")] == [8, 16, 24, 32, 40]
    assert trials[trial].data.tags["pliant.state"] == "paused"
    assert trials[trial].data.tags["pliant.losses"] == "1"


def test_after_a_kill_and_a_resume_each_trial_is_the_child_that_it_was(sweep: DrivenSweep, uri: str) -> None:
    sweep.start(dead=True)
    ended, open_ = sweep.suggest(lr=0.3), sweep.suggest(lr=0.2)
    sweep.trials[ended].train(2)
    sweep.report(ended, 0.5)
    sweep.end_trial(ended, "failed", "ValueError: no")
    sweep.trials[open_].train(2)
    sweep.report(open_, 0.6)
    sweep.trials[open_].train(1, commit=False)
    delivery(sweep, uri).deliver()
    assert settle_status(sweep.record) is None
    parent, before = family(uri)
    states = {name: (run.info.status, run.data.tags["pliant.state"]) for name, run in before.items()}
    assert parent.info.status == "KILLED"
    assert states == {ended: ("FAILED", "failed"), open_: ("KILLED", "died, resumable")}
    assert before[ended].data.tags["pliant.why"] == "ValueError: no"

    sweep.start()
    sweep.trials[open_].leg()
    mlflow = delivery(sweep, uri)
    mlflow.deliver()
    parent, after = family(uri)
    assert (parent.info.status, after[open_].info.status, after[ended].info.status) == ("RUNNING", "RUNNING", "FAILED")
    sweep.trials[open_].train(2)
    sweep.report(open_, 0.7)
    sweep.end_trial(open_, "completed")
    sweep.stop("done")
    mlflow.deliver()
    parent, after = family(uri)
    assert {name: run.info.run_id for name, run in after.items()} == {n: run.info.run_id for n, run in before.items()}
    assert (parent.info.status, after[open_].info.status) == ("FINISHED", "FINISHED")
    assert curve(uri, after[open_], "loss") == [(s, 1 / s) for s in (8, 16, 24, 32)]
    assert "pliant.steps_that_differ" not in after[open_].data.tags


def test_a_driver_that_was_killed_is_told_of_without_its_trials_being_read(
    sweep: DrivenSweep, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep.start()
    trial = sweep.suggest(lr=0.3)
    delivery(sweep, uri).deliver()
    sweep.trials[trial].train(2)
    sweep.driver = sweep.record.claim_driver(dead_process())
    sweep.driver.write("config.yaml", sweep.base.encode())
    assert settle_status(sweep.record) is None
    parent, trials = family(uri)
    assert (parent.info.status, trials[trial].info.status) == ("KILLED", "KILLED")
    assert curve(uri, trials[trial], "loss") == [], "that is for the next resume, or for sync"
    assert settle_status(sweep.record) is None


def test_a_clone_is_the_same_child_and_may_go_back(population: DrivenSweep, uri: str) -> None:
    sweep = population
    sweep.start()
    good, bad = sweep.suggest(lr=0.3), sweep.suggest(lr=0.02)
    sweep.trials[good].train(2)
    sweep.report(good, 0.9)
    sweep.trials[bad].train(4)
    sweep.report(bad, 0.1)
    mlflow = delivery(sweep, uri)
    mlflow.deliver()
    sweep.clone(bad, good, lr=0.36, batch=16)  # from 32 samples back to 16
    sweep.trials[bad].train(2)
    sweep.report(bad, 0.95, generation=1)
    mlflow.deliver()
    sweep.end_trial(bad, "completed")
    sweep.end_trial(good, "completed")
    sweep.stop("done")
    for _ in range(2):
        delivery(sweep, uri).deliver()
        parent, trials = family(uri)
        child = trials[bad]
        told = [(step, int(g)) for step, g in curve(uri, child, "generation")]
        assert told == [(8, 0), (16, 0), (24, 0), (32, 0), (32, 1), (48, 1)]
        assert [step for step, _ in curve(uri, child, "loss")] == [8, 16, 24, 32, 32, 48]
        assert curve(uri, child, "params/optim.lr") == [(8, 0.02), (32, 0.36)]
        assert curve(uri, child, "global_batch")[-1] == (48, 16)
        assert curve(uri, child, "best/accuracy") == [(32, 0.1), (48, 0.95)]
        assert child.data.params["optim.lr"] == "0.02", "what it began with"
        assert tag(child, "pliant.params")["optim.lr"] == 0.36
        assert child.data.tags.items() >= {"pliant.donor": good, "pliant.donor_samples": "16"}.items()
        assert [(one["run"], one["until"]) for one in tag(child, "pliant.lineage")] == [
            ("t0000", 16),
            ("t0001.g1", None),
        ]
        assert child.data.tags["pliant.run"].endswith("/trials/t0001.g1")
        assert "pliant.steps_that_differ" not in child.data.tags
        assert tag(parent, "pliant.best") == {"trial": bad, "generation": 1, "samples": 48, "value": 0.95}


ENDINGS: list[tuple[StopReason, str, str, str]] = [
    ("done", "FINISHED", "KILLED", "done"),
    ("limit", "FINISHED", "KILLED", "stopped (limit)"),
    ("signal", "KILLED", "KILLED", "stopped (signal)"),
    ("user", "FAILED", "KILLED", "failed (pipeline or settings)"),
    ("infrastructure", "FAILED", "KILLED", "stopped (infrastructure)"),
]


@pytest.mark.parametrize(("reason", "status", "open_status", "state"), ENDINGS)
def test_the_status_of_every_ending_of_a_sweep_and_of_the_resume_after_it(
    sweep: DrivenSweep, uri: str, reason: StopReason, status: str, open_status: str, state: str
) -> None:
    sweep.start()
    trial = sweep.suggest(lr=0.3)
    sweep.trials[trial].train(1)
    sweep.trials[trial].end()
    sweep.stop(reason)
    delivery(sweep, uri).deliver()
    parent, trials = family(uri)
    assert (parent.info.status, trials[trial].info.status) == (status, open_status)
    assert trials[trial].data.tags["pliant.state"] == state
    sweep.start()
    delivery(sweep, uri).deliver()
    parent, trials = family(uri)
    assert (parent.info.status, trials[trial].info.status) == ("RUNNING", "RUNNING")


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("completed", "FINISHED"),
        ("stopped", "FINISHED"),
        ("limit", "KILLED"),
        ("failed", "FAILED"),
        ("diverged", "FAILED"),
        ("out-of-memory", "FAILED"),
    ],
)
def test_the_status_of_every_ending_of_a_trial(sweep: DrivenSweep, uri: str, how: How, status: str) -> None:
    sweep.start()
    trial = sweep.suggest(lr=0.3)
    sweep.trials[trial].train(1)
    sweep.report(trial, None)
    sweep.end_trial(trial, how, "as it had to")
    delivery(sweep, uri).deliver()
    parent, trials = family(uri)
    assert (parent.info.status, trials[trial].info.status) == ("RUNNING", status)
    assert trials[trial].data.tags.items() >= {"pliant.state": how, "pliant.why": "as it had to"}.items()
    assert "best/accuracy" not in parent.data.metrics


def test_a_trial_that_somebody_removed_stays_so_and_the_others_go_on(sweep: DrivenSweep, uri: str) -> None:
    sweep.start()
    removed, kept = sweep.suggest(lr=0.3), sweep.suggest(lr=0.2)
    mlflow = delivery(sweep, uri)
    mlflow.deliver()
    MlflowClient(tracking_uri=uri).delete_run(family(uri)[1][removed].info.run_id)
    for trial in (removed, kept):
        sweep.trials[trial].train(2)
        sweep.report(trial, 0.5)
        sweep.end_trial(trial, "completed")
    mlflow.deliver()
    delivery(sweep, uri).deliver()
    _, trials = family(uri)
    assert trials.keys() == {kept}
    assert [step for step, _ in curve(uri, trials[kept], "loss")] == [8, 16]


class Counting(MlflowTracker):
    """Counts what is asked of the store; ``lost``: answers to batches are lost."""

    calls: ClassVar[Counter[str]] = Counter()
    lost = False

    def send(self, points: Sequence[Point], *along: Mapping[str, str]) -> None:
        super().send(points, *along)
        if self.lost:
            raise ConnectionError("the answer was lost")

    def __getattribute__(self, name: str) -> Any:
        if name in ("find", "create", "look", "children", "set_status", "history", "send", "add_params", "set_tags"):
            Counting.calls[name] += 1
        return super().__getattribute__(name)


def counted(sweep: DrivenSweep, uri: str) -> SweepDelivery:
    card = Card(sweep.record.run_id, "search", "lm", 0)
    return SweepDelivery(sweep.record, Counting(uri, "unused"), uri, card)


def test_a_trial_costs_a_few_calls_and_one_that_is_there_none(sweep: DrivenSweep, uri: str) -> None:
    sweep.start()
    for number in range(10):
        trial = sweep.suggest(lr=0.1 + number / 100)
        sweep.trials[trial].train(3)
        sweep.report(trial, 0.5)
        sweep.end_trial(trial, "completed")
    Counting.calls.clear()
    mlflow = counted(sweep, uri)
    mlflow.deliver()
    assert sum(Counting.calls.values()) <= 10 * 3 + 20, Counting.calls
    for again in (mlflow, counted(sweep, uri)):
        Counting.calls.clear()
        again.deliver()
        assert sum(Counting.calls.values()) <= 10, Counting.calls
    assert len(family(uri)[1]) == 10


def test_what_arrived_although_its_answer_was_lost_counts_once(sweep: DrivenSweep, uri: str) -> None:
    sweep.start()
    two_trials(sweep)
    mlflow = counted(sweep, uri)
    Counting.lost = True
    try:
        for _ in range(3):
            with pytest.raises(ConnectionError):
                mlflow.deliver()
    finally:
        Counting.lost = False
    mlflow.deliver()
    _, trials = family(uri)
    assert curve(uri, trials["t0000"], "loss") == [(s, 1 / s) for s in range(8, 72, 8)]
    assert [step for step, _ in curve(uri, trials["t0001"], "eval/accuracy")] == [32]


def test_processes_that_deliver_at_once_agree_on_one_child_a_trial(sweep: DrivenSweep, uri: str) -> None:
    sweep.start()
    two_trials(sweep)
    sweep.stop("done")
    barrier, errors = threading.Barrier(3), []

    def deliver() -> None:
        try:
            mine = delivery(sweep, uri)
            barrier.wait()
            mine.deliver()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=deliver) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    _, trials = family(uri)
    assert trials.keys() == {"t0000", "t0001"}
    assert len(runs_of(uri)) == 3
    assert curve(uri, trials["t0000"], "loss") == [(s, 1 / s) for s in range(8, 72, 8)]
