"""Process groups and FSDP2: how a model is spread over the workers of an attempt."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from pliant.train.precision import Precision


@dataclass(frozen=True)
class Workers:
    """The workers of this attempt as one rank sees them.

    Attributes:
        rank, world_size: this worker and their number.
        device: where this worker computes.
        host_group: a gloo group for small collectives on host memory during the step.
        background_group: a gloo group that only the checkpoint thread uses, so that it can never cross the step's.
    """

    rank: int
    world_size: int
    device: torch.device
    host_group: dist.ProcessGroup
    background_group: dist.ProcessGroup


def join_workers(device: torch.device, *, save_timeout: float) -> Workers:
    """Describes the initialised default process group and adds the two host groups. Collective.

    Args:
        save_timeout: seconds after which a worker that does not answer during a save counts as lost.
    """
    return Workers(
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        device=device,
        host_group=dist.new_group(backend="gloo"),
        background_group=dist.new_group(backend="gloo", timeout=timedelta(seconds=save_timeout)),
    )


def first_use() -> None:
    """Has torch import what it imports at the first backward and the first optimizer: about a second."""
    layer = nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(layer.parameters(), foreach=True)
    layer(torch.ones(1, 1)).sum().backward()
    optimizer.step()


@contextmanager
def single_process_group() -> Iterator[None]:
    """A process group of one from an in-memory store: no ports, nothing left behind."""
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def shard_model(
    model: nn.Module, blocks: list[nn.Module], workers: Workers, precision: Precision, *, activation_checkpointing: bool
) -> nn.Module:
    """Shards each block, then the root, over all workers. Gradients are summed, never averaged.

    Averaging would divide by the worker count, which is inexact unless that is a power of two; the step divides once,
    by the weight of the global batch. The sum has to be forced: gloo would otherwise fall back to a pre-divided one.
    """
    if activation_checkpointing:
        blocks = checkpoint_blocks(model, blocks)
    # Of outputs that are views: `Pipeline.model` says what its warning is about, and in backward such a mistake raises.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(workers.device.type, (workers.world_size,))
    model.to(workers.device)
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=precision.policy(root=False))
    fully_shard(model, mesh=mesh, mp_policy=precision.policy(root=True))
    for module in fsdp_modules(model):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    return model


def checkpoint_blocks(model: nn.Module, blocks: list[nn.Module]) -> list[nn.Module]:
    """Wraps each block in the model so that it recomputes its activations in backward; returns the wrapped ones."""
    return [_checkpointed(model, block) for block in blocks]


def _checkpointed(model: nn.Module, block: nn.Module) -> nn.Module:
    for parent in model.modules():
        for name, child in parent.named_children():
            if child is block:
                wrapped = checkpoint_wrapper(block, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
                setattr(parent, name, wrapped)
                return wrapped
    return block


def fsdp_modules(model: nn.Module) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def sync_gradients(model: nn.Module, on: bool) -> None:
    """Off while micro-batches accumulate; on for the last one, whose backward reduces the sums."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(on)
