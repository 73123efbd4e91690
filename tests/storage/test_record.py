"""Claims, fencing, decisions and the owner, on a local path and on S3 alike."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pliant.errors import DamageError, FencedError, UsageError
from pliant.storage.attempts import Attempt
from pliant.storage.layout import CheckpointRef, attempt_key
from pliant.storage.owner import Owner, process_identity, process_start, watch_heartbeat
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store


@pytest.fixture
def record(store: Store) -> RunRecord:
    return RunRecord.create(store, {"name": "r"})


def commit(record: RunRecord, attempt: Attempt, step: int, *, check: bool = True) -> CheckpointRef:
    """A checkpoint as the writer makes one; without ``check``: what a stopped zombie still had in flight."""
    ref = CheckpointRef(step, attempt.number)
    record.store.put(f"{ref.prefix}/shard", b"bytes")
    if check:
        attempt.check()
    record.store.put_if_absent(ref.manifest, b"{}")
    return ref


def test_create_once_and_open(store: Store) -> None:
    with pytest.raises(UsageError, match="no run here"):
        RunRecord.open(store)
    made = RunRecord.create(store, {"name": "r", "pipeline": "p"})
    opened = RunRecord.open(store)
    assert opened.identity == made.identity
    assert opened.run_id == made.run_id
    with pytest.raises(UsageError, match="already"):
        RunRecord.create(store, {"name": "r"})


def test_newer_format_is_refused(store: Store) -> None:
    store.put("run.json", b'{"version": 2, "run_id": "x"}')
    with pytest.raises(UsageError, match="format 2"):
        RunRecord.open(store)


def test_eight_racing_threads_get_different_numbers(record: RunRecord) -> None:
    def claim(_: int) -> int:
        return RunRecord.open(record.store).claim_driver().number

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(claim, range(24))) == list(range(1, 25))
    assert [a.number for a in record.attempts()] == list(range(1, 25))


def _claim_in_process(uri: str, settings: StorageSettings, start: Any, answers: Any) -> None:
    record = RunRecord.open(Store(uri, settings))
    start.wait()
    answers.put([record.claim_driver().number for _ in range(3)])


def test_eight_racing_processes_get_different_numbers(record: RunRecord) -> None:
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(8), context.Queue()
    arguments = (record.store.uri, record.store.settings, start, answers)
    racers = [context.Process(target=_claim_in_process, args=arguments) for _ in range(8)]
    for racer in racers:
        racer.start()
    numbers = sorted(n for _ in racers for n in answers.get(timeout=60))
    for racer in racers:
        racer.join()
    assert numbers == list(range(1, 25))


def test_newer_group_fences_older_group_but_not_the_driver(record: RunRecord) -> None:
    driver = record.claim_driver()
    first = record.claim_group(driver.number)
    first.check()
    second = record.claim_group(driver.number)
    second.check()
    driver.check()
    with pytest.raises(FencedError, match=r"attempt 2 must stop writing: attempt 3 \(a group"):
        first.check()
    with pytest.raises(FencedError):
        first.put_marker("quarantine", "x", {})
    with pytest.raises(FencedError):
        first.write("conditions.json", b"{}")
    with pytest.raises(FencedError):
        first.restore(None)


def test_take_over_fences_driver_and_all_its_groups(record: RunRecord) -> None:
    old = record.claim_driver()
    group = record.claim_group(old.number)
    new = record.claim_driver()
    for fenced in (old, group, pickle.loads(pickle.dumps(group)), RunRecord.open(record.store).attempt(group.number)):
        with pytest.raises(FencedError, match="attempt 3"):
            fenced.check()
    new.check()
    with pytest.raises(FencedError):
        record.claim_group(old.number)
    assert len(record.attempts()) == 3, "a fenced driver takes no number"


def test_group_that_slips_in_after_a_take_over_is_void(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old driver was stopped between its check and its claim, and goes on after the take-over."""
    from pliant.storage import record as module

    old = record.claim_driver()
    real = module.take_claim

    def stopped_here(store: Store, kind: Any, driver: Any, info: Any) -> Any:
        monkeypatch.undo()
        RunRecord.open(store).claim_driver()
        return real(store, kind, driver, info)

    monkeypatch.setattr(module, "take_claim", stopped_here)
    with pytest.raises(FencedError):
        record.claim_group(old.number)
    new = record.attempt(2)
    zombie = Attempt(record.store, record.attempts()[2].claim)
    assert (zombie.number, zombie.driver) == (3, 1)
    with pytest.raises(FencedError):
        zombie.check()
    new.check()
    # Whatever it still writes, even a decision with the highest number, counts for nothing.
    record.store.put(attempt_key(3, "restore.json"), b'{"attempt": 3}')
    commit(record, zombie, 100, check=False)
    view = record.view()
    assert view.void == {3}
    assert view.checkpoints() == []
    assert view.restore is None
    assert view.accepts_log("metrics", 3) == 0
    assert "attempt 3 counts for nothing" in "\n".join(view.explain())
    group = record.claim_group(new.number)
    assert group.restore(None).checkpoints == ()


