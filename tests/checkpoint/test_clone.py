"""A run that goes on from another run's checkpoint: a verified copy, pinned until it is there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch

from pliant.checkpoint.clone import begin_clone, checkpoint_at, clone_checkpoint, finish_clone, pin, release
from pliant.checkpoint.manifest import CheckpointManifest, LogPosition, ManifestFields
from pliant.checkpoint.reader import restore
from pliant.checkpoint.settings import CheckpointSettings
from pliant.checkpoint.verify import read_manifest, verify_checkpoints
from pliant.errors import DamageError, FencedError, StorageError, UsageError
from pliant.storage.attempts import Attempt
from pliant.storage.layout import CheckpointRef
from pliant.storage.record import RunRecord
from pliant.storage.store import Store
from pliant.train.retire import Retirement
from tests.checkpoint.models import State, build, train, whole_state
from tests.checkpoint.saving import flip, save, writer

SHARDS = "__0_0.distcp"
SAMPLES = 100
"""A step's."""


class Donor(NamedTuple):
    """A run that trains and prunes: ``keep_last`` 2, nothing else is kept."""

    record: RunRecord
    group: Attempt
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer

    @property
    def store(self) -> Store:
        return self.record.store

    def train(self, *steps: int) -> None:
        """Saves after each of these steps, and retires what is no longer needed."""
        retire = Retirement(
            self.record, self.group, CheckpointSettings(keep_last=2, keep_best=0), main_metric="loss", better="min"
        )
        saving = writer(self.store, self.group.number)
        for step in steps:
            train(self.model, self.optimizer, 1)
            state = {"step": step, "data": {"samples": step * SAMPLES}}
            logs = {"metrics": LogPosition(self.group.number, step)}
            fields = ManifestFields(state, "data", "config", "code", logs, {"loss": 1 / step})
            save(saving, step, self.model, self.optimizer, fields=fields, on_commit=lambda result: retire())
        saving.close()

    def ref(self, step: int) -> CheckpointRef:
        return CheckpointRef(step, self.group.number)


@pytest.fixture
def donor(store: Store) -> Donor:
    return _donor(store)


def _donor(store: Store) -> Donor:
    record = RunRecord.create(store.child("donor"), {"name": "donor", "lanes": 4, "sweep": {"trial": "t0001"}})
    record.store.put("data/train.json", b"the dataset")
    group = record.claim_group(record.claim_driver().number)
    return Donor(record, group, *build(False))


def _begin(donor: Donor, target: Store, step: int) -> tuple[RunRecord, Attempt]:
    record = begin_clone(donor.store, donor.ref(step), target, {"name": "clone", "clone": {"trial": "t0001"}})
    return record, record.claim_group(record.claim_driver().number)


def _restored(record: RunRecord) -> tuple[CheckpointManifest, State]:
    model, optimizer = build(False, seed=5)
    found = restore(record.store, record.view, group=None, load=lambda checkpoint: checkpoint.load(model, optimizer))
    assert found is not None
    return found.manifest, whole_state(model, optimizer)


def _equal(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(a, b) if isinstance(a := one[key], torch.Tensor) else a == b for key, b in other.items()
    )


def _usable(record: RunRecord) -> list[int]:
    return [ref.step for ref in record.view().checkpoints()]


