"""What MLflow is told of a run, on a real SQLite store: each step once, whatever happens."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pliant.data.manifest import load_or_build_manifest
from pliant.storage.attempts import StopReason
from pliant.track.background import connect, settle_status
from pliant.track.delivery import Delivery
from pliant.track.goodput import CATEGORIES, CAUSED
from pliant.track.mlflow import MlflowTracker
from pliant.track.settings import TrackingSettings
from pliant.track.tracker import Card, Point
from tests.track.records import CONFIG, DrivenRun, history, runs_of, the_run


def delivery(run: DrivenRun, uri: str) -> Delivery:
    """As another process would make it."""
    return connect(run.record, TrackingSettings(uri=uri), str(Path(run.record.store.uri).parent))


def losses(run: DrivenRun) -> list[tuple[int, float]]:
    return [(entry["step"], entry["loss"]) for entry in run.metrics()]


def test_steps_are_delivered_up_to_the_newest_checkpoint_and_the_rest_at_the_end(run: DrivenRun, uri: str) -> None:
    run.start()
    run.steps(1, 3)
    mlflow = delivery(run, uri)
    mlflow.deliver()
    assert history(uri, "loss") == []
    assert the_run(uri).info.status == "RUNNING"
    run.commit(3)
    run.steps(4, 5)
    mlflow.deliver()
    assert history(uri, "loss") == losses(run)[:3]
    run.end("done")
    mlflow.deliver()
    assert history(uri, "loss") == losses(run)
    assert [step for step, _ in history(uri, "attempt")] == [1, 2, 3, 4, 5]
    assert the_run(uri).info.status == "FINISHED"


def test_replays_are_not_sent_twice(stored_run: DrivenRun, uri: str) -> None:
    run = stored_run
    run.start(dead=True)
    run.steps(1, 3)
    checkpoint = run.commit(3)
    run.steps(4, 6)
    delivery(run, uri).deliver()
    run.start(restored=checkpoint)  # after a kill -9
    run.steps(4, 7)
    run.end("done")
    delivery(run, uri).deliver()
    assert history(uri, "loss") == losses(run)
    assert [attempt for _, attempt in history(uri, "attempt")] == [2.0] * 3 + [4.0] * 4
    assert "pliant.steps_that_differ" not in the_run(uri).data.tags


def test_after_a_fallback_mlflow_keeps_its_first_values_and_a_tag_names_the_steps(
    stored_run: DrivenRun, uri: str
) -> None:
    run = stored_run
    run.start(dead=True)
    run.steps(1, 3)
    older = run.commit(3)
    run.steps(4, 6, step_s=1.0)
    run.commit(6)
    delivery(run, uri).deliver()
    run.start(restored=older)  # the newer one is damaged
    run.steps(4, 5, step_s=2.0)
    run.steps(6, 6, loss=9.0)
    run.steps(7, 8)
    run.end("done")
    for _ in range(2):  # the second time by a process that knows nothing of the first
        delivery(run, uri).deliver()
        assert history(uri, "loss") == [(step, 1 / step) for step in range(1, 9)]
        assert the_run(uri).data.tags["pliant.steps_that_differ"] == "4-6 (in attempt, loss, step_s)"
    differ = [step for step, loss in losses(run) if dict(history(uri, "loss"))[step] != loss]
    assert differ == [6]


class LosesAnswers(MlflowTracker):
    """A store whose answers to batches are lost while ``lost`` is set."""

    lost = False

    def send(self, points: list[Point], *along: dict[str, str]) -> None:  # type: ignore[override]
        super().send(points, *along)
        if self.lost:
            raise ConnectionError("the answer was lost")


def test_a_batch_that_arrived_twice_counts_once(run: DrivenRun, uri: str) -> None:
    tracker = LosesAnswers(uri, "unused")
    mlflow = Delivery(run.record, tracker, uri, Card(run.record.run_id, "run", "e", 0))
    run.start()
    run.steps(1, 4)
    run.end("done")
    tracker.lost = True
    with pytest.raises(ConnectionError):
        mlflow.deliver()
    tracker.lost = False
    mlflow.deliver()
    assert history(uri, "loss") == losses(run)
    twice = [Point("loss", 1.0, 1, round(run.metrics()[0]["time"] * 1000))] * 2
    tracker.send(twice)
    tracker.send(twice)
    assert history(uri, "loss") == losses(run)


def test_thousands_of_values_go_in_batches_that_never_part_a_step(run: DrivenRun, uri: str) -> None:
    run.start()
    run.steps(1, 600, **{f"metric{i}": float(i) for i in range(5)})
    run.end("done")
    delivery(run, uri).deliver()
    assert history(uri, "loss") == losses(run)
    assert len(history(uri, "metric4")) == 600


def test_names_and_numbers_that_mlflow_cannot_take(run: DrivenRun, uri: str) -> None:
    run.start()
    run.steps(1, 1, **{"val/acc@1": 0.5})
    run.steps(2, 3, loss=math.inf)
    run.steps(4, 4, loss=math.nan, grad_norm=None)  # type: ignore[arg-type]
    run.end("done")
    delivery(run, uri).deliver()
    tags = the_run(uri).data.tags
    (renamed,) = [key for key in the_run(uri).data.metrics if key.startswith("val/")]
    assert renamed.startswith("val/acc_1_")
    assert tags["pliant.renamed_metrics"] == f'{{"val/acc@1": "{renamed}"}}'
    assert history(uri, renamed) == [(1, 0.5)]
    stored = dict(history(uri, "loss"))
    assert stored[2] == stored[3] > 1.79e308
    assert math.isnan(stored[4])
    assert math.isnan(dict(history(uri, "grad_norm"))[4])
    assert tags["pliant.infinite"] == "loss: 2-3 (stored as ±1.797e+308)"


def test_parameters_are_those_of_the_first_start_and_long_ones_are_safe(run: DrivenRun, uri: str) -> None:
    long = "x" * 7000
    first = CONFIG.format(storage="/s", long=long)
    run.start(config=first)
    run.end("signal")
    delivery(run, uri).deliver()
    run.start(config=first.replace("lr: 0.1", "lr: 0.2") + "fresh: {key: 1}\n")
    delivery(run, uri).deliver()
    found = the_run(uri)
    assert found.data.params["optim.lr"] == "0.1"
    assert found.data.params["optim.betas"] == "[0.9, 0.999]"
    assert found.data.params["fresh.key"] == "1"
    assert "7,000 characters" in found.data.params["model.names"]
    client = MlflowClient(tracking_uri=uri)
    text = Path(client.download_artifacts(found.info.run_id, "config.resolved.yaml")).read_text()
    assert f"names: {long}" in text
    assert "lr: 0.2" in text
    attempts = {info.path for info in client.list_artifacts(found.info.run_id, "attempts")}
    assert attempts == {f"attempts/a00000{n}" for n in (1, 2, 3, 4)}
    assert '"world_size": 2' in found.data.tags["pliant.attempt.000004"]
    assert '"ended": "signal"' in found.data.tags["pliant.attempt.000001"]


def test_each_attempt_says_why_it_ended_and_with_how_many_workers_the_run_went_on(run: DrivenRun, uri: str) -> None:
    run.start()
    run.steps(1, 3, world_size=2)
    checkpoint = run.commit(3)
    run.event("preemption", "node a goes away in 30 s: saving, then leaving")
    run.group.stop("preemption")
    run.join(restored=checkpoint, workers=1)
    run.steps(4, 5, world_size=1)
    run.event("failure", "rank 0 died: starting again", cause="infrastructure")
    run.join(restored=checkpoint, workers=3)
    run.steps(4, 6, world_size=3)
    run.end("done")
    delivery(run, uri).deliver()
    tags = the_run(uri).data.tags
    attempts = [json.loads(tags[f"pliant.attempt.{number:06d}"]) for number in (1, 2, 3, 4)]
    shown = [{k: one[k] for k in ("world_size", "ended", "cause", "why", "resize") if k in one} for one in attempts]
    assert shown == [
        {"ended": "done"},
        {
            "world_size": 2, "ended": "preemption", "cause": "preemption",
            "why": "preemption: node a goes away in 30 s: saving, then leaving",
        },
        {
            "world_size": 1, "resize": "2→1", "cause": "infrastructure",
            "why": "infrastructure: rank 0 died: starting again",
        },
        {"world_size": 3, "resize": "1→3", "ended": "done"},
    ]  # fmt: skip
    assert json.loads(tags["pliant.seconds"]).keys() <= set(CATEGORIES)
    assert set(json.loads(tags["pliant.seconds_by_cause"])) <= set(CAUSED)
    assert history(uri, "world_size") == [(1, 2), (2, 2), (3, 2), (4, 3), (5, 3), (6, 3)]


def test_the_dataset_is_an_input_with_the_digest_of_its_manifest(run: DrivenRun, uri: str, dataset: str) -> None:
    manifest = load_or_build_manifest(f"{dataset}/train")
    run.record.store.put("data/train.json", manifest.to_bytes())
    run.start()
    for _ in range(2):
        delivery(run, uri).deliver()
        (given,) = the_run(uri).inputs.dataset_inputs
        assert given.dataset.digest == manifest.digest
        assert [(tag.key, tag.value) for tag in given.tags] == [("mlflow.data.context", "training")]
        assert dataset in given.dataset.source
        assert "203" in given.dataset.profile


ENDINGS: dict[StopReason, str] = {
    "done": "FINISHED",
    "signal": "KILLED",
    "user": "FAILED",
    "limit": "FAILED",
    "damage": "FAILED",
    "infrastructure": "FAILED",
}


@pytest.mark.parametrize(("reason", "status"), ENDINGS.items())
def test_the_status_of_every_ending_and_of_the_resume_after_it(
    run: DrivenRun, uri: str, reason: StopReason, status: str
) -> None:
    run.start()
    run.end(reason)
    delivery(run, uri).deliver()
    ended = the_run(uri)
    assert ended.info.status == status
    said = {"done": "done", "user": "failed (pipeline or settings)"}.get(reason, f"stopped ({reason})")
    assert ended.data.tags["pliant.state"] == said
    run.start()
    delivery(run, uri).deliver()
    assert (the_run(uri).info.status, the_run(uri).info.run_id) == ("RUNNING", ended.info.run_id)


def test_a_driver_that_was_killed_is_told_of_once(run: DrivenRun, uri: str, tmp_path: Path) -> None:
    config = CONFIG.format(storage=tmp_path, long="x") + f"tracking: {{kind: mlflow, uri: '{uri}'}}\n"
    run.start(config=config)
    assert settle_status(run.record) is None
    assert runs_of(uri) == [], "it lives: there is nothing to settle"
    run.start(config=config, dead=True)
    assert settle_status(run.record) is None
    assert the_run(uri).info.status == "KILLED"
    Path(uri.removeprefix("sqlite:///")).unlink()
    assert settle_status(run.record) is None, "it is not asked again"
    run.start(config=config.replace("sqlite:///", "sqlite:////dev/null"), dead=True)
    assert "could not be told" in (settle_status(run.record) or "")


def test_a_run_id_in_the_environment_changes_nothing(run: DrivenRun, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = MlflowClient(tracking_uri=uri).create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", other)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "elsewhere")
    run.start()
    run.steps(1, 2)
    run.end("done")
    delivery(run, uri).deliver()
    mine = {found.info.run_id: found for found in runs_of(uri)}
    assert mine.pop(other).data.metrics == {}
    (found,) = mine.values()
    assert found.data.metrics["loss"] == 0.5
    assert MlflowClient(tracking_uri=uri).get_experiment(found.info.experiment_id).name == "lm"


def test_drivers_that_race_agree_on_one_run(run: DrivenRun, uri: str) -> None:
    run.start()
    barrier, errors = threading.Barrier(4), []

    def deliver() -> None:
        try:
            mine = delivery(run, uri)
            barrier.wait()
            mine.deliver()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=deliver) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert the_run(uri).data.tags["pliant.run_id"] == run.record.run_id


def test_another_store_gets_the_whole_history_and_one_that_lost_its_answer_is_found_again(
    run: DrivenRun, uri: str, tmp_path: Path, empty_database: Path
) -> None:
    run.start()
    run.steps(1, 3)
    run.end("done")
    delivery(run, uri).deliver()
    elsewhere = tmp_path / "elsewhere.db"
    elsewhere.write_bytes(empty_database.read_bytes())
    delivery(run, f"sqlite:///{elsewhere}").deliver()
    assert history(f"sqlite:///{elsewhere}", "loss") == losses(run)
    for info in run.record.store.list("tracking"):
        run.record.store.delete(info.key)  # as when the driver was killed before it could write the id down
    delivery(run, uri).deliver()
    assert len(runs_of(uri)) == 1


def test_a_run_that_was_deleted_in_mlflow_is_an_error_and_not_made_again(run: DrivenRun, uri: str) -> None:
    run.start()
    delivery(run, uri).deliver()
    MlflowClient(tracking_uri=uri).delete_run(the_run(uri).info.run_id)
    run.steps(1, 2)
    run.end("done")
    with pytest.raises(Exception, match="deleted"):
        delivery(run, uri).deliver()
