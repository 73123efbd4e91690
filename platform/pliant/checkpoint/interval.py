"""How long to wait between two checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """The time from one checkpoint to the next.

    Attributes:
        seconds: between the starts of two saves.
        overhead: share of the run's time that checkpoints will cost at this interval.
        over_budget: the cost is above the setting because ``max_interval`` does not allow a longer interval.
    """

    seconds: float
    overhead: float
    over_budget: bool


def save_cost(stall_s: float, steps_during: int, step_during_s: float, step_otherwise_s: float) -> float:
    """Seconds of training that one save cost.

    Args:
        stall_s: how long the loop stood still for it.
        steps_during: steps taken while it was written in the background.
        step_during_s: mean seconds of those steps.
        step_otherwise_s: mean seconds of the steps without a save.
    """
    return stall_s + steps_during * max(step_during_s - step_otherwise_s, 0.0)


def next_interval(costs: Sequence[float], *, overhead: float, min_interval: float, max_interval: float) -> Interval:
    """The shortest interval at which checkpoints cost at most ``overhead`` of the time.

    Args:
        costs: seconds that the latest saves cost, newest last; empty before the first one.
        overhead: share of the run's time they may cost.
        min_interval: seconds, lower bound.
        max_interval: seconds, upper bound; wins over ``overhead`` and over ``min_interval``.

    Returns:
        ``min_interval`` while nothing is measured: a first save soon gives a first cost, and a first safeguard.
    """
    # The mean keeps the share over time; the newest alone reacts when saving becomes expensive.
    cost = max(sum(costs) / len(costs), costs[-1]) if costs else 0.0
    seconds = min(max(cost / overhead, min_interval), max_interval)
    share = cost / seconds if seconds > 0 else 0.0
    return Interval(seconds, share, cost / overhead > max_interval)