def test_the_copy_is_what_a_restore_finds(store: Store, donor: Donor) -> None:
    donor.train(1, 2)
    saved = whole_state(donor.model, donor.optimizer)
    ref = checkpoint_at(donor.store, 2 * SAMPLES)
    assert ref == donor.ref(2)
    record, attempt = _begin(donor, store.child("clone"), 2)
    assert finish_clone(record, attempt) == CheckpointRef(2, attempt.number)
    manifest, state = _restored(record)
    assert _equal(state, saved)
    original = read_manifest(donor.store, ref)
    assert (manifest.state, manifest.files, manifest.metrics) == (original.state, original.files, original.metrics)
    assert (manifest.parameter_digest, manifest.data_digest) == (original.parameter_digest, original.data_digest)
    assert manifest.logs == {}  # positions in the donor's logs
    assert [r.status for r in verify_checkpoints(record.store, record.view().checkpoints())] == ["intact"]
    assert not donor.record.view().pins
    assert record.store.get("data/train.json") == b"the dataset"
    identity = RunRecord.open(record.store).identity
    assert identity["clone"] == {
        "trial": "t0001", "run": donor.store.uri, "checkpoint": ref.name, "samples": 2 * SAMPLES,
    }  # fmt: skip
    assert (identity["name"], identity["lanes"]) == ("clone", 4)
    assert identity["run_id"] != donor.record.run_id
    # What it decides next accepts the copy as its own.
    decision = attempt.restore(manifest.ref, {})
    assert decision.checkpoints == (manifest.ref,)
    for info in donor.store.list():  # it is not needed any more
        donor.store.delete(info.key)
    assert finish_clone(record, record.claim_group(attempt.driver)) is None


def test_a_run_that_is_no_clone_copies_nothing(donor: Donor) -> None:
    donor.train(1)
    assert finish_clone(donor.record, donor.group) is None
    assert _usable(donor.record) == [1]


def test_the_donor_keeps_what_is_pinned_while_it_trains_on(store: Store, donor: Donor) -> None:
    donor.train(1, 2)
    record, attempt = _begin(donor, store.child("clone"), 2)
    other = store.child("other")
    pin(donor.store, donor.ref(2), other)
    donor.train(3, 4, 5, 6, 7)
    assert 2 in _usable(donor.record)
    assert 3 not in _usable(donor.record)
    # A driver that goes on with the donor decides anew what counts; the pin is none of its business.
    again = donor.record.claim_group(donor.record.claim_driver().number)
    again.restore(donor.ref(7), {})
    resumed = donor._replace(group=again)
    resumed.train(8, 9, 10)
    assert 2 in _usable(donor.record)
    assert finish_clone(record, attempt) is not None
    resumed.train(11, 12, 13)
    assert 2 in _usable(donor.record)  # for the other
    release(donor.store, donor.ref(2), other)
    resumed.train(14, 15, 16)
    assert 2 not in _usable(donor.record)
    assert not donor.store.list(donor.ref(2).prefix)
    assert _restored(record)[0].step == 2


def test_a_pin_of_a_process_that_died_stands_until_the_clone_is_made(store: Store, donor: Donor) -> None:
    donor.train(1, 2)
    _begin(donor, store.child("clone"), 2)  # and dies
    donor.train(3, 4, 5, 6)
    record, attempt = _begin(donor, store.child("clone"), 2)
    assert finish_clone(record, attempt) is not None
    donor.train(7, 8, 9)
    assert 2 not in _usable(donor.record)
    assert _restored(record)[0].step == 2


def test_a_pin_of_a_process_that_died_after_the_copy_is_released_by_the_next(store: Store, donor: Donor) -> None:
    donor.train(1)
    record, attempt = _begin(donor, store.child("clone"), 1)
    copy = clone_checkpoint(donor.store, donor.ref(1), record.store, attempt)  # and dies
    assert donor.record.view().pins == {donor.ref(1)}
    assert finish_clone(record, record.claim_group(record.claim_driver().number)) is None
    assert not donor.record.view().pins
    assert record.view().checkpoints() == [copy]


@contextmanager
def _interrupted(target: Store, at: str, error: Exception) -> Iterator[None]:
    """What is put under a name raises, once it is there or instead."""
    put = Store.put_if_absent

    def failing(self: Store, key: str, data: bytes) -> bool:
        if self.uri == target.uri and key.endswith(at):
            raise error
        return put(self, key, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "put_if_absent", failing)
        yield


