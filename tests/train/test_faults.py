"""The fault list, on a local path and on a real S3 server: the numbers stay those of the uninterrupted run."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pliant.errors import EXIT_INFRASTRUCTURE, PliantError
from pliant.storage.faults import from_os_error
from pliant.storage.layout import CheckpointRef
from pliant.storage.store import Store
from tests.train.processes import KILLED
from tests.train.runs import STEPS, Before, Run, kill_before

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEP = "pliant.train.step:Step.run"
NEXT_BATCH = "pliant.train.feed:BatchFeed.next"
WRITE = "pliant.checkpoint.dcp:ShardWriter.write_data"
COMMIT = "pliant.checkpoint.writer:CheckpointWriter._commit"


def digests(store: Store, *, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Every object with the digest of its bytes."""
    keys = [info.key for info in store.list() if not info.key.endswith(but)]
    return {key: hashlib.blake2b(store.get(key)).hexdigest() for key in keys}


def test_interrupted_before_the_first_checkpoint_and_during_an_evaluation(
    storage: str, dataset: str, whole: Run
) -> None:
    run = Run.begin(storage, dataset)
    assert KILLED in run.attempt(2, fault=kill_before(STEP, 3))
    # 7 batches of training, then the second of the evaluation that follows.
    assert KILLED in run.attempt(1, fault=kill_before(NEXT_BATCH, 9))
    assert run.log("evaluations") == []
    run.attempt(3)
    assert run.curve() == whole.curve()
    assert [entry["step"] for entry in run.log("evaluations")] == [7, 14, 21]


def test_interrupted_exactly_at_an_epochs_end(storage: str, dataset: str) -> None:
    # 203 rows in batches of 32, padded: an epoch ends with step 7, and so do checkpoint and evaluation.
    settings = ["data.tail=pad", "checkpoint.every_steps=7", "data.window=1"]
    undisturbed = Run.begin(storage, dataset, *settings, name="whole")
    undisturbed.attempt(1)
    run = Run.begin(storage, dataset, *settings, name="killed")
    # Restored exactly at the end of epoch 0; then killed exactly at the end of epoch 1, which is not yet saved.
    assert KILLED in run.attempt(2, fault=run.when_committed(7, kill_before(STEP, 9)))
    assert KILLED in run.attempt(3, fault=kill_before(STEP, 8))
    run.attempt(1)
    assert run.curve() == undisturbed.curve()
    assert (run.log("metrics")[6]["epoch"], run.log("metrics")[6]["position"]) == (1, 0)


def test_an_old_group_that_wakes_up_changes_nothing(storage: str, dataset: str, whole: Run) -> None:
    run = Run.begin(storage, dataset)
    old = run.group(2, fault=run.when_committed(5, Before(STEP, 9, signal=signal.SIGSTOP)))
    old.wait_until_stopped()
    run.attempt(3)
    before, curve = digests(run.store), run.curve()
    old.signal(signal.SIGCONT)
    with pytest.raises(RuntimeError, match=r"record\.fenced"):
        old.results()
    after = digests(run.store)
    assert {key: after[key] for key in before} == before
    assert run.curve() == curve == whole.curve()
    # The newest two, and the one that the decision in force started from.
    assert [(ref.step, ref.attempt) for ref in run.record.view().checkpoints()] == [(21, 4), (20, 4), (5, 2)]


@pytest.fixture
def killed(storage: str, dataset: str) -> Run:
    """A run that was killed in step 14, with checkpoints of steps 5 and 10."""
    run = Run.begin(storage, dataset)
    run.attempt(2, fault=run.when_committed(10, kill_before(STEP, 14)))
    return run


def newest(run: Run) -> CheckpointRef:
    return run.record.view().checkpoints()[0]


def edit(change: Callable[[bytes], bytes]) -> Callable[[Store, str], None]:
    return lambda store, key: store.put(key, change(store.get(key)))


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


