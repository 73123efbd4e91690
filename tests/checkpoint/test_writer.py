"""The writer: training waits for a copy only, the manifest comes last, and failures are agreed and survived."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from pliant.checkpoint.digest import named_shards, parameter_digest
from pliant.checkpoint.staging import HostCopy
from pliant.checkpoint.state import model_and_optimizer_state
from pliant.checkpoint.verify import read_manifest, verify_checkpoints
from pliant.checkpoint.writer import CheckpointWriter, SaveResult
from pliant.errors import FencedError, PliantError, StorageError
from pliant.storage.layout import CheckpointRef
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from tests.checkpoint.group import run
from tests.checkpoint.models import build, train, whole_state
from tests.checkpoint.saving import commit, fields, look, save, writer

FULL = StorageError("storage.full", "no space is left for writing")
FENCED = FencedError("record.fenced", "a newer attempt has claimed the run")


class FullStore(Store):
    """Refuses to write while the file ``full`` exists."""

    def child(self, prefix: str) -> FullStore:
        return FullStore(f"{self.uri}/{prefix}", self.settings)

    def open_writer(self, key: str) -> Any:
        if (Path(self.uri).parents[2] / "full").exists():
            raise FULL
        return super().open_writer(key)


def _outcomes(saving: CheckpointWriter) -> list[tuple[int, str, int]]:
    return [(result.ref.step, result.outcome, result.tries) for result in saving.poll()]


def _settle(saving: CheckpointWriter) -> SaveResult:
    result = saving.wait(timeout=60)
    assert result is not None
    return result


def _save_and_train_on(store: Store) -> tuple[Any, Any, Any]:
    model, optimizer = build(sharded=True)
    train(model, optimizer, 2)
    saved, expected = (
        whole_state(model, optimizer),
        parameter_digest(named_shards(model), dist.group.WORLD, dist.get_rank()),
    )
    saving = writer(store, attempt=3)
    release = threading.Event()
    save(saving, 2, model, optimizer, before_commit=release.wait)
    assert saving.wait(timeout=0) is None
    train(model, optimizer, 3)  # while the first one is being written
    release.set()
    result = saving.wait()
    saving.close()
    return result, saved, expected


def test_what_is_saved_is_the_state_at_the_call(store: Store) -> None:
    (result, saved, digest), (other, _, _) = run(2, _save_and_train_on, store)
    ref = CheckpointRef(2, 3)
    assert (
        (result.ref, result.outcome, result.tries) == (other.ref, other.outcome, other.tries) == (ref, "committed", 1)
    )
    manifest = read_manifest(store, ref)
    assert result.manifest == other.manifest == manifest
    assert manifest.parameter_digest == digest
    assert (manifest.world_size, manifest.state, manifest.metrics) == (2, fields(2).state, fields(2).metrics)
    sizes = {info.key.rpartition("/")[2]: info.size for info in store.list(ref.prefix)}
    assert {name: entry.size for name, entry in manifest.files.items()} == {
        n: s for n, s in sizes.items() if n != "manifest.json"
    }
    assert result.bytes == manifest.total_bytes
    assert saved


def test_the_manifest_comes_last_after_the_check(local_store: Store) -> None:
    seen: list[tuple[str, list[str]]] = []

    def note(what: str) -> None:
        seen.append((what, sorted(info.key.rpartition("/")[2] for info in local_store.list("checkpoints"))))

    saving = writer(local_store, check=lambda: note("check"))
    save(saving, 1, *build(False), before_commit=lambda: note("flush"), on_commit=lambda result: note(result.outcome))
    saving.wait()
    saving.close()
    files = [".metadata", "__0_0.distcp"]
    assert seen == [("flush", files), ("check", files), ("committed", [*files, "manifest.json"])]


def _fenced(store: Store) -> str:
    def check() -> None:
        raise FENCED

    saving = writer(store, check=check)
    save(saving, 1, *build(True))
    with pytest.raises(FencedError):
        saving.wait()
    with pytest.raises(FencedError):
        saving.poll()
    with pytest.raises(FencedError):
        save(saving, 2, *build(True))
    saving.close()
    return "fenced"


def test_a_fenced_writer_commits_nothing_and_says_so_on_all_ranks(local_store: Store) -> None:
    assert run(2, _fenced, local_store) == ["fenced"] * 2
    assert look(local_store).checkpoints() == []


def _full_on_one_rank(uri: str, end: str) -> list[tuple[int, str, int]]:
    rank = dist.get_rank()
    saving = writer((FullStore if rank == 1 else Store)(uri, StorageSettings(retry_for=0)))
    model, optimizer = build(True)
    save(saving, 1, model, optimizer)
    failed = _settle(saving)
    assert (failed.outcome, failed.bytes, failed.manifest) == ("failed", 0, None)
    assert "storage.full" in failed.reason
    train(model, optimizer, 1)  # goes on
    if end == "newer save":
        save(saving, 2, model, optimizer)
    if end != "close":
        dist.barrier()
        if rank == 0:
            (Path(uri).parent / "full").unlink()
        while _settle(saving).outcome == "failed":
            threading.Event().wait(0.05)
    saving.close()
    return _outcomes(saving)


@pytest.mark.parametrize(
    ("end", "settled"),
    [("retry", [(1, "committed")]), ("newer save", [(1, "dropped"), (2, "committed")]), ("close", [(1, "dropped")])],
)
def test_a_full_disk_on_one_rank(tmp_path: Path, end: str, settled: list[tuple[int, str]]) -> None:
    (tmp_path / "full").touch()
    uri = str(tmp_path / "run")
    outcomes, others = run(2, _full_on_one_rank, uri, end)
    assert outcomes == others
    assert outcomes[0] == (1, "failed", 1)
    assert [(step, outcome) for step, outcome, _ in outcomes if outcome != "failed"] == settled
    for step, outcome in settled:  # every failure is reported; how many tries there are is a matter of time
        tries = [tries for of, what, tries in outcomes if of == step and what != "dropped"]
        assert tries == list(range(1, len(tries) + 1)), outcome
    committed = [CheckpointRef(step, 1) for step, outcome in settled if outcome == "committed"]
    assert look(Store(uri, StorageSettings())).checkpoints() == committed


class _Uncopyable:
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot be copied")


def _broken_on_one_rank(store: Store) -> str:
    model, optimizer = build(True)
    own = _Uncopyable() if dist.get_rank() == 1 else 1
    saving = writer(store)
    save(saving, 1, model, optimizer, state=model_and_optimizer_state(model, optimizer) | {"own": own})
    with pytest.raises(PliantError, match="copying the state failed on rank 1: TypeError: cannot be copied") as caught:
        saving.wait()
    saving.close()
    return caught.value.code


def test_a_rank_that_fails_takes_no_other_into_a_hang(local_store: Store) -> None:
    assert run(2, _broken_on_one_rank, local_store) == ["checkpoint.failed"] * 2


def test_a_save_while_one_is_running_waits_for_it(local_store: Store) -> None:
    running, release = threading.Event(), threading.Event()
    order = []

    def hold() -> None:
        running.set()
        release.wait()

    saving = writer(local_store)
    model, optimizer = build(False)
    save(saving, 1, model, optimizer, before_commit=hold, on_commit=lambda result: order.append("first committed"))
    running.wait()
    assert saving.busy
    threading.Timer(0.2, release.set).start()
    save(saving, 2, model, optimizer)
    order.append("second copied")
    result = _settle(saving)
    saving.close()
    assert order == ["first committed", "second copied"]
    assert not saving.busy
    assert result.waited_s > 0
    assert [r.ref.step for r in saving.poll()] == [1, 2]


def test_the_same_step_again(local_store: Store) -> None:
    saving = writer(local_store)
    model, optimizer = build(False)
    for _ in range(2):
        save(saving, 1, model, optimizer)
        assert _settle(saving).outcome == "committed"
    save(saving, 1, model, optimizer, fields=fields(2))
    with pytest.raises(PliantError, match=r"checkpoint\.exists"):
        saving.wait()
    saving.close()


def test_a_commit_whose_answer_was_lost_is_found_at_the_next_try(local_store: Store) -> None:
    calls = []

    class Unanswering(Store):
        def child(self, prefix: str) -> Unanswering:
            return Unanswering(f"{self.uri}/{prefix}", self.settings)

        def put_if_absent(self, key: str, data: bytes) -> bool:
            calls.append(super().put_if_absent(key, data))
            raise StorageError("storage.unavailable", "no answer")

    saving = writer(Unanswering(local_store.uri, local_store.settings))
    save(saving, 1, *build(False))
    while _settle(saving).outcome == "failed":
        threading.Event().wait(0.05)
    assert calls == [True]
    assert _outcomes(saving) == [(1, "failed", 1), (1, "committed", 2)]
    saving.close()


def test_a_commit_that_arrives_late_is_as_good_as_a_new_one(local_store: Store) -> None:
    late: list[tuple[Store, str, bytes]] = []

    class Delaying(Store):
        def child(self, prefix: str) -> Delaying:
            return Delaying(f"{self.uri}/{prefix}", self.settings)

        def put_if_absent(self, key: str, data: bytes) -> bool:
            if not late:
                late.append((self, key, data))
                raise StorageError("storage.unavailable", "no answer")
            store, key, first = late[0]
            store.put(key, first)
            return super().put_if_absent(key, data)

    saving = writer(Delaying(local_store.uri, local_store.settings))
    save(saving, 1, *build(False))
    while _settle(saving).outcome == "failed":
        threading.Event().wait(0.05)
    saving.close()
    assert _outcomes(saving) == [(1, "failed", 1), (1, "committed", 2)]
    assert local_store.get(CheckpointRef(1, 1).manifest) == late[0][2]
    [report] = verify_checkpoints(local_store, [CheckpointRef(1, 1)])
    assert report.status == "intact"


@pytest.mark.parametrize("error", [FULL, FENCED])
def test_errors_after_the_commit_do_not_undo_it(local_store: Store, error: PliantError) -> None:
    def fail(result: SaveResult) -> None:
        raise error

    saving = writer(local_store)
    save(saving, 1, *build(False), on_commit=fail)
    assert saving.close()
    if isinstance(error, FencedError):
        with pytest.raises(FencedError):
            saving.poll()
    else:
        assert _outcomes(saving) == [(1, "committed", 1)]
    assert look(local_store).checkpoints() == [CheckpointRef(1, 1)]


def test_buffers_are_reused_and_reserved_beforehand() -> None:
    state = {"a": torch.ones(3, 4), "b": {"c": torch.zeros(0, 2), "d": torch.tensor(2.0)}, "n": [1, 2]}
    copy = HostCopy()
    copy.reserve(state)
    first = copy.take(state)
    where = first["a"].data.data_ptr()
    state["a"] += 1
    state["n"].append(3)
    assert torch.equal(first["a"].data, torch.ones(3, 4))
    assert first["n"] == [1, 2]
    assert copy.bytes == 12 * 4 + 4
    second = copy.take(state)
    assert second["a"].data.data_ptr() == where
    assert torch.equal(second["a"].data, torch.full((3, 4), 2.0))


def test_reserve_runs_beside_training_and_the_save_waits_for_it(local_store: Store) -> None:
    saving = writer(local_store)
    model, optimizer = build(False)
    train(model, optimizer, 1)
    saving.reserve(model_and_optimizer_state(model, optimizer))
    save(saving, 1, model, optimizer)
    assert _settle(saving).outcome == "committed"
    saving.close()


_KILLED = """
import sys, threading
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from tests.checkpoint.models import build
from tests.checkpoint.saving import save, writer

