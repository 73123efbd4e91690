"""Optimizers whose update of an element depends on that element alone, so that sharding cannot change it.

Always the ``foreach`` implementation: the fused ones differ with shard bounds on CPU (vectorised and scalar remainder
paths round differently). Weight decay is decoupled (Loshchilov & Hutter 2019) for SGD as well.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from pliant.checkpoint.digest import clean_name
from pliant.errors import ConfigError, UserCodeError
from pliant.train.settings import VERIFIED_OPTIMIZERS, OptimSettings

_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)
_TABLES = (nn.Embedding, nn.EmbeddingBag)
_GROUP_KEYS = {"params", "lr_scale", "weight_decay"}
_SHOWN = 10


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


def default_groups(model: nn.Module) -> list[dict[str, Any]]:
    """``Pipeline.parameter_groups`` unless a pipeline has its own: see ``split_decay``."""
    decayed, plain = split_decay(model)
    return [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]


def build_optimizer(
    model: nn.Module, settings: OptimSettings, groups: Iterable[Mapping[str, Any]] | None = None
) -> torch.optim.Optimizer:
    """Builds the optimizer over a (sharded) model.

    Args:
        groups: as ``Pipeline.parameter_groups`` gives them; default: ``default_groups``.

    Raises:
        ConfigError: there is no such optimizer.
        UserCodeError: the groups do not hold every trainable parameter once, or have other keys than they may.
    """
    ready = _checked(model, default_groups(model) if groups is None else [dict(group) for group in groups])
    own_decay = ["weight_decay" in group for group in ready]
    for group in ready:
        group.setdefault("weight_decay", settings.weight_decay)
    optimizer = _build(settings, ready)
    for group, own in zip(optimizer.param_groups, own_decay, strict=True):
        group["own_decay"] = own
    return optimizer


def _build(settings: OptimSettings, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    if settings.kind == "adamw":
        return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, eps=settings.eps, foreach=True)
    if settings.kind == "sgd":
        for group in groups:
            group["decoupled_decay"] = group.pop("weight_decay")
        return DecoupledSGD(
            groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.nesterov, foreach=True
        )
    return _custom(settings, groups)


def set_hyperparameters(optimizer: torch.optim.Optimizer, settings: OptimSettings) -> None:
    """Makes an optimizer what ``build_optimizer`` would have made of other settings of the same kind; what depends on
    them in its state stays."""
    for group in optimizer.param_groups:
        if not group["own_decay"]:
            group["decoupled_decay" if "decoupled_decay" in group else "weight_decay"] = settings.weight_decay
        if settings.kind == "adamw":
            group["betas"], group["eps"] = settings.betas, settings.eps


def _checked(model: nn.Module, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups that hold parameters, once it is sure that each trainable parameter is in one of them."""
    names = {parameter: clean_name(name) for name, parameter in model.named_parameters()}
    problems, seen = [], set()
    for number, group in enumerate(groups):
        if not {"params"} <= group.keys() <= _GROUP_KEYS:
            problems.append(f"group {number} has the keys {', '.join(group)}; allowed: params, lr_scale, weight_decay")
            continue
        group["params"] = list(group["params"])
        for parameter in group["params"]:
            if parameter not in names or not parameter.requires_grad:
                what = names.get(parameter, "a tensor that is not the model's")
                problems.append(f"group {number} holds {what}, which is no trainable parameter of the model")
            elif parameter in seen:
                problems.append(f"{names[parameter]} stands twice")
            seen.add(parameter)
    if not problems:
        problems = [f"{name} is missing" for p, name in names.items() if p.requires_grad and p not in seen]
    if problems:
        shown = "".join(f"\n  {problem}" for problem in problems[:_SHOWN])
        more = f"\n  … and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise UserCodeError(
            "pipeline.parameter-groups",
            f"parameter_groups must hold every trainable parameter exactly once:{shown}{more}",
        )
    return [group for group in groups if group["params"]]


def _custom(settings: OptimSettings, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    module_name, _, attribute = settings.kind.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            "optim.unknown",
            f"{settings.kind!r} is no optimizer ({error}); allowed: {', '.join(VERIFIED_OPTIMIZERS)} or module:factory",
            location="optim.kind",
        ) from error
    optimizer: torch.optim.Optimizer = factory(groups, lr=settings.lr)
    return optimizer


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of every group: ``lr`` times its ``lr_scale``."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
