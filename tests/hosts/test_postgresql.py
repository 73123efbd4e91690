"""An MLflow server on PostgreSQL, as teams have it: a run and a sweep, killed and resumed, and eight writers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pliant.api import Run as ApiRun
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.track.settings import TrackingSettings
from pliant.tune.tracking.outbox import connect_sweep, settle_status
from tests.e2e.commands import Command, store_of
from tests.hosts.postgres import Postgres, find_postgres
from tests.track.records import history, the_run
from tests.track.server import MlflowServer
from tests.track.sweeps import DrivenSweep, curve, family, tag
from tests.track.test_writers import check_what_was_written, write
from tests.train.runs import PIPELINE, SETTINGS, STEPS

PROGRAMS = find_postgres()
pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(300),
    pytest.mark.skipif(PROGRAMS is None, reason="there is no PostgreSQL: apt-get install postgresql"),
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    assert PROGRAMS is not None
    with Postgres(PROGRAMS) as postgres:
        yield postgres


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[MlflowServer]:
    with MlflowServer(tmp_path_factory.mktemp("server"), postgres.uri) as server:
        server.start()
        yield server


def test_a_run_that_is_killed_and_resumed_is_one_history(tmp_path: Path, dataset: str, server: MlflowServer) -> None:
    tracking = ["tracking.kind=mlflow", f"tracking.uri={server.uri}", "tracking.every=0.1"]
    settings = {text.partition("=")[0]: text for text in [*SETTINGS, *tracking, f"data.path={dataset}"]}
    settings["tracking.experiment"] = "tracking.experiment=run"
    register = "tracking.register_as=trained"
    first = Command(
        "train", PIPELINE, "--name", "run", "--in-process", *settings.values(), register,
        cwd=tmp_path, hold_before_forward=8 * 16 + 1,
    )  # fmt: skip
    store = store_of(str(tmp_path / "runs"), "run")
    first.wait_for_step(store, 8)
    first.process.kill()
    first.process.wait()
    assert "has the run as" in Command("resume", "run", "--in-process", cwd=tmp_path).finish()
    run = the_run(server.uri, "run")
    assert run.info.status == "FINISHED"
    metrics = list(ApiRun.open(store.uri).metrics())
    assert [entry["step"] for entry in metrics] == list(range(1, STEPS + 1))
    for key in ("loss", "lr", "global_batch", "attempt"):
        assert history(server.uri, key, "run") == [(entry["step"], entry[key]) for entry in metrics], key
    version = MlflowClient(tracking_uri=server.uri).get_model_version_by_alias("trained", "best")
    assert version.run_id == run.info.run_id
    assert version.tags["pliant.checkpoint"].startswith(f"step-{STEPS:08d}")


@pytest.mark.parametrize("through", ["server", "database"])
def test_a_population_that_is_killed_and_resumed_is_one_family(
    through: str, tmp_path: Path, server: MlflowServer, postgres: Postgres
) -> None:
    uri = server.uri if through == "server" else postgres.uri
    sweep = DrivenSweep(Store(str(tmp_path / "runs" / "search"), StorageSettings()), uri, kind="pbt")
    tracking = TrackingSettings(uri=uri, experiment=through)

    def deliver() -> None:
        connect_sweep(sweep.record, tracking, str(tmp_path / "runs")).deliver()

    sweep.start(dead=True)
    good, bad = sweep.suggest(lr=0.3), sweep.suggest(lr=0.02)
    for trial, value in ((good, 0.9), (bad, 0.1)):
        sweep.trials[trial].train(2)
        sweep.report(trial, value)
    deliver()
    assert settle_status(sweep.record) is None
    parent, before = family(uri, through)
    assert {run.info.status for run in (parent, *before.values())} == {"KILLED"}
    sweep.start()
    sweep.clone(bad, good, lr=0.36, batch=16)
    sweep.trials[bad].train(2)
    sweep.report(bad, 0.95, generation=1)
    deliver()
    for trial in (good, bad):
        sweep.end_trial(trial, "completed")
    sweep.stop("done")
    for _ in range(2):
        deliver()
        parent, after = family(uri, through)
        assert {run.info.status for run in (parent, *after.values())} == {"FINISHED"}
        assert {n: run.info.run_id for n, run in after.items()} == {n: run.info.run_id for n, run in before.items()}
        assert [step for step, _ in curve(uri, after[bad], "loss")] == [8, 16, 32, 48]
        assert curve(uri, after[bad], "params/optim.lr") == [(8, 0.02), (32, 0.36)]
        assert [one["run"] for one in tag(after[bad], "pliant.lineage")] == ["t0000", "t0001.g1"]
        assert parent.data.metrics["best/accuracy"] == 0.95


def test_eight_writers(tmp_path: Path, server: MlflowServer) -> None:
    write(tmp_path, server.uri)
    check_what_was_written(server.uri)
