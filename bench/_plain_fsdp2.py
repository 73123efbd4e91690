"""The comparison side of the step bench: the loop that one would write without Pliant.

A plain FSDP2 training loop over W gloo processes with the rows in memory: ``fully_shard`` per block, gradient
accumulation with one reduction per step, clipping, AdamW. Nothing of Pliant but the model class and its loss.

    python bench/_plain_fsdp2.py --workers 1 2 --global-batch 32 --steps 30

prints one JSON line per worker count, with the micro-batch at which this loop was fastest. ``bench/step.py`` calls
``measure`` in turns with Pliant's own loop, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from pipelines.stdlib_lm import StdlibLM  # noqa: E402
from pipelines.stdlib_lm_settings import ModelSettings  # noqa: E402

ROWS_IN_MEMORY = 4096


def measure(
    workers: int,
    *,
    global_batch: int,
    micro_batch: int,
    steps: int,
    warmup: int = 5,
    threads: int = 1,
    settings: ModelSettings | None = None,
) -> list[float]:
    """Runs the loop in ``workers`` fresh processes.

    Args:
        workers: number of processes; divides ``global_batch``.
        global_batch: rows per step over all processes.
        micro_batch: most rows per forward pass of one process.
        steps: timed steps, after ``warmup`` untimed ones.
        warmup: steps before the clock is read: allocator, first collectives, lazy FSDP2 initialisation.
        threads: intra-op threads of each process.
        settings: the model's size; default: the pipeline's defaults.

    Returns:
        Seconds of each timed step on rank 0; every step ends with a collective, so this is the step of all.

    Raises:
        ValueError: the global batch cannot be divided among the workers.
        torch.multiprocessing.ProcessRaisedException: a process failed; the others have been ended.
    """
    if global_batch % workers:
        raise ValueError(f"global_batch {global_batch} is not a multiple of workers {workers}")
    with tempfile.TemporaryDirectory() as scratch:
        loop = (Path(scratch), workers, global_batch, micro_batch, warmup, steps, threads, settings or ModelSettings())
        mp.spawn(_train, args=loop, nprocs=workers)
        return json.loads((Path(scratch) / "seconds.json").read_text())[warmup:]


def best_micro_batch(workers: int, *, global_batch: int, steps: int = 6, **options: object) -> int:
    """The micro-batch at which this loop has the lowest median step time: the share G/W, its half, its quarter …"""
    candidates = []
    micro_batch = global_batch // workers
    while micro_batch >= 1 and len(candidates) < 4:
        candidates.append(micro_batch)
        micro_batch //= 2
    medians = {
        m: statistics.median(measure(workers, global_batch=global_batch, micro_batch=m, steps=steps, **options))
        for m in candidates
    }
    return min(medians, key=medians.__getitem__)


def _train(
    rank: int,
    scratch: Path,
    workers: int,
    global_batch: int,
    micro_batch: int,
    warmup: int,
    steps: int,
    threads: int,
    settings: ModelSettings,
) -> None:
    """One process. Rank 0 leaves the seconds of every step in ``scratch``."""
    torch.set_num_threads(threads)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{scratch}/rendezvous", rank=rank, world_size=workers)
    pipeline = StdlibLM(settings)
    torch.manual_seed(0)
    model = pipeline.model()
    mesh = init_device_mesh("cpu", (workers,))
    for block in pipeline.blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, foreach=True)

    context, share = settings.context, global_batch // workers
    rows = torch.randint(1, 256, (ROWS_IN_MEMORY, context + 1), dtype=torch.uint8)
    length = torch.full((share,), context, dtype=torch.int32)
    seconds = []
    for _ in range(warmup + steps):
        began = time.perf_counter()
        mine = rows[torch.randint(ROWS_IN_MEMORY, (share,))]
        total = torch.zeros(())
        for start in range(0, share, micro_batch):
            stop = min(start + micro_batch, share)
            model.set_requires_gradient_sync(stop == share)  # reduce once per step, with the last micro-batch
            loss = pipeline.loss(model, {"tokens": mine[start:stop], "length": length[start:stop]})
            (loss.total * workers / (global_batch * context)).backward()  # FSDP2 averages over the workers
            total += loss.total.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total)
        seconds.append(time.perf_counter() - began)
    if rank == 0:
        (scratch / "seconds.json").write_text(json.dumps(seconds))
    dist.barrier()  # a process that leaves while another is still in a collective takes it down
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--global-batch", type=int, default=32, help="rows per step over all workers")
    parser.add_argument("--micro-batch", type=int, help="rows per forward; default: the fastest")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads per worker")
    arguments = parser.parse_args()
    batch, threads = arguments.global_batch, arguments.threads
    for workers in arguments.workers:
        micro_batch = arguments.micro_batch or best_micro_batch(workers, global_batch=batch, threads=threads)
        seconds = measure(workers, global_batch=batch, micro_batch=micro_batch, steps=arguments.steps, threads=threads)
        figures = {
            "workers": workers,
            "global_batch": batch,
            "micro_batch": micro_batch,
            "steps": len(seconds),
            "seconds_per_step": round(statistics.median(seconds), 5),
            "seconds_per_step_min": round(min(seconds), 5),
        }
        sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
