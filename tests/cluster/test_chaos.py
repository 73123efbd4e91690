"""Every fault of ``pliant chaos``, on real processes, a real cluster and real checkpoints."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pliant.checkpoint.verify import verify_checkpoints
from pliant.cluster.storage_faults import storage_server
from pliant.storage.layout import encode
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.snapshot import CLUSTER
from pliant.storage.store import Store
from pliant.train.scratch import scratch_directory
from tests.checkpoint.saving import commit
from tests.cli.conftest import Run, run  # noqa: F401
from tests.cluster.nodes import Nodes, gone_all, title, until
from tests.command import pliant
from tests.s3 import S3Server

Strike = Callable[..., dict]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with scratch_directory("pliant-ray-") as folder, Nodes(Path(folder), nodes=2, back_after=0.2) as nodes:
        yield nodes


def driven(uri: str, nodes: Nodes | None = None) -> RunRecord:
    """A run that this process drives, on a cluster or on none."""
    record = RunRecord.create(Store(uri, StorageSettings()), {"name": "r"})
    attempt = record.claim_driver()
    if nodes is not None:
        attempt.write(CLUSTER, encode({"address": nodes.address, "node_id": next(iter(nodes.raylets()))}))
    return record


@pytest.fixture
def strike(nodes: Nodes, tmp_path: Path) -> Strike:
    """``strike("kill:node-2", "--for", "3s")``: the line that the command writes."""
    driven(str(tmp_path / "runs" / "r"), nodes)

    def call(fault: str, *options: str) -> dict:
        done = pliant("chaos", "r", "--once", fault, "--json", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


def second(nodes: Nodes) -> str:
    """The node beside the driver's, once it is there."""
    return until(lambda: next((node for node in list(nodes.raylets())[1:] if node in nodes.alive()), None))


def worker_on(nodes: Nodes, node: str) -> psutil.Process:
    """A new process on a node that is titled as a worker is."""
    assert nodes.ask("worker", node) == node
    return [p for p in psutil.Process(nodes.raylets()[node]).children() if "RayTrainWorker" in title(p)][-1]


@pytest.mark.slow
def test_kill_ends_one_worker_and_its_node_stays(nodes: Nodes, strike: Strike) -> None:
    node = second(nodes)
    nothing = strike("kill")
    assert (nothing["skipped"], nothing["text"]) == (True, "no worker trains there")
    worker = worker_on(nodes, node)
    line = strike("kill:node-2")
    assert line["node"] == f"node-2 ({node[:8]})"
    assert line["text"] == f"worker process {worker.pid} killed"
    gone_all([worker])
    assert node in nodes.alive()


@pytest.mark.slow
def test_kill_node_ends_all_of_it_and_the_drivers_is_hit_only_by_name(nodes: Nodes, strike: Strike) -> None:
    node, head = second(nodes), next(iter(nodes.raylets()))
    raylet = psutil.Process(nodes.raylets()[node])
    below = raylet.children(recursive=True)
    assert strike("kill-node")["text"] == f"raylet {raylet.pid} and all below it killed"
    gone_all(below)
    until(lambda: node not in nodes.alive())
    worker = worker_on(nodes, head)
    assert strike("kill:driver")["node"].startswith("node-1")
    gone_all([worker])
    second(nodes)


@pytest.mark.slow
def test_a_drained_node_gets_its_notice_and_is_gone_at_the_deadline(nodes: Nodes, strike: Strike) -> None:
    node = second(nodes)
    worker = worker_on(nodes, node)  # a node that has nothing to do leaves at once
    begun = time.time()
    assert strike("drain", "--deadline", "4s")["text"] == "leaves within 4 s"
    assert begun + 3 < nodes.draining()[node] / 1000 < time.time() + 6
    assert worker.is_running()
    until(lambda: node not in nodes.alive())
    gone_all([worker])


@pytest.mark.slow
def test_a_node_that_vanishes_is_back_after_a_while(nodes: Nodes, strike: Strike) -> None:
    node = second(nodes)
    raylet = psutil.Process(nodes.raylets()[node])
    worker = worker_on(nodes, node)
    assert "answer nothing for 2 s" in strike("vanish", "--for", "2s")["text"]
    until(lambda: raylet.status() == worker.status() == psutil.STATUS_STOPPED)
    until(lambda: psutil.STATUS_STOPPED not in (raylet.status(), worker.status()))


@pytest.mark.slow
def test_slow_workers_run_now_and_then(nodes: Nodes, strike: Strike) -> None:
    worker = worker_on(nodes, second(nodes))
    assert "run 20% of the time for 2 s" in strike("slow", "--for", "2s")["text"]
    for _ in range(2):
        until(lambda: worker.status() == psutil.STATUS_STOPPED)
        until(lambda: worker.status() != psutil.STATUS_STOPPED)
    raylet = psutil.Process(worker.ppid())
    until(lambda: not any("pliant.cluster.deeds" in title(process) for process in psutil.process_iter()))
    assert psutil.STATUS_STOPPED not in (worker.status(), raylet.status())


