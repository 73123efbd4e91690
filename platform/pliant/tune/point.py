"""From a point of the search space to settings of a trial. Pure.

Two names of dimensions are no settings: ``schedule.peak`` is ``optim.lr``, and ``schedule.warmup_ratio`` is the share
of ``schedule.warmup`` in the schedule's whole length.
"""

from __future__ import annotations

from typing import Any, Literal

from pliant.config.rules import without_effect
from pliant.config.schema import leaves
from pliant.settings import RunConfig
from pliant.tune.types import Params

Coupling = Literal["none", "linear", "sqrt"]
"""How the learning rate follows the global batch: not at all, in proportion (SGD: Goyal et al. 2017), or with its
square root (Adam and its kin: Malladi et al. 2022)."""
PEAK, WARMUP_RATIO = "schedule.peak", "schedule.warmup_ratio"
BATCH, MICRO_BATCH, LR = "train.global_batch", "train.micro_batch", "optim.lr"
NO_WARMUP = 1
"""Samples or tokens of a warm-up that is none, as every step is at least as long. With it the unit of a constant
schedule has an effect, so that it can stay what it is when a run goes on with another shape."""
_POWERS = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}


def coupled_lr(lr: float, *, batch: int, base_batch: int, coupling: Coupling) -> float:
    """The learning rate for a batch: ``lr × (batch / base_batch)`` to the power 0, 1 or 1/2.

    Args:
        lr: that of the base batch.
        batch, base_batch: rows per step.
    """
    return lr * (batch / base_batch) ** _POWERS[coupling] if coupling != "none" else lr


def settings_of(params: Params, *, samples: int, base: RunConfig, coupling: Coupling) -> dict[str, Any]:
    """See ``Space.settings``."""
    settings = {key: value for key, value in params.items() if key not in (PEAK, WARMUP_RATIO)}
    batch = int(params.get(BATCH, base.train.global_batch))
    steps = -(-samples // batch)
    lr = float(params.get(PEAK, params.get(LR, base.optim.lr)))
    rate = coupled_lr(lr, batch=batch, base_batch=base.train.global_batch, coupling=coupling)
    if rate != base.optim.lr or PEAK in params or LR in params:
        settings[LR] = rate
    settings |= {"train.steps": steps, "train.epochs": None}
    kind, unit, total = params.get("schedule.kind", base.schedule.kind), base.schedule.unit, base.schedule.total
    if total is None:
        total = samples if unit == "samples" else steps
        if unit == "samples" and kind != "constant":
            settings["schedule.total"] = samples  # of the same length at every batch
    if WARMUP_RATIO in params:
        settings["schedule.warmup"] = round(float(params[WARMUP_RATIO]) * total)
    if kind == "constant" and unit != "steps" and not settings.get("schedule.warmup", base.schedule.warmup):
        settings["schedule.warmup"] = NO_WARMUP
    return settings | _without_effect(settings, base)


def _without_effect(settings: dict[str, Any], base: RunConfig) -> dict[str, Any]:
    """Defaults for settings of the base that have no effect with the point's."""
    defaults = {leaf.dotted: leaf.default for leaf in leaves(type(base))}
    return {problem.key: defaults[problem.key] for problem in without_effect(laid_over(base, settings))}


def laid_over(base: RunConfig, settings: dict[str, Any]) -> RunConfig:
    """The configuration with settings replaced, unvalidated."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    changed = {name: getattr(base, name).model_copy(update=values) for name, values in sections.items()}
    return base.model_copy(update=changed)
