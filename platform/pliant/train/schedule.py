"""The learning rate as a function of progress alone: never of workers, attempts or wall time. Pure.

Shapes: linear warm-up to the peak, then constant, linear, cosine (Loshchilov & Hutter 2017, without restarts) or
warmup-stable-decay (Hu et al. 2024, MiniCPM) to ``final_ratio`` × peak.
"""

from __future__ import annotations

import math

from pliant.train.settings import ScheduleSettings


def lr_factor(settings: ScheduleSettings, *, before: float, after: float, total: float) -> float:
    """Share of the peak learning rate that one step uses, in [0, 1].

    Args:
        settings: shape, warm-up and final ratio.
        before: progress before the step, in the schedule's unit; decides the decay, so that the last step still learns.
        after: progress after the step; decides the warm-up, so that the first step already learns.
        total: progress at the schedule's end. Beyond it the factor stays at its final value.
    """
    if settings.warmup and after < settings.warmup:
        return after / settings.warmup
    span = max(total - settings.warmup, 1e-12)
    done = min(max((before - settings.warmup) / span, 0.0), 1.0)
    return settings.final_ratio + (1.0 - settings.final_ratio) * _remaining(settings, done, span, total)


def _remaining(settings: ScheduleSettings, done: float, span: float, total: float) -> float:
    if settings.kind == "linear":
        return 1.0 - done
    if settings.kind == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * done))
    if settings.kind == "wsd":
        decay = min(settings.decay * total / span, 1.0)
        return min(1.0, (1.0 - done) / decay)
    return 1.0
