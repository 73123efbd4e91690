"""Worker groups for tests: processes with a gloo group over a file, forked from a server that has torch loaded."""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed.fsdp", "torch.distributed.checkpoint", "pyarrow.parquet"])


def run_group(world_size: int, function: Callable[..., Any], *args: Any, timeout_s: float = 90) -> list[Any]:
    """Calls ``function(*args)`` in every worker of a process group; returns their results by rank.

    Raises:
        RuntimeError: with the traceback of the first worker that failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        results: Any = _CONTEXT.SimpleQueue()
        members = [
            _CONTEXT.Process(
                target=_member, args=(rank, world_size, f"{folder}/group", results, function, args), daemon=True
            )
            for rank in range(world_size)
        ]
        for member in members:
            member.start()
        outcome: dict[int, Any] = {}
        try:
            for _ in members:
                rank, value, error = results.get()
                if error:
                    raise RuntimeError(f"rank {rank} of {world_size}:\n{error}")
                outcome[rank] = value
            for member in members:
                member.join(timeout_s)
        finally:
            for member in members:
                member.kill()
                member.join()
        return [outcome[rank] for rank in range(world_size)]


def _member(
    rank: int, world_size: int, path: str, results: Any, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", store=dist.FileStore(path, world_size), rank=rank, world_size=world_size)
        results.put((rank, function(*args), None))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