def hold():
    print("shards are written", flush=True)
    threading.Event().wait()

saving = writer(Store(sys.argv[1], StorageSettings()))
save(saving, 9, *build(False), before_commit=hold)
saving.wait()
"""


def test_killed_in_mid_save_leaves_nothing_that_counts(store: Store) -> None:
    commit(store, 1)
    command = [sys.executable, "-c", _KILLED, store.uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"shards are written\n"
        finally:
            process.kill()
    verdicts = {v.checkpoint.step: v.state for v in look(store).verdicts()}
    assert verdicts == {9: "uncommitted", 1: "usable"}


_DYING = """
import os, sys
import torch.distributed as dist
from pliant.errors import PliantError
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from tests.checkpoint.models import build
from tests.checkpoint.saving import save, writer

class Dying(Store):
    def child(self, prefix):
        return Dying(f"{self.uri}/{prefix}", self.settings)

    def open_writer(self, key):
        os._exit(7)

rank, rendezvous, uri = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", store=dist.FileStore(rendezvous, 2), rank=rank, world_size=2)
saving = writer((Store, Dying)[rank](uri, StorageSettings()))
save(saving, 1, *build(False))
try:
    saving.wait()
except PliantError as error:
    print(error.code, flush=True)
assert saving.close()
os._exit(0)
"""


def test_a_rank_that_dies_in_mid_save_leaves_the_others_an_error(local_store: Store, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _DYING]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "rendezvous"), local_store.uri],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        for rank in range(2)
    ]
    try:
        output, _ = ranks[0].communicate(timeout=100)
        assert (output, ranks[0].returncode, ranks[1].wait(timeout=100)) == (b"checkpoint.broken-off\n", 0, 7)
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    assert look(local_store).checkpoints() == []
