"""The job of the recovery bench's peers: a small network with DDP on gloo, and its state in one file. Torch only.

In training a forward pass sleeps for each of its rows, as a host does that waits for its accelerator, so that steps are
equally long whatever else the two cores do; all that comes with a step, gradients and their exchange, is real.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from _recovery_marks import Marks
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

FEATURES, CLASSES, WIDTH, DEPTH = 64, 10, 512, 4
GLOBAL_BATCH = 12  # of which each of 1, 2, 3, 4 workers takes the same number of rows
ROW_S = float(os.environ.get("BENCH_ROW_S", "0.012"))
"""Of no influence on the numbers."""
SAVE_EVERY = 50
STATE = "state.pt"


class Net(nn.Module):
    """features (B, 64) → logits (B, 10): 1.1 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(FEATURES, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.GELU(), nn.Linear(WIDTH, WIDTH)) for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, features: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            time.sleep(ROW_S * len(features))
        x = self.stem(features)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def train(
    marks: Marks, saved: Path | None, save: Callable[[dict[str, Any] | None], None], *, imported_at: float
) -> None:
    """Trains for ever, in a process group that exists.

    Args:
        imported_at: when this process had imported what it needs (Unix time).
        saved: a state to go on with.
        save: called by all ranks after every SAVE_EVERY steps; the state on rank 0, None on the others.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    group: list[Any] = [uuid.uuid4().hex]
    dist.broadcast_object_list(group, src=0)
    torch.manual_seed(0)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    if saved is not None:
        state = torch.load(saved, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    marks.add("process", at=psutil.Process().create_time(), group=group[0])
    marks.add("imported", at=imported_at, group=group[0])
    marks.add("loaded", group=group[0], step=step)
    share = GLOBAL_BATCH // world
    for step in count(step + 1):  # noqa: B020
        random = torch.Generator().manual_seed(step)
        features = torch.randn(GLOBAL_BATCH, FEATURES, generator=random)[rank * share :][:share]
        labels = torch.randint(CLASSES, (GLOBAL_BATCH,), generator=random)[rank * share :][:share]
        nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            marks.add("step", step=step, world=world, group=group[0])
        if step % SAVE_EVERY == 0:
            state = {"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            save(state if rank == 0 else None)
