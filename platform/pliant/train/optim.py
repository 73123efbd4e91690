"""Optimizers whose update of an element depends on that element alone, so that sharding cannot change it.

Always the ``foreach`` implementation: the fused ones differ with shard bounds on CPU (vectorised and scalar remainder
paths round differently). Weight decay is decoupled (Loshchilov & Hutter 2019) for SGD as well.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from pliant.errors import ConfigError
from pliant.train.settings import VERIFIED_OPTIMIZERS, OptimSettings

_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)
_TABLES = (nn.Embedding, nn.EmbeddingBag)


def split_decay(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Parameters (with decay, without decay). Biases, norms' parameters and embedding tables are not decayed; a table
    that is tied to an output projection is decayed as the matrix it also is."""
    matrices: dict[nn.Parameter, None] = {}
    everything: dict[nn.Parameter, None] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if not parameter.requires_grad:
                continue
            everything[parameter] = None
            if parameter.ndim >= 2 and not isinstance(module, (*_NORMS, *_TABLES)):
                matrices[parameter] = None
    return list(matrices), [p for p in everything if p not in matrices]


def local(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The local shards, sharing memory with their DTensors."""
    return [t.to_local() if isinstance(t, DTensor) else t for t in tensors]


class DecoupledSGD(torch.optim.SGD):
    """SGD whose weight decay multiplies parameters by 1 − lr × decay instead of entering the gradient."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            touched = [p for p in group["params"] if p.grad is not None]
            if group["decoupled_decay"] and touched:
                torch._foreach_mul_(local(touched), 1.0 - group["lr"] * group["decoupled_decay"])
        super().step()


def build_optimizer(model: nn.Module, settings: OptimSettings) -> torch.optim.Optimizer:
    """Builds the optimizer over a (sharded) model. Raises ConfigError when there is no such optimizer."""
    decayed, plain = split_decay(model)
    decays = [(decayed, settings.weight_decay), (plain, 0.0)]
    if settings.kind == "adamw":
        groups = [{"params": params, "weight_decay": decay} for params, decay in decays if params]
        return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, eps=settings.eps, foreach=True)
    if settings.kind == "sgd":
        groups = [{"params": params, "decoupled_decay": decay} for params, decay in decays if params]
        return DecoupledSGD(
            groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.nesterov, foreach=True
        )
    return _custom(settings, decays)


def _custom(settings: OptimSettings, decays: list[tuple[list[nn.Parameter], float]]) -> torch.optim.Optimizer:
    module_name, _, attribute = settings.kind.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            "optim.unknown",
            f"{settings.kind!r} is no optimizer ({error}); allowed: {', '.join(VERIFIED_OPTIMIZERS)} or module:factory",
            location="optim.kind",
        ) from error
    groups = [{"params": params, "weight_decay": decay} for params, decay in decays if params]
    optimizer: torch.optim.Optimizer = factory(groups, lr=settings.lr)
    return optimizer


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