def test_decision_cuts_what_comes_later(record: RunRecord) -> None:
    driver = record.claim_driver()
    old = record.claim_group(driver.number)
    old.restore(None)
    early, late = commit(record, old, 100), commit(record, old, 200)
    bad = commit(record, old, 300)
    assert record.view().checkpoints() == [bad, late, early]
    new = record.claim_group(driver.number)
    new.put_marker("quarantine", bad.name, {"reason": "digest"})
    assert record.view().checkpoints() == [late, early]
    decision = new.restore(late)
    assert decision.checkpoints == (early, late)
    zombie = commit(record, old, 250, check=False)
    mine = commit(record, new, 201)
    assert record.view().checkpoints() == [mine, late, early]
    states = {v.checkpoint: v.state for v in record.view().verdicts()}
    assert states == {early: "usable", late: "usable", mine: "usable", zombie: "superseded", bad: "superseded"}
    assert record.view().pinned() == late
    assert any("superseded, not among what attempt 3 accepted" in line for line in record.view().explain())


def test_fresh_start_cuts_everything(record: RunRecord) -> None:
    first = record.claim_driver()
    commit(record, first, 5)
    second = record.claim_driver()
    second.restore(None)
    assert record.view().checkpoints() == []


def test_restoring_what_does_not_count_is_refused(record: RunRecord) -> None:
    driver = record.claim_driver()
    for ref in (CheckpointRef(7, driver.number), CheckpointRef(7, 99)):
        record.store.put(f"{ref.prefix}/shard", b"")
        with pytest.raises(UsageError, match="does not count"):
            driver.restore(ref)
    driver.restore(None)
    with pytest.raises(UsageError, match="already"):
        driver.restore(None)


def test_mark_by_a_fenced_writer_does_not_outlive_the_decision(record: RunRecord) -> None:
    old = record.claim_driver()
    ref, other = commit(record, old, 10), commit(record, old, 5)
    old.put_marker("delete", other.name, {})
    assert record.view().checkpoints() == [ref]
    new = record.claim_driver()
    # The old driver passed its check before the claim and marks only now.
    record.store.put("markers/delete.step-00000010.a000001.a000001.json", b"{}")
    new.restore(ref)
    assert record.view().checkpoints() == [ref]
    assert record.view().marked() == [other]


def test_markers_of_the_running_driver_always_count(record: RunRecord) -> None:
    driver = record.claim_driver()
    group = record.claim_group(driver.number)
    group.restore(None)
    ref = commit(record, group, 10)
    driver.put_marker("delete", ref.name, {})
    assert record.view().marked() == [ref]


@pytest.mark.parametrize(
    ("key", "content"),
    [
        ("attempts/a000001/claim.json", b""),
        ("attempts/a000001/claim.json", b'{"version": 1, "attempt": 1, "kind": "queen", "driver": 1, "info": {}}'),
        ("attempts/a000001/claim.json", b'{"version": 1, "attempt": 2, "kind": "driver", "driver": 2, "info": {}}'),
        ("attempts/a000002/restore.json", b"[]"),
        ("attempts/a000002/restore.json", b'{"version": 1, "attempt": 2, "checkpoint": null}'),
        ("attempts/a000002/restore.json", b'{"version": 9, "attempt": 2}'),
        ("run.json", b"\x00\x00"),
        ("run.json", b"{}"),
    ],
)
def test_damage_is_named(record: RunRecord, key: str, content: bytes) -> None:
    driver = record.claim_driver()
    record.claim_group(driver.number).restore(None)
    record.store.put(key, content)
    with pytest.raises(DamageError) as error:
        RunRecord.open(record.store).view()
    assert key in error.value.location


def test_missing_claim_is_damage(record: RunRecord) -> None:
    record.claim_driver()
    record.claim_driver()
    record.store.delete("attempts/a000001/claim.json")
    with pytest.raises(DamageError, match="missing"):
        RunRecord.open(record.store).view()


