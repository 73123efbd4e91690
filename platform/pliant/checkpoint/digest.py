"""Parameter digest: one number for all parameters, whatever the number of workers.

blake2b over the parameters sorted by name, each as a line of JSON ``[name, dtype, shape]`` followed by the
little-endian bytes of the full tensor in row-major order. Shards are sent to rank 0 one at a time.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.tensor import DTensor, Replicate, Shard

from pliant.checkpoint.pace import Pace
from pliant.checkpoint.ranks import Ranks

NamedShard = tuple[str, Tensor, tuple[int, ...]]
"""Name of a parameter, this rank's part of it (CPU; all of it when it is not sharded), shape of the whole."""


def shard_bounds(rows: int, world_size: int, rank: int) -> tuple[int, int]:
    """First and last + 1 row of a rank's shard: FSDP2 cuts the first dimension like ``torch.chunk``."""
    chunk = -(-rows // world_size)
    return min(rank * chunk, rows), min((rank + 1) * chunk, rows)


def named_shards(model: nn.Module) -> list[NamedShard]:
    """The model's parameters for ``parameter_digest``. Copies to the host only what lies elsewhere.

    Raises:
        ValueError: a parameter is sharded other than by FSDP2 over one mesh dimension.
    """
    state = get_model_state_dict(model)  # makes FSDP2 put its shards back in place first
    return [(name, *local_part(name, state[name])) for name, _ in named_parameters(model)]


def named_parameters(model: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    """Parameters by the names they have in a checkpoint; a shared one once, under its first name."""
    for name, parameter in model.named_parameters():
        yield clean_name(name), parameter


def clean_name(name: str) -> str:
    """A parameter's name in the unwrapped model."""
    return name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")


def local_part(name: str, tensor: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """This rank's part of a tensor, on the CPU, and the shape of the whole."""
    if isinstance(tensor, DTensor):
        if tensor.device_mesh.ndim != 1 or tensor.placements[0] not in (Shard(0), Replicate()):
            raise ValueError(f"{name} is placed as {tensor.placements}; only one-dimensional FSDP2 is known")
        return tensor.to_local().cpu(), tuple(tensor.shape)
    return tensor.cpu(), tuple(tensor.shape)


def parameter_digest(
    named: Sequence[NamedShard], group: dist.ProcessGroup | None, rank: int = 0, pace: Pace | None = None
) -> str | None:
    """Digest of all parameters; a collective over ``group``. Holds one shard of another rank at a time.

    Args:
        named: every rank's part, under the same names on all of them, in any order. Where a part has the shape
            of the whole, the tensor counts as not sharded. Parts may be empty.
        group: gloo group of all ranks; None for a single process.
        rank: this process's rank in the group.
        pace: at which rank 0 computes, and the others therefore send; None: without a rest.

    Returns:
        128 hex digits on rank 0, None elsewhere.

    Raises:
        PliantError: on all ranks, when names, types or shapes differ between ranks or do not fit together.
    """
    ranks, pace = Ranks(group), pace or Pace()
    named = sorted(named, key=lambda item: item[0])
    _check(named, ranks)
    total = hashlib.blake2b()
    for name, local, shape in named:
        total.update(json.dumps([name, str(local.dtype).removeprefix("torch."), list(shape)]).encode() + b"\n")
        own = as_bytes(local)
        if rank == 0:
            _update(total, own, pace)
        if tuple(local.shape) == shape:
            continue  # not sharded, or all of it lies on rank 0
        if rank == 0:
            for other in range(1, ranks.size):
                if size := math.prod(_part(shape, ranks.size, other)) * local.element_size():
                    part = torch.empty(size, dtype=torch.uint8)
                    dist.recv(part, group=group, group_src=other)
                    _update(total, part, pace)
        elif own.numel():
            dist.send(own, group=group, group_dst=0)
    return total.hexdigest() if rank == 0 else None


def _update(total: hashlib.blake2b, part: Tensor, pace: Pace) -> None:
    for piece in pace.pieces(memoryview(part.numpy())):
        total.update(piece)


def as_bytes(tensor: Tensor) -> Tensor:
    """The tensor's bytes in row-major order, as uint8; a view where it is contiguous."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _check(named: Sequence[NamedShard], ranks: Ranks) -> None:
    """All ranks must send what rank 0 expects: settled before the first one sends."""

    def outline() -> list[Any]:
        return [(name, str(local.dtype), shape, tuple(local.shape)) for name, local, shape in named]

    def compare(outlines: list[list[Any]]) -> None:
        for rank, theirs in enumerate(outlines):
            for ours, item in zip_longest(outlines[0], theirs):
                if ours is None or item is None or ours[:3] != item[:3]:
                    raise ValueError(f"rank {rank} holds other parameters than rank 0: {item} instead of {ours}")
                _, _, shape, part = item
                # Where rank 0 has the whole, nobody sends; else everyone sends the very part that rank 0 expects.
                expected = shape if ours[3] == shape else _part(shape, ranks.size, rank)
                if part != expected and not (0 in part and (0 in expected or ours[3] == shape)):
                    raise ValueError(f"{item[0]}: rank {rank} of {ranks.size} holds {part} of {shape}")

    ranks.reduce("parameter digest", outline, compare)


def _part(shape: tuple[int, ...], world_size: int, rank: int) -> tuple[int, ...]:
    start, stop = shard_bounds(shape[0], world_size, rank) if shape else (0, 0)
    return (stop - start, *shape[1:])
