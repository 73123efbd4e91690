"""A state saved at one world size is loaded at every other one, bit for bit; what does not fit is named."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import FileSystemReader, load
from torch.optim import AdamW

from pliant.checkpoint.dcp import ShardReader, StateSaver
from pliant.checkpoint.manifest import FileEntry
from pliant.checkpoint.ranks import Ranks
from pliant.checkpoint.staging import HostCopy
from pliant.checkpoint.state import load_model_and_optimizer, model_and_optimizer_state
from pliant.errors import ConfigError, StorageError
from pliant.storage.store import Store
from pliant.train.optim import DecoupledSGD
from tests.checkpoint.group import run
from tests.checkpoint.models import State, build, train, whole_state

Files = dict[str, FileEntry]


def _save(store: Store, kind: str, steps: int = 3) -> tuple[Files, State]:
    """On every rank of a group, or alone."""
    model, optimizer = build(dist.is_initialized(), kind)
    train(model, optimizer, steps)
    ranks = Ranks(dist.group.WORLD if dist.is_initialized() else None)
    files = StateSaver(ranks).save(HostCopy().take(model_and_optimizer_state(model, optimizer)), store)
    return files, whole_state(model, optimizer)


def _load(store: Store, files: Files, kind: str, steps_before: int = 0, steps_after: int = 0) -> State:
    model, optimizer = build(dist.is_initialized(), kind, seed=1)
    train(model, optimizer, steps_before)
    rng = torch.get_rng_state()
    reader = ShardReader(store, files)
    load_model_and_optimizer(reader, reader.read_metadata(), model, optimizer, "here")
    assert torch.equal(rng, torch.get_rng_state())
    train(model, optimizer, steps_after, first=3)
    return whole_state(model, optimizer)


@pytest.mark.parametrize(
    ("kind", "saved_at", "loaded_at"),
    [("adamw", 2, (1, 2, 3, 4)), ("momentum", 2, (1, 2, 3, 4)), ("sgd", 2, (3,)), ("adamw", 3, (2,))],
)
def test_any_world_size_reads_any_other(
    local_store: Store, kind: str, saved_at: int, loaded_at: tuple[int, ...]
) -> None:
    files, saved = run(saved_at, _save, local_store, kind)[0]
    assert set(files) == {".metadata", *(f"__{r}_0.distcp" for r in range(saved_at))}
    for world_size in loaded_at:
        assert run(world_size, _load, local_store, files, kind) == [saved] * world_size
    assert _load(local_store, files, kind) == saved  # without FSDP and without a group


def test_hyperparameters_are_those_of_the_settings_and_not_of_the_checkpoint(local_store: Store) -> None:
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    optimizers = [
        DecoupledSGD([{"params": net.parameters(), "decoupled_decay": decay, "lr_scale": 10 * decay}], lr=decay)
        for decay in (0.1, 0.2)
    ]
    files = StateSaver(Ranks(None)).save(HostCopy().take(model_and_optimizer_state(net, optimizers[0])), local_store)
    reader = ShardReader(local_store, files)
    load_model_and_optimizer(reader, reader.read_metadata(), net, optimizers[1], "here")
    (group,) = optimizers[1].param_groups
    assert (group["decoupled_decay"], group["lr_scale"], group["lr"]) == (0.2, 2.0, 0.2)


def test_a_plain_model_is_read_by_workers(store: Store) -> None:
    files, saved = _save(store, "adamw")
    assert run(2, _load, store, files, "adamw") == [saved] * 2


@pytest.mark.parametrize("kind", ["adamw", "momentum"])
@pytest.mark.parametrize("steps_before", [0, 2])
def test_training_goes_on_as_if_nothing_had_happened(local_store: Store, kind: str, steps_before: int) -> None:
    files, _ = _save(local_store, kind)
    model, optimizer = build(sharded=False, kind=kind)
    train(model, optimizer, 5)
    assert _load(local_store, files, kind, steps_before, steps_after=2) == whole_state(model, optimizer)


@pytest.mark.parametrize("kind", ["adamw", "momentum"])
def test_an_optimizer_that_never_stepped_stays_so(local_store: Store, kind: str) -> None:
    model, optimizer = build(sharded=False, kind=kind)
    model_and_optimizer_state(model, optimizer)
    assert not optimizer.state
    files, _ = _save(local_store, kind, steps=0)
    assert not any("/" in name for name in _load(local_store, files, kind, steps_before=2))


def test_settings_win_over_the_checkpoint(local_store: Store) -> None:
    files, _ = _save(local_store, "adamw")
    model, _ = build(sharded=False)
    optimizer = AdamW(model.parameters(), lr=0.5, weight_decay=0.25)
    optimizer.param_groups[0]["own_counter"] = 0
    reader = ShardReader(local_store, files)
    load_model_and_optimizer(reader, reader.read_metadata(), model, optimizer, "here")
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]) == (0.5, 0.25)


def test_what_an_optimizer_keeps_in_its_groups_comes_back(local_store: Store) -> None:
    model, optimizer = build(sharded=False)
    train(model, optimizer, 1)
    optimizer.param_groups[0]["own_counter"] = 7
    files = StateSaver(Ranks(None)).save(HostCopy().take(model_and_optimizer_state(model, optimizer)), local_store)
    other, fresh = build(sharded=False, seed=1)
    fresh.param_groups[0]["own_counter"] = 0
    reader = ShardReader(local_store, files)
    load_model_and_optimizer(reader, reader.read_metadata(), other, fresh, "here")
    assert fresh.param_groups[0]["own_counter"] == 7


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torch_reads_it_without_pliant(local_store: Store) -> None:
    _, saved = run(2, _save, local_store, "adamw")[0]
    model, _ = build(sharded=False, seed=1)
    state = {"model": model.state_dict()}
    load(state, storage_reader=FileSystemReader(local_store.local_path()), no_dist=True)
    assert whole_state(model, None) == {name: value for name, value in saved.items() if "/" not in name}


def test_the_same_state_gives_the_same_bytes(local_store: Store) -> None:
    assert _save(local_store.child("a"), "adamw")[0] == _save(local_store.child("b"), "adamw")[0]


def _mismatching(store: Store, files: Files, case: str) -> str:
    width = 9 if case == "shape" else 7
    model, optimizer = build(dist.is_initialized(), "momentum" if case == "optimizer" else "adamw", width=width)
    if case == "missing":
        model.extra = nn.Parameter(torch.ones(3))
    elif case == "left over":
        del model.table
    elif case == "dtype":
        model.table = torch.arange(5)
    before = whole_state(model, None)
    reader = ShardReader(store, files)
    with pytest.raises(ConfigError) as caught:
        load_model_and_optimizer(reader, reader.read_metadata(), model, optimizer, "here")
    assert whole_state(model, None) == before
    return str(caught.value)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            "shape",
            ["different: model.embedding.weight is float32[11, 7], the model's is float32[11, 9]", "… and 2 more"],
        ),
        ("missing", ["missing: model.extra"]),
        ("left over", ["left over: model.table"]),
        ("dtype", ["different: model.table is float32[5], the model's is int64[5]"]),
        ("optimizer", ["torch.optim.adamw.AdamW", "torch.optim.sgd.SGD"]),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_loaded(local_store: Store, case: str, words: list[str]) -> None:
    files, _ = _save(local_store, "adamw")
    text = _mismatching(local_store, files, case)
    assert [word for word in words if word not in text] == []


def test_bytes_that_change_after_verification_are_noticed(local_store: Store) -> None:
    files, saved = _save(local_store, "adamw")
    path = local_store.local_path("__0_0.distcp")
    good = path.read_bytes()
    tensor = good.index(saved["embedding.weight/exp_avg"][2])
    noticed = []
    for position in [tensor, tensor + 99, *range(0, len(good), len(good) // 13)]:
        path.write_bytes(good[:position] + bytes([good[position] ^ 16]) + good[position + 1 :])
        try:
            assert _load(local_store, files, "adamw") == saved  # a byte that means nothing
        except StorageError as error:
            noticed.append((position, error.code))
    assert noticed[:2] == [(tensor, "checkpoint.unstable"), (tensor + 99, "checkpoint.unstable")]
    assert {code for _, code in noticed} == {"checkpoint.unstable"}
    path.write_bytes(good)
    metadata = local_store.local_path(".metadata")
    metadata.write_bytes(metadata.read_bytes()[:-1] + b"!")
    with pytest.raises(StorageError, match=r"checkpoint\.unstable"):
        _load(local_store, files, "adamw")