DAMAGE: dict[str, tuple[str, Callable[[Store, str], None]]] = {
    "flipped byte": ("__0_0.distcp", edit(flip)),
    "truncated": ("__1_0.distcp", edit(lambda data: data[:-100])),
    "emptied": ("__0_0.distcp", edit(lambda data: b"")),
    "file missing": ("__1_0.distcp", lambda store, key: store.delete(key)),
    "metadata flipped": (".metadata", edit(flip)),
    "manifest flipped": ("manifest.json", edit(flip)),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_newest_checkpoint_is_named_and_the_next_older_one_taken(killed: Run, whole: Run, kind: str) -> None:
    ref = newest(killed)
    assert ref.step == 10
    file, damage = DAMAGE[kind]
    damage(killed.store, f"{ref.prefix}/{file}")
    killed.attempt(1)
    quarantined = killed.events("quarantine")
    assert len(quarantined) == 1
    assert ref.name in quarantined[0]["text"]
    assert file in quarantined[0]["text"]
    assert killed.log("metrics")[5]["attempt"] == 4, "step 6 must have been trained again, from the checkpoint of 5"
    assert killed.curve() == whole.curve()


def test_without_its_manifest_a_checkpoint_does_not_exist(killed: Run, whole: Run) -> None:
    killed.store.delete(newest(killed).manifest)
    assert newest(killed).step == 5
    killed.attempt(1)
    assert killed.events("quarantine") == []
    assert killed.curve() == whole.curve()


def test_killed_in_the_middle_of_a_save(storage: str, dataset: str, whole: Run) -> None:
    run = Run.begin(storage, dataset)
    assert KILLED in run.attempt(2, fault=kill_before(COMMIT, 2))
    states = {v.checkpoint.step: v.state for v in run.record.view().verdicts()}
    assert states == {5: "usable", 10: "uncommitted"}
    run.attempt(2)
    assert run.curve() == whole.curve()


def test_a_worker_that_stops_in_mid_save_is_waited_for_no_longer_than_the_settings_say(
    tmp_path: Path, dataset: str
) -> None:
    short = ["train.steps=2", "schedule.warmup=0", "eval.every_steps=null", "eval.at_end=false"]
    run = Run.begin(str(tmp_path), dataset, *short, "run.store.retry_for=4", "checkpoint.peer_timeout=4")
    group = run.group(2, fault=Before(WRITE, 1, signal=signal.SIGSTOP, rank=1))
    group.wait_until_ended(0)  # while the other one still stands there
    os.kill(group.pids[1], signal.SIGCONT)
    with pytest.raises(RuntimeError) as caught:
        group.results()
    assert "PliantError: error[checkpoint.peer-silent]" in str(caught.value)
    assert "another worker does not answer" in str(caught.value)
    assert PliantError.exit_code == EXIT_INFRASTRUCTURE
    assert run.record.view().checkpoints() == []


def test_when_all_are_damaged_nothing_is_overwritten_and_nothing_starts_over(killed: Run) -> None:
    for ref in killed.record.view().checkpoints():
        edit(flip)(killed.store, f"{ref.prefix}/__0_0.distcp")
    before = digests(killed.store)
    for _ in range(2):  # the second time both are quarantined already
        with pytest.raises(RuntimeError, match=r"checkpoint\.none-intact") as caught:
            killed.attempt(1)
        assert "step-00000010.a000002" in str(caught.value)
        assert "step-00000005.a000002" in str(caught.value)
    after = digests(killed.store)
    assert {key: after[key] for key in before} == before
    assert [entry["step"] for entry in killed.log("metrics")][:5] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS], ids=["disk full", "read-only"])
def test_a_disk_that_cannot_be_written_during_a_background_save(
    tmp_path: object, dataset: str, whole: Run, code: int
) -> None:
    run = Run.begin(str(tmp_path), dataset, "checkpoint.every_steps=10")
    full = Before(WRITE, 1, error=from_os_error(OSError(code, "no"), "a disk"))
    run.attempt(2, fault=full)
    failed = run.events("checkpoint-failed")
    assert failed
    assert failed[0]["step"] == 10
    assert run.curve() == whole.curve()
    assert newest(run).step == STEPS


CONDITIONS = {
    "threads": ["train.threads=2"],
    "micro_batch": ["train.micro_batch=2"],
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_changed_condition_marks_the_attempt_not_comparable(tmp_path: object, dataset: str, condition: str) -> None:
    run = Run.begin(str(tmp_path), dataset)
    run.attempt(1, fault=kill_before(STEP, 7))
    run.attempt(1, *CONDITIONS[condition], fault=kill_before(STEP, 3))
    (event,) = run.events("not-comparable")
    assert event["attempt"] == 4
    assert condition in event["text"]
    assert [e["comparable"] for e in run.events("start")] == [True, False]


@pytest.mark.parametrize("key", ["torch", "cpu", "device"])
def test_another_machine_or_torch_marks_the_attempt_not_comparable(tmp_path: object, dataset: str, key: str) -> None:
    run = Run.begin(str(tmp_path), dataset)
    run.attempt(1, fault=kill_before(STEP, 7))
    recorded = json.loads(run.store.get("attempts/a000002/conditions.json"))
    run.store.put("attempts/a000002/conditions.json", json.dumps({**recorded, key: "another"}).encode())
    run.attempt(1, fault=kill_before(STEP, 3))
    (event,) = run.events("not-comparable")
    assert f"{key}: 'another'" in event["text"]
