"""Model and optimizer as a state to save, and back into a model and an optimizer of any world size.

    model.NAME                          parameters and buffers, under the names of the unwrapped model
    optim.class                         class of the optimizer
    optim.state.NAME.KEY                the optimizer's tensors and counters of a parameter
    optim.param_groups.NAME.KEY         what the optimizer itself keeps per group

Hyperparameters (whatever the optimizer's constructor takes: lr, betas …) come from the settings, never from a
checkpoint: a changed setting must not be undone by a resume.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.optim import Optimizer

from pliant.checkpoint.dcp import ShardReader, load_state
from pliant.checkpoint.digest import named_parameters
from pliant.errors import ConfigError, listed

_STATE = "state."
_GROUPS = "param_groups."
_SHOWN = 6
_FROM_PLIANT = {"decoupled_decay", "lr_scale", "own_decay"}
"""Hyperparameters that Pliant gives to groups and no constructor knows."""


def model_and_optimizer_state(model: nn.Module, optimizer: Optimizer | None) -> dict[str, Any]:
    """The state by reference: tensors are the live ones. Changes nothing, and does not create optimizer state.

    Raises:
        ValueError: the optimizer keeps something else than tensors and numbers.
    """
    state: dict[str, Any] = {"model": get_model_state_dict(model)}
    if optimizer is not None:
        state["optim"] = {"class": _class_of(optimizer)} | dict(_optimizer_items(model, optimizer))
    return state


def load_model_and_optimizer(
    reader: ShardReader, metadata: Metadata, model: nn.Module, optimizer: Optimizer | None, location: str
) -> None:
    """Loads in place, at any world size. Reads this rank's parts only; not a collective.

    Args:
        reader: a verified checkpoint's files.
        metadata: its metadata.
        model: plain, or sharded by FSDP2.
        optimizer: built on the model's parameters, used or not; None to load the model alone.
        location: the checkpoint's name, for errors.

    Raises:
        ConfigError: keys are missing or left over, or shapes or types differ; names them. Nothing is loaded then.
    """
    state = {"model": get_model_state_dict(model)}
    problems = _compare("model.", state["model"], metadata)
    slots: dict[str, tuple[nn.Parameter, str]] = {}
    if optimizer is not None:
        state["optim"], slots, more = _optimizer_target(model, optimizer, metadata)
        problems += more
    if problems:
        raise _mismatch(problems, location)
    if optimizer is not None:
        load_state(kind := {"optim": {"class": None}}, reader, metadata)
        if kind["optim"]["class"] != (ours := _class_of(optimizer)):
            raise _mismatch([f"different: it is of {kind['optim']['class']}, the run's optimizer is {ours}"], location)
    load_state(state, reader, metadata)
    if any(not isinstance(value, Tensor) for value in state["model"].values()):
        set_model_state_dict(model, state["model"])  # extra state of modules goes through their own hook
    if optimizer is not None:
        _fill_optimizer(model, optimizer, state["optim"], slots)


def _class_of(optimizer: Optimizer) -> str:
    return f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"


def _optimizer_items(model: nn.Module, optimizer: Optimizer) -> Iterator[tuple[str, Any]]:
    names = {parameter: name for name, parameter in named_parameters(model)}
    for group in optimizer.param_groups:
        kept = _kept_in_group(optimizer, group)
        for parameter in group["params"]:
            name = names[parameter]
            for key, value in optimizer.state.get(parameter, {}).items():
                if not isinstance(value, Tensor | int | float | None) or "." in key:
                    raise ValueError(f"optimizer state {key} of {name} is a {type(value).__name__}, not a tensor")
                yield f"{_STATE}{name}.{key}", value
            for key in kept:
                yield f"{_GROUPS}{name}.{key}", group[key]


def _kept_in_group(optimizer: Optimizer, group: dict[str, Any]) -> list[str]:
    """Entries of a group that are the optimizer's own and no hyperparameters."""
    given = _FROM_PLIANT | {
        name for c in type(optimizer).__mro__ if c is not object for name in inspect.signature(c).parameters
    }
    return [key for key in group if key != "params" and key not in given]


