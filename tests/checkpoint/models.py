"""Small models, trained for a few steps, plain or sharded by FSDP2, for the checkpoint tests."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import SGD, AdamW, Optimizer

from pliant.checkpoint.digest import as_bytes, named_parameters

State = dict[str, tuple[str, tuple[int, ...], bytes]]


class Net(nn.Module):
    """Dimensions that divide by nothing, one row only, fewer rows than workers, a buffer and a shared weight."""

    def __init__(self, width: int = 7) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, 5), nn.GELU(), nn.Linear(5, width)) for _ in "ab")
        self.scale = nn.Parameter(torch.ones(1))
        self.pair = nn.Parameter(torch.ones(2, 3))
        self.head = nn.Linear(width, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("table", torch.arange(5.0))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x) * self.scale + self.pair.sum()


def build(sharded: bool, kind: str = "adamw", seed: int = 0, width: int = 7) -> tuple[nn.Module, Optimizer]:
    torch.manual_seed(seed)
    model = Net(width)
    if sharded:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = {
        "adamw": lambda: AdamW(model.parameters(), lr=0.01, foreach=True),
        "momentum": lambda: SGD(model.parameters(), lr=0.01, momentum=0.9),
        "sgd": lambda: SGD(model.parameters(), lr=0.01),
    }[kind]()
    return model, optimizer


def train(model: nn.Module, optimizer: Optimizer, steps: int, first: int = 0) -> None:
    """The same rows on every rank: what matters is that the state is not trivial."""
    for step in range(first, first + steps):
        tokens = (torch.arange(6) * (step + 1)) % 11
        model(tokens).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def whole_state(model: nn.Module, optimizer: Optimizer | None) -> State:
    """Type, shape and bytes of every full tensor by name: equal means the same bit for bit, at any world size.

    A collective for sharded models.
    """
    state = {name: _content(value) for name, value in model.state_dict().items()}
    if optimizer is not None:
        for name, parameter in named_parameters(model):
            for key, value in optimizer.state.get(parameter, {}).items():
                state[f"{name}/{key}"] = _content(torch.as_tensor(value))
    return state


def _content(value: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    tensor = value.detach()
    tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return str(tensor.dtype), tuple(tensor.shape), as_bytes(tensor).numpy().tobytes()
