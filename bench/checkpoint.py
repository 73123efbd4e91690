"""What an asynchronous checkpoint costs the training it runs beside.

    python bench/checkpoint.py [--saves 5]

Workers train a stack of linear layers with AdamW and at least 200 MB of state each, and save it with the product's
writer to a local path. Stall: what a step waits for, against a plain copy of the same bytes to memory that was touched
before, in the same process. Background: the median step while a save is written against the median of all others.
Cost: seconds of training that one save costs, as a share of `checkpoint.max_interval`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from _common import Bar, report
from torch import nn
from torch.distributed.tensor import DTensor

from pliant.checkpoint.digest import named_parameters
from pliant.checkpoint.manifest import ManifestFields
from pliant.checkpoint.pace import Pace, allowed_rest
from pliant.checkpoint.settings import CheckpointSettings
from pliant.checkpoint.state import model_and_optimizer_state
from pliant.checkpoint.writer import CheckpointWriter
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.train.parallel import Workers, join_workers, shard_model
from pliant.train.precision import resolve_precision
from pliant.train.settings import TrainSettings

WIDTH, LAYERS, ROWS = 1536, 9, 192
STATE_MB = 200


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--saves", type=int, default=5)
    options = arguments.parse_args()
    figures: dict[str, float] = {}
    for workers in (1, 2):
        measured = _measure(workers, options.saves)
        label = f"{workers} worker{'s' if workers > 1 else ''}"
        figures[f"{label}: state of a rank, MB"] = measured["bytes"] / 1e6
        figures[f"{label}: stall × memcpy"] = measured["stall"] / measured["memcpy"]
        figures[f"{label}: stall, ms"] = measured["stall"] * 1e3
        figures[f"{label}: step beside a save × others"] = measured["during"] / measured["others"]
        slowed = measured["steps_during"] * max(measured["during"] - measured["others"], 0.0)
        cost = measured["stall"] + slowed
        figures[f"{label}: cost at max_interval, %"] = 100 * cost / CheckpointSettings().max_interval
    bars: dict[str, Bar] = {}
    for label in ("1 worker", "2 workers"):
        bars[f"{label}: state of a rank, MB"] = Bar(at_least=STATE_MB)
        bars[f"{label}: stall × memcpy"] = Bar(at_most=3)
        bars[f"{label}: step beside a save × others"] = Bar(at_most=1.15)
    return report("checkpoint", figures, bars)


def _measure(workers: int, saves: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        mp.spawn(_worker, args=(workers, saves, folder), nprocs=workers)
        return json.loads((Path(folder) / "measured.json").read_text())


def _worker(rank: int, workers: int, saves: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/group", workers), rank=rank, world_size=workers)
    group = join_workers(torch.device("cpu"), save_timeout=600)
    torch.manual_seed(0)
    model = Stack(LAYERS * workers)  # sharded over the workers, so that each rank's state stays as large
    precision = resolve_precision(TrainSettings(global_batch=1, micro_batch=1, steps=1))
    shard_model(model, list(model.blocks), group, precision, activation_checkpointing=False)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    rows = torch.randn(ROWS, WIDTH)
    writer = CheckpointWriter(
        Store(f"{folder}/run", StorageSettings()), 1, check=lambda: None, group=group.background_group
    )
    names = [name for name, _ in named_parameters(model)]
    settings = CheckpointSettings()
    rest_s = allowed_rest(settings.min_interval, settings.peer_timeout)  # as at the start of a run: the shortest
    during: list[float] = []
    others: list[float] = []

    def step() -> None:
        busy, began = writer.busy, time.perf_counter()
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        # A step during which a save ended belongs to neither side.
        if busy == writer.busy:
            (during if busy else others).append(time.perf_counter() - began)

    for _ in range(3):
        step()
    others.clear()
    writer.reserve(model_and_optimizer_state(model, optimizer))
    stalls = []
    for number in range(1, saves + 1):
        for _ in range(4):
            step()
        fields = ManifestFields({"step": number}, "", "", "", {}, {})
        writer.save(
            step=number, state=model_and_optimizer_state(model, optimizer), digest_names=names, fields=fields,
            pace=Pace(rest_s),
        )  # fmt: skip
        # All ranks take equally many steps: rank 0 tells when the save is over.
        while _any_busy(writer.busy, group):
            step()
        (result,) = writer.poll()
        if result.outcome != "committed":
            raise SystemExit(f"save {number}: {result.outcome}: {result.reason}")
        stalls.append(result.staging_s + result.waited_s)
    writer.close()
    if rank == 0:
        size = _bytes(model_and_optimizer_state(model, optimizer))
        measured = {
            "bytes": size,
            "stall": statistics.median(stalls[1:]),
            "memcpy": _memcpy(size),
            "during": statistics.median(during),
            "others": statistics.median(others),
            "steps_during": len(during) / saves,
        }
        (Path(folder) / "measured.json").write_text(json.dumps(measured))
    dist.barrier()
    dist.destroy_process_group()


def _any_busy(busy: bool, group: Workers) -> bool:
    flag = torch.tensor([float(busy)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=group.host_group)
    return bool(flag.item())


def _bytes(state: dict) -> int:
    """Bytes of this rank's part of all tensors."""
    total = 0
    for value in state.values():
        if isinstance(value, dict):
            total += _bytes(value)
        elif isinstance(value, torch.Tensor):
            total += (value.to_local() if isinstance(value, DTensor) else value).nbytes
    return total


def _memcpy(size: int) -> float:
    """Seconds to copy so many bytes between two buffers that were touched before: the median of several."""
    source, target = torch.ones(size // 4), torch.ones(size // 4)
    seconds = []
    for _ in range(7):
        began = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


class Stack(nn.Module):
    """Linear layers, each a block of its own."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x).relu()
        return x


if __name__ == "__main__":
    sys.exit(main())
