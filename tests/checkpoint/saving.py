"""Saving, and looking at what is stored, for the tests of writer and reader."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from pliant.checkpoint.digest import named_parameters
from pliant.checkpoint.manifest import LogPosition, ManifestFields
from pliant.checkpoint.state import model_and_optimizer_state
from pliant.checkpoint.writer import CheckpointWriter, SaveResult
from pliant.storage.layout import CheckpointRef
from pliant.storage.store import Store
from pliant.storage.view import Claim, View
from tests.checkpoint.models import State, build, train, whole_state


def writer(store: Store, attempt: int = 1, **given: Any) -> CheckpointWriter:
    """A writer with a group of its own, or none in a test that runs alone."""
    group = dist.new_group(backend="gloo") if dist.is_initialized() else None
    return CheckpointWriter(store, attempt, group=group, **({"check": lambda: None} | given))


def fields(step: int) -> ManifestFields:
    logs = {"metrics": LogPosition(1, step)}
    return ManifestFields({"step": step, "position": 7 * step}, "data", "config", "code", logs, {"loss": 1 / step})


def save(writer: CheckpointWriter, step: int, model: nn.Module, optimizer: Optimizer, **given: Any) -> None:
    arguments: dict[str, Any] = {
        "step": step,
        "state": model_and_optimizer_state(model, optimizer),
        "digest_names": [name for name, _ in named_parameters(model)],
        "fields": fields(step),
    }
    writer.save(**(arguments | given))


def commit(store: Store, steps: int, attempt: int = 1) -> State:
    """Trains a new model for ``steps`` and saves it; returns what was saved."""
    model, optimizer = build(dist.is_initialized())
    train(model, optimizer, steps)
    saving = writer(store, attempt)
    save(saving, steps, model, optimizer)
    result = saving.wait()
    assert isinstance(result, SaveResult)
    assert result.outcome == "committed"
    saving.close()
    return whole_state(model, optimizer)


def look(store: Store) -> View:
    """The view of a run of one attempt that has decided nothing."""
    keys = [info.key for folder in ("checkpoints", "markers") for info in store.list(folder)]
    return View([Claim(1, "driver", 1)], None, keys)


def flip(store: Store, ref: CheckpointRef, name: str) -> None:
    """Changes one bit in the middle of a file."""
    data = bytearray(store.get(f"{ref.prefix}/{name}"))
    data[len(data) // 2] ^= 1
    store.put(f"{ref.prefix}/{name}", bytes(data))