# ---------------------------------------------------------------- the owner


def test_owner_is_the_newest_driver_without_a_stop_reason(record: RunRecord) -> None:
    assert record.owner() is None
    first = record.claim_driver()
    owner = record.owner()
    assert owner is not None
    assert (owner.attempt, owner.pid) == (first.number, os.getpid())
    assert -5 < owner.age < 30
    assert record.wait_for_owner(owner)
    assert str(os.getpid()) in owner.describe()
    second = record.claim_driver()
    record.claim_group(second.number)
    second.stop("done", "all steps")
    second.stop("infrastructure", "later")
    assert record.owner() is None
    stop = record.stop_of(second.number)
    assert stop is not None
    assert (stop["reason"], stop["detail"]) == ("done", "all steps")
    assert record.stop_of(first.number) is None
    assert [a.stopped for a in record.attempts()] == [False, True, False]


def test_killed_owner_on_this_host_is_dead_at_once_and_a_stopped_one_is_not(local_store: Store) -> None:
    record = RunRecord.create(local_store, {})
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        record.claim_driver({"pid": process.pid, "pid_start": process_start(process.pid)})
        owner = record.owner()
        assert owner is not None
        assert owner.liveness(30) == "alive"
        process.send_signal(signal.SIGSTOP)
        assert owner.liveness(30) == "alive"
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert owner.liveness(30) == "dead", "killed, although its parent has not reaped it yet"
    assert owner.liveness(30) == "dead"


def test_reused_pid_is_not_the_owner() -> None:
    info = {**process_identity(), "pid_start": 1.0}
    assert Owner(1, "h", os.getpid(), info, age=0.0).liveness(30) == "dead"


def test_owner_elsewhere_is_known_by_its_heartbeat(record: RunRecord) -> None:
    def patient(fresh: float) -> RunRecord:
        update = {"heartbeat_every": 0.1, "heartbeat_fresh": fresh}
        return RunRecord.open(Store(record.store.uri, record.store.settings.model_copy(update=update)))

    driver = patient(60.0).claim_driver({"boot_id": "another machine", "host": "far"})
    owner = record.owner()
    assert owner is not None
    assert owner.liveness(30) == "unknown"
    with driver.heartbeat():
        assert patient(60.0).wait_for_owner(owner)
    left: list[float] = []
    assert not patient(1.0).wait_for_owner(owner, left.append)
    assert 0.5 < left[0] <= 1.0
    ancient = Owner(1, "far", 1, owner.info, age=10_000.0)
    assert ancient.liveness(30) == "dead"


def test_watch_ends_at_the_first_change() -> None:
    answers = iter([None, None, b"1"])
    assert watch_heartbeat(lambda: next(answers), 60, 0.01, lambda left: None) == "alive"


def test_heartbeat_tells_that_the_run_was_taken_over(store: Store) -> None:
    settings = store.settings.model_copy(update={"heartbeat_every": 0.05})
    record = RunRecord.create(Store(store.uri, settings), {})
    fenced, errors = threading.Event(), []
    with record.claim_driver().heartbeat(lambda error: (errors.append(error), fenced.set())):
        record.claim_driver()
        assert fenced.wait(20)
    assert isinstance(errors[0], FencedError)


def test_stop_request(record: RunRecord) -> None:
    driver = record.claim_driver()
    assert not driver.stop_request()
    record.request_stop(driver.number, "from a test")
    record.request_stop(driver.number, "again")
    assert driver.stop_request()
    assert not record.claim_driver().stop_request()


def test_heartbeat_hears_a_stop_request_once(store: Store) -> None:
    settings = store.settings.model_copy(update={"heartbeat_every": 0.05})
    record = RunRecord.create(Store(store.uri, settings), {})
    heard: queue.Queue[dict[str, Any]] = queue.Queue()
    driver = record.claim_driver()
    with driver.heartbeat(on_stop=heard.put):
        RunRecord.open(store).request_stop(driver.number, "from elsewhere")
        request = heard.get(timeout=30)
        first = store.head(f"attempts/a{driver.number:06d}/heartbeat.json")
        while store.head(f"attempts/a{driver.number:06d}/heartbeat.json") == first:
            threading.Event().wait(0.02)
    assert (request["detail"], request["pid"]) == ("from elsewhere", os.getpid())
    assert heard.empty()
