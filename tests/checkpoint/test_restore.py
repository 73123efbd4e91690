"""Restoring: damage is named and the next older checkpoint is taken; what cannot be read is not damage."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from pliant.checkpoint.reader import OpenCheckpoint, RestoredCheckpoint, check_parameters, restore
from pliant.checkpoint.removal import remove_checkpoint
from pliant.checkpoint.verify import verify_checkpoints
from pliant.errors import ConfigError, DamageError, FencedError, PliantError, StorageError
from pliant.storage.layout import CheckpointRef, Marker
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from tests.checkpoint.group import run
from tests.checkpoint.models import State, build, whole_state
from tests.checkpoint.saving import commit, flip, look

OLDER, NEWER = CheckpointRef(1, 1), CheckpointRef(2, 1)
SHARDS, METADATA, MANIFEST = "__0_0.distcp", ".metadata", "manifest.json"

Quarantined = list[tuple[CheckpointRef, str]]


def _restore(store: Store, **given: Any) -> tuple[RestoredCheckpoint | None, State, Quarantined]:
    """On every rank of a group, or alone."""
    model, optimizer = build(dist.is_initialized(), seed=5)
    group = dist.group.WORLD if dist.is_initialized() else None
    quarantined: Quarantined = []

    def quarantine(ref: CheckpointRef, reason: str) -> None:
        quarantined.append((ref, reason))
        store.put(Marker("quarantine", ref.name, 1).key, b"{}")

    arguments: dict[str, Any] = {
        "group": group,
        "load": lambda checkpoint: checkpoint.load(model, optimizer),
        "on_quarantine": quarantine,
    }
    restored = restore(store, lambda: look(store), **(arguments | given))
    if restored is not None:
        check_parameters(restored.manifest, model, group)
    return restored, whole_state(model, optimizer), quarantined


def _edit(store: Store, name: str, change: Callable[[bytes], bytes]) -> None:
    key = f"{NEWER.prefix}/{name}"
    store.put(key, change(store.get(key)))


DAMAGE: dict[str, tuple[Callable[[Store], None], str]] = {
    "a bit of the shards": (lambda s: flip(s, NEWER, SHARDS), f"{SHARDS} differs from its digest"),
    "a bit of the metadata": (lambda s: flip(s, NEWER, METADATA), f"{METADATA} differs from its digest"),
    "a bit of the manifest": (lambda s: flip(s, NEWER, MANIFEST), f"{MANIFEST}: it "),
    "shards truncated": (lambda s: _edit(s, SHARDS, lambda d: d[:-1]), "bytes where the manifest says"),
    "shards too long": (lambda s: _edit(s, SHARDS, lambda d: d + b"\0"), "bytes where the manifest says"),
    "shards emptied": (lambda s: _edit(s, SHARDS, lambda d: b""), f"{SHARDS} has 0 bytes"),
    "shards missing": (lambda s: s.delete(f"{NEWER.prefix}/{SHARDS}"), f"{SHARDS} is missing"),
    "metadata truncated": (lambda s: _edit(s, METADATA, lambda d: d[:100]), f"{METADATA} has 100 bytes"),
    "metadata missing": (lambda s: s.delete(f"{NEWER.prefix}/{METADATA}"), f"{METADATA} is missing"),
    "manifest truncated": (lambda s: _edit(s, MANIFEST, lambda d: d[:-9]), f"{MANIFEST}: it cannot be read"),
    "manifest emptied": (lambda s: _edit(s, MANIFEST, lambda d: b""), f"{MANIFEST}: it cannot be read"),
    "manifest garbage": (lambda s: _edit(s, MANIFEST, lambda d: b"\xff" * 64), f"{MANIFEST}: it cannot be read"),
    "a digit of the state": (
        lambda s: _edit(s, MANIFEST, lambda d: d.replace(b'"position": 14', b'"position": 15')),
        f"{MANIFEST}: it differs from its digest",
    ),
    "another checkpoint's manifest": (
        lambda s: s.put(NEWER.manifest, s.get(OLDER.manifest)),
        f"{MANIFEST}: it is that of step 1, attempt 1",
    ),
}


@pytest.fixture
def states(store: Store) -> list[State]:
    """Two checkpoints in the store, OLDER and NEWER; what was saved in each."""
    return [commit(store, 1), commit(store, 2)]


def test_nothing_committed_is_a_fresh_start(store: Store) -> None:
    restored, _, _ = _restore(store)
    assert restored is None


def test_the_newest_is_restored(store: Store, states: list[State]) -> None:
    restored, state, quarantined = _restore(store)
    assert restored is not None
    assert (restored.ref, restored.skipped, quarantined) == (NEWER, (), [])
    assert restored.manifest.state == {"step": 2, "position": 14}
    assert state == states[1]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_and_the_next_older_one_is_taken(store: Store, states: list[State], damage: str) -> None:
    harm, words = DAMAGE[damage]
    harm(store)
    restored, state, quarantined = _restore(store)
    assert restored is not None
    assert restored.ref == OLDER
    assert state == states[0]
    [(ref, reason)] = quarantined
    assert ref == NEWER
    assert words in reason
    assert [(s.ref, s.reason) for s in restored.skipped] == [(NEWER, reason)]
    again, _, quarantined = _restore(store)  # known now, and not read again
    assert again is not None
    assert (again.ref, again.skipped, quarantined) == (OLDER, (), [])


def test_without_a_manifest_there_is_no_checkpoint(store: Store, states: list[State]) -> None:
    store.delete(NEWER.manifest)
    restored, state, quarantined = _restore(store)
    assert restored is not None
    assert (restored.ref, quarantined) == (OLDER, [])
    assert state == states[0]


def test_all_damaged_never_starts_over(store: Store, states: list[State]) -> None:
    flip(store, OLDER, SHARDS)
    store.delete(f"{NEWER.prefix}/{SHARDS}")
    for _ in range(2):  # the second time they are quarantined already
        with pytest.raises(DamageError, match=r"checkpoint\.none-intact") as caught:
            _restore(store)
        assert OLDER.name in str(caught.value)
        assert NEWER.name in str(caught.value)
        assert caught.value.exit_code == 4


def test_several_kinds_of_damage_are_all_named(store: Store, states: list[State]) -> None:
    flip(store, NEWER, SHARDS)
    store.delete(f"{NEWER.prefix}/{METADATA}")
    _, _, [(_, reason)] = _restore(store)
    assert reason == f"{METADATA} is missing; {SHARDS} differs from its digest"


def test_what_is_marked_for_removal_is_as_good_as_any(store: Store, states: list[State]) -> None:
    store.put(Marker("delete", OLDER.name, 1).key, b"{}")
    flip(store, NEWER, SHARDS)
    restored, state, _ = _restore(store)
    assert restored is not None
    assert restored.ref == OLDER
    assert state == states[0]


def test_a_forged_metadata_is_not_unpickled(local_store: Store, tmp_path: Path) -> None:
    commit(local_store, 2)
    _edit(local_store, METADATA, lambda _: pickle.dumps(_Touch(tmp_path / "touched")))
    with pytest.raises(DamageError):
        _restore(local_store)
    assert not (tmp_path / "touched").exists()


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("method", ["get_range", "head", "get", "list"])
def test_storage_that_fails_is_not_damage(local_store: Store, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    commit(local_store, 2)

    def unavailable(*_: Any, **__: Any) -> None:
        raise StorageError("storage.unavailable", "no answer")

    monkeypatch.setattr(Store, method, unavailable)
    quarantined: Quarantined = []
    with pytest.raises(StorageError):
        _restore(local_store, on_quarantine=lambda ref, reason: quarantined.append((ref, reason)))
    assert quarantined == []


def test_a_model_that_does_not_fit_is_no_damage(local_store: Store) -> None:
    commit(local_store, 2)
    model, optimizer = build(sharded=False, width=9)
    with pytest.raises(ConfigError, match="embedding"):
        _restore(local_store, load=lambda checkpoint: checkpoint.load(model, optimizer))
    assert look(local_store).checkpoints() == [NEWER]


def test_parameters_that_are_not_those_saved_are_noticed(local_store: Store) -> None:
    commit(local_store, 2)
    with pytest.raises(DamageError, match=r"checkpoint\.parameters"):
        _restore(local_store, load=lambda checkpoint: None)


def test_an_error_while_loading_keeps_its_words(local_store: Store) -> None:
    commit(local_store, 2)

    def load(checkpoint: OpenCheckpoint) -> None:
        raise ValueError("own words")

    with pytest.raises(PliantError, match="loading failed on rank 0: ValueError: own words"):
        _restore(local_store, load=load)


@pytest.mark.parametrize("world_size", [2, 3])
def test_all_ranks_decide_alike(store: Store, world_size: int) -> None:
    saved = [run(2, commit, store, step)[0] for step in (1, 2)]
    flip(store, NEWER, "__1_0.distcp")
    results = run(world_size, _restore, store)
    for rank, (restored, state, quarantined) in enumerate(results):
        assert restored.ref == OLDER
        assert state == saved[0]
        assert quarantined == ([(NEWER, "__1_0.distcp differs from its digest")] if rank == 0 else [])
        assert restored.skipped == results[0][0].skipped


def test_verify_reports_on_every_checkpoint(store: Store, states: list[State]) -> None:
    commit(store, 3)
    flip(store, NEWER, SHARDS)
    store.put(f"{OLDER.prefix}/note.txt", b"own")
    store.put("checkpoints/step-00000004.a000001/__0_0.distcp", b"cut off")
    refs = [verdict.checkpoint for verdict in look(store).verdicts()]
    reports = {report.ref.step: report for report in verify_checkpoints(store, refs)}
    assert {step: report.status for step, report in reports.items()} == {
        4: "uncommitted",
        3: "intact",
        2: "damaged",
        1: "intact",
    }
    assert reports[2].problems == (f"{SHARDS} differs from its digest",)
    assert reports[1].stray == ("note.txt",)
    assert reports[3].bytes > 0


def test_verify_tells_unreadable_from_damaged(local_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(local_store, 2)

    def unavailable(*_: Any) -> None:
        raise StorageError("storage.unavailable", "no answer")

    monkeypatch.setattr(Store, "get_range", unavailable)
    [report] = verify_checkpoints(local_store, [NEWER])
    assert report.status == "unreadable"
    assert "no answer" in report.problems[0]


def test_removal_takes_the_manifest_first(store: Store, states: list[State]) -> None:
    looks: list[list[CheckpointRef]] = []
    remove_checkpoint(store, NEWER, lambda: looks.append(look(store).checkpoints()))
    assert looks[0] == [NEWER, OLDER]
    assert looks[1:] == [[OLDER]] * (len(looks) - 1)
    assert store.list(NEWER.prefix) == []


def test_a_fenced_writer_removes_nothing(store: Store, states: list[State]) -> None:
    def check() -> None:
        raise FencedError("record.fenced", "a newer attempt has claimed the run")

    with pytest.raises(FencedError):
        remove_checkpoint(store, NEWER, check)
    assert look(store).checkpoints() == [NEWER, OLDER]


def test_many_pieces_are_read_in_order(local_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(local_store, 2)
    monkeypatch.setattr("pliant.checkpoint.verify._PIECE", 1000)
    assert [report.status for report in verify_checkpoints(local_store, [NEWER])] == ["intact"]
    store = Store(local_store.uri, StorageSettings())
    flip(store, NEWER, SHARDS)
    assert [report.status for report in verify_checkpoints(store, [NEWER])] == ["damaged"]
