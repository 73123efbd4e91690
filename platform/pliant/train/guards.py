"""Checks at start that a model and its loss keep what ``exact`` promises; each refusal names the culprit."""

from __future__ import annotations

import copy
from typing import Any

import pyarrow as pa
import torch
from torch import nn

from pliant.errors import ConfigError, PliantError, UserCodeError
from pliant.train.protocols import Loss, Pipeline
from pliant.train.usercode import collated, defined, loss_of, user_code

_GIVE_UP = "or set model.allow_rank_local=true and give up that the curve is the same at every worker count"
_TOLERANCE = 1e-3
_SUMS = {"total": "losses.sum()", "weight": "the number of rows, or the sum of their weights"}
"""What belongs into a ``Loss``."""


def check_pipeline(pipeline: Pipeline[Any], model: nn.Module, rows: pa.Table, *, about: str = "") -> None:
    """Tries the unsharded model on a few rows. Leaves parameters, buffers and gradients as they were.

    Args:
        about: which rows they are, for errors.

    Raises:
        ConfigError: a module updates its buffers in forward, or the loss couples rows.
        UserCodeError: the pipeline fails on them or on zero rows, or returns no scalar sums.
    """
    probe = copy.deepcopy(model)
    with user_code("collate or loss, tried before the first step,", about=about):
        if not pipeline.settings.allow_rank_local:
            _check_buffers(pipeline, probe, rows)
        probe.eval()
        with torch.no_grad():
            if not pipeline.settings.allow_rank_local and rows.num_rows >= 2:
                _check_rows_independent(pipeline, probe, rows)
            _check_zero_rows(pipeline, probe, rows)


def _loss(pipeline: Pipeline[Any], model: nn.Module, rows: pa.Table) -> Loss:
    return loss_of(pipeline, model, collated(pipeline, rows))


def _check_buffers(pipeline: Pipeline[Any], probe: nn.Module, rows: pa.Table) -> None:
    before = {name: buffer.clone() for name, buffer in probe.named_buffers()}
    probe.train()
    with torch.no_grad():
        _loss(pipeline, probe, rows)
    changed = sorted(
        name for name, buffer in probe.named_buffers() if name not in before or not torch.equal(buffer, before[name])
    )
    if changed:
        modules = dict(probe.named_modules())
        owners = {name.rpartition(".")[0] for name in changed}
        named = ", ".join(f"{owner or 'the model'} ({type(modules[owner]).__name__})" for owner in sorted(owners))
        raise ConfigError(
            "model.rank-local",
            f"{named} updates buffers in forward ({', '.join(changed[:4])}); each worker would see other rows",
            hint=f"use a norm without running statistics (LayerNorm, GroupNorm, RMSNorm), {_GIVE_UP}",
        )
    # Batch statistics couple rows even where nothing is tracked.
    for name, module in probe.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ConfigError(
                "model.rank-local",
                f"{name} ({type(module).__name__}) normalises over the rows of a micro-batch",
                hint=f"use LayerNorm, GroupNorm or RMSNorm, {_GIVE_UP}",
            )


def _check_zero_rows(pipeline: Pipeline[Any], probe: nn.Module, rows: pa.Table) -> None:
    try:
        loss = _loss(pipeline, probe, rows.slice(0, 0))
    except PliantError:
        raise
    except Exception as error:
        raise UserCodeError(
            "pipeline.zero-rows",
            f"{type(pipeline).__name__} fails on zero rows: {type(error).__name__}: {error}",
            hint="a worker may have no rows in a micro-batch; collate and loss must take empty tensors",
            location=defined(pipeline, "loss"),
        ) from error
    if float(loss.total) != 0.0 or float(loss.weight) != 0.0:
        raise UserCodeError(
            "pipeline.zero-rows",
            f"{type(pipeline).__name__}'s loss of zero rows is {float(loss.total)} with weight {float(loss.weight)};"
            " both must be 0: use sums, not means",
            location=defined(pipeline, "loss"),
        )


def _check_rows_independent(pipeline: Pipeline[Any], probe: nn.Module, rows: pa.Table) -> None:
    half = rows.num_rows // 2
    whole = _loss(pipeline, probe, rows)
    parts = [_loss(pipeline, probe, rows.slice(0, half)), _loss(pipeline, probe, rows.slice(half))]
    for name in ("total", "weight"):
        together = float(getattr(whole, name))
        apart = sum(float(getattr(part, name)) for part in parts)
        if abs(together - apart) > _TOLERANCE * max(abs(together), abs(apart), 1e-6):
            raise ConfigError(
                "model.couples-rows",
                f"{type(pipeline).__name__}.loss couples rows: its {name} over {rows.num_rows} rows is {together:.6g},"
                f" over two parts of them {apart:.6g}",
                hint=f"most often a mean stands where a sum belongs: Loss({name}={_SUMS[name]}). Return sums over rows"
                f" that do not depend on the other rows, {_GIVE_UP}",
                location=defined(pipeline, "loss"),
            )