def test_a_copy_that_broke_off_does_not_count_and_is_made_again(store: Store, donor: Donor) -> None:
    donor.train(1, 2)
    record, attempt = _begin(donor, store.child("clone"), 2)
    gone = StorageError("storage.unavailable", "gone")
    with _interrupted(record.store, "manifest.json", gone), pytest.raises(StorageError):
        finish_clone(record, attempt)
    assert _usable(record) == []
    donor.train(3, 4, 5, 6)
    again = record.claim_group(record.claim_driver().number)
    copy = finish_clone(record, again)
    assert copy == CheckpointRef(2, again.number)
    with pytest.raises(FencedError):  # the first one, should it still be there
        finish_clone(record, attempt)
    assert [v.checkpoint for v in record.view().verdicts() if v.state == "usable"] == [copy]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda store, ref: flip(store, ref, SHARDS), f"{SHARDS} differs from its digest"),
        (lambda store, ref: store.delete(f"{ref.prefix}/{SHARDS}"), f"{SHARDS} is missing"),
        (lambda store, ref: store.put(f"{ref.prefix}/{SHARDS}", b"short"), f"{SHARDS} has 5 bytes"),
    ],
    ids=["a bit", "missing", "short"],
)
def test_a_damaged_checkpoint_is_named_and_quarantined(store: Store, donor: Donor, damage: Any, reason: str) -> None:
    donor.train(1, 2)
    record, attempt = _begin(donor, store.child("clone"), 2)
    damage(donor.store, donor.ref(2))
    with pytest.raises(DamageError, match=reason) as raised:
        finish_clone(record, attempt)
    assert (raised.value.code, raised.value.location) == ("clone.damaged", f"{donor.store.uri}/{donor.ref(2).prefix}")
    assert _usable(donor.record) == [1]
    assert [v.state for v in donor.record.view().verdicts()] == ["quarantined", "usable"]
    assert not donor.record.view().pins
    assert _usable(record) == []
    # The caller takes an older one, for another run: this one is bound to what it was begun from.
    with pytest.raises(DamageError, match="found it damaged"):
        finish_clone(record, attempt)
    record, attempt = _begin(donor, store.child("second"), 1)
    assert finish_clone(record, attempt) is not None


def test_a_damaged_manifest_begins_no_run(store: Store, donor: Donor) -> None:
    donor.train(1, 2)
    flip(donor.store, donor.ref(2), "manifest.json")
    with pytest.raises(DamageError, match=r"no checkpoint of 200 samples can be read.*\n  step-00000002"):
        checkpoint_at(donor.store, 2 * SAMPLES)
    with pytest.raises(DamageError, match=r"manifest\.json"):
        _begin(donor, store.child("clone"), 2)
    assert store.child("clone").list() == []
    assert _usable(donor.record) == [1]
    assert not donor.record.view().pins


def test_what_is_not_there_cannot_be_cloned(store: Store, donor: Donor) -> None:
    donor.train(1, 2)
    with pytest.raises(UsageError, match="no checkpoint of 300 samples"):
        checkpoint_at(donor.store, 3 * SAMPLES)
    with pytest.raises(UsageError, match=r"no checkpoint step-00000007"):
        _begin(donor, store.child("clone"), 7)
    assert not donor.record.view().pins
    _begin(donor, store.child("clone"), 2)
    with pytest.raises(UsageError, match="there is a run of this name already"):
        _begin(donor, store.child("clone"), 1)
    assert donor.record.view().pins == {donor.ref(2)}


def test_large_files_pass_in_pieces(store: Store, donor: Donor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliant.checkpoint.verify._PIECE", 1000)
    donor.train(1)
    largest = 0
    read, lock = Store.get_range, threading.Lock()

    def counted(self: Store, key: str, start: int, stop: int) -> bytes:
        nonlocal largest
        with lock:
            largest = max(largest, stop - start)
        return read(self, key, start, stop)

    record, attempt = _begin(donor, store.child("clone"), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "get_range", counted)
        finish_clone(record, attempt)
    assert largest == 1000
    assert [r.status for r in verify_checkpoints(record.store, record.view().checkpoints())] == ["intact"]