def _compare(prefix: str, wanted: dict[str, Any], metadata: Metadata) -> list[str]:
    saved = {k.removeprefix(prefix): v for k, v in metadata.state_dict_metadata.items() if k.startswith(prefix)}
    problems = [f"missing: {prefix}{key}" for key in wanted if key not in saved]
    problems += [f"left over: {prefix}{key}" for key in saved if key not in wanted]
    for key in [key for key in wanted if key in saved]:
        theirs, ours = saved[key], wanted[key]
        if isinstance(theirs, TensorStorageMetadata) and isinstance(ours, Tensor):
            there, here = (tuple(theirs.size), theirs.properties.dtype), (tuple(ours.shape), ours.dtype)
            if there != here:
                problems.append(f"different: {prefix}{key} is {_shape(*there)}, the model's is {_shape(*here)}")
        elif isinstance(theirs, TensorStorageMetadata) or isinstance(ours, Tensor):
            problems.append(f"different: {prefix}{key} is a tensor in one of them only")
    return problems


def _shape(size: tuple[int, ...], dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(size)}"


def _mismatch(problems: list[str], location: str) -> ConfigError:
    message = f"the checkpoint does not fit this model and optimizer:{listed(problems, _SHOWN)}"
    hint = "resume with the model and optimizer settings that the checkpoint was made with, or start a new run"
    return ConfigError("checkpoint.mismatch", message, hint=hint, location=location)


def _optimizer_target(
    model: nn.Module, optimizer: Optimizer, metadata: Metadata
) -> tuple[dict[str, Any], dict[str, tuple[nn.Parameter, str]], list[str]]:
    """Room for what the checkpoint has, made from its metadata: no optimizer step is needed to create it."""
    parameters = {n: (p, g) for g in optimizer.param_groups for n, p in _names_of(model, g)}
    target: dict[str, Any] = {}
    slots: dict[str, tuple[nn.Parameter, str]] = {}
    problems = []
    for full_key, saved in metadata.state_dict_metadata.items():
        if not full_key.startswith("optim."):
            continue
        key = full_key.removeprefix("optim.")
        name, _, entry = key.removeprefix(_STATE).removeprefix(_GROUPS).rpartition(".")
        if key != "class" and name not in parameters:
            problems.append(f"left over: {full_key}")
            continue
        target[key] = None
        if key.startswith(_STATE):
            parameter, group = parameters[name]
            slots[key] = (parameter, entry)
            if isinstance(saved, TensorStorageMetadata):
                target[key] = _room(parameter, group, entry, saved)
    if "class" not in target:
        problems.append("missing: optim.class")
    return target, slots, problems


def _names_of(model: nn.Module, group: dict[str, Any]) -> Iterator[tuple[str, nn.Parameter]]:
    members = set(group["params"])
    return ((name, parameter) for name, parameter in named_parameters(model) if parameter in members)


def _room(parameter: nn.Parameter, group: dict[str, Any], entry: str, saved: TensorStorageMetadata) -> Tensor:
    dtype = saved.properties.dtype
    if entry != "step" and saved.size == parameter.shape:
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    on_device = entry != "step" or group.get("capturable") or group.get("fused")  # torch's own rule for counters
    return torch.empty(saved.size, dtype=dtype, device=parameter.device if on_device else "cpu")


def _fill_optimizer(
    model: nn.Module, optimizer: Optimizer, loaded: dict[str, Any], slots: dict[str, tuple[nn.Parameter, str]]
) -> None:
    optimizer.state.clear()
    for key, (parameter, entry) in slots.items():
        optimizer.state[parameter][entry] = loaded[key]
    for group in optimizer.param_groups:
        for key in _kept_in_group(optimizer, group):
            for name, _ in _names_of(model, group):
                if (full := f"{_GROUPS}{name}.{key}") in loaded:
                    group[key] = loaded[full]