@pytest.mark.slow
def test_a_node_that_is_not_there_is_said(nodes: Nodes, tmp_path: Path) -> None:
    driven(str(tmp_path / "runs" / "r"), nodes)
    done = pliant("chaos", "r", "--once", "kill:node-9", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[chaos.node]" in done.stderr
    assert "no node is 'node-9'; there are node-1 (" in done.stderr
    assert "Traceback" not in done.stderr
    trace = pliant("chaos", "r", "--at", "0s:kill:node-9", cwd=tmp_path)
    assert trace.returncode == 0
    assert "not done: no node is 'node-9'" in trace.stdout


@pytest.mark.parametrize("place", ["local", "s3"])
def test_one_byte_of_the_newest_checkpoint_is_inverted(
    place: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    run: Run,  # noqa: F811
) -> None:
    server: S3Server | None = request.getfixturevalue("s3_server") if place == "s3" else None
    uri = server.uri(f"chaos-{os.getpid()}") if server else str(tmp_path / "r")
    record = driven(uri)
    commit(record.store, 2)
    commit(record.store, 4)
    before = {info.key: record.store.get(info.key) for info in record.store.list("checkpoints")}
    done = run("chaos", uri, "--once", "corrupt", "--seed", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = {info.key: record.store.get(info.key) for info in record.store.list("checkpoints")}
    (key,) = (key for key in before if before[key] != after[key])
    assert f"of {key} inverted" in done.stdout
    assert sum(a != b for a, b in zip(before[key], after[key], strict=True)) == 1
    reports = {
        report.ref.step: report.status for report in verify_checkpoints(record.store, record.view().checkpoints())
    }
    assert reports == {2: "intact", 4: "damaged"}


def test_the_disk_is_full_for_a_while_and_no_file_is_seen(tmp_path: Path, run: Run) -> None:  # noqa: F811
    record = driven(str(tmp_path / "runs" / "r"))
    before = sorted(record.store.local_path().rglob("*"))
    done = run("chaos", "r", "--once", "fill-disk", "--size", "8MiB", "--for", "0.2s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"8.0 MiB taken on the disk of {record.store.local_path()}" in done.stdout
    assert sorted(record.store.local_path().rglob("*")) == before


def test_storage_is_away_for_a_while(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    with S3Server() as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        record = driven(uri := server.uri("cut"))
        done = run("chaos", uri, "--once", "cut-storage", "--for", "2s", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"which listens at {server.endpoint}, answers nothing for 2 s" in done.stdout
        process = psutil.Process(int(done.stdout.partition("pid ")[2].partition(")")[0]))
        until(lambda: process.status() != psutil.STATUS_STOPPED)
        assert record.owner() is not None
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
        with pytest.raises(LookupError, match=r"^no process of this machine and user listens at http://127.0.0.1:1$"):
            storage_server()


def refused(run: Run, folder: Path, *options: str) -> str:  # noqa: F811
    done = run("chaos", *options, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_what_cannot_be_done_is_refused(tmp_path: Path, run: Run, s3_server: S3Server) -> None:  # noqa: F811
    record = driven(str(tmp_path / "runs" / "r"))
    driven(there := s3_server.uri(f"refused-{os.getpid()}"))
    assert "error[run.unknown]" in refused(run, tmp_path, "other", "--once", "kill")
    assert "'drown' is no fault; there are kill, kill-node," in refused(run, tmp_path, "r", "--once", "drown")
    assert "--faults: 'drown' is no fault" in refused(run, tmp_path, "r", "--faults", "kill,drown")
    assert "--every 0: it must be above 0" in refused(run, tmp_path, "r", "--every", "0")
    assert "--for: 'long' is not a duration" in refused(run, tmp_path, "r", "--once", "vanish", "--for", "long")
    assert "--size: 'big' is not a size" in refused(run, tmp_path, "r", "--once", "fill-disk", "--size", "big")
    assert "error[chaos.option]" in refused(run, tmp_path, "r", "--once", "kill", "--every", "5s")
    cut = refused(run, tmp_path, "r", "--faults", "kill,cut-storage", "--dry-run")
    assert "error[chaos.cut-storage]" in cut
    assert "the run's storage is a path of this machine" in cut
    assert "object storage has no disk to fill" in refused(run, tmp_path, there, "--once", "fill-disk")
    record.attempt(1).stop("done")
    assert "nobody drives the run" in refused(run, tmp_path, "r", "--once", "corrupt")


def test_a_dry_run_shows_the_trace_and_the_seed_decides(tmp_path: Path, run: Run) -> None:  # noqa: F811
    driven(str(tmp_path / "runs" / "r"))
    first, again, other = (run("chaos", "r", "--dry-run", "--seed", seed, cwd=tmp_path).stdout for seed in "112")
    assert first == again != other
    assert len(first.splitlines()) == 20
    short = run("chaos", "r", "--dry-run", "--every", "10s", "--duration", "30s", "--json", cwd=tmp_path).stdout
    times = [json.loads(line)["at_s"] for line in short.splitlines()]
    assert times == sorted(times)
    assert 0 < len(times) < 10
    assert times[-1] <= 30
    written = run("chaos", "r", "--dry-run", "--at", "9s:corrupt", "--at", "3s:drain:node-2", cwd=tmp_path).stdout
    assert [line.split() for line in written.splitlines()] == [
        ["3.0", "s", "drain", "·", "node-2"],
        ["9.0", "s", "corrupt"],
    ]


def test_a_run_without_a_cluster_can_be_hit_in_its_storage_alone(
    tmp_path: Path,
    run: Run,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pliant.cli.chaos._CLUSTER_S", 0.0)
    driven(str(tmp_path / "runs" / "r"))
    assert "error[chaos.no-cluster]" in refused(run, tmp_path, "r", "--once", "kill")
    done = run("chaos", "r", "--once", "corrupt", cwd=tmp_path)
    assert done.returncode == 0
    assert "not done: the run has no checkpoint yet" in done.stdout
