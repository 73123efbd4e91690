"""How long to wait between two checkpoints. Pure.

A save every T seconds that costs C takes C/T of the time, and a loss every M seconds throws away T/2 on average: both
together are least at T = √(2CM). J. W. Young, A first order approximation to the optimum checkpoint interval, CACM
17(9), 1974; J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pliant.storage.snapshot import HEARTBEAT, STOP, AttemptInfo


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


@dataclass(frozen=True)
class Losses:
    """How often a run's worker groups have ended without a word.

    Attributes:
        count: of such ends.
        running_s: seconds that the groups ran altogether.
    """

    count: int = 0
    running_s: float = 0.0

    def mean_time_between(self, more_s: float = 0.0) -> float | None:
        """Seconds from one loss to the next, after further seconds without one; None before the first."""
        return (self.running_s + more_s) / self.count if self.count else None


def losses_of(attempts: Sequence[AttemptInfo]) -> Losses:
    """What the groups of a run have come to, those excepted that are still at it: the newest attempt.

    A group that ends as it should says why; what it had not saved is lost with any other, whoever's fault it is. All
    times are the storage's own, so that no two clocks are compared.

    Args:
        attempts: all of the run, oldest first.
    """
    signs = {a.number: a.objects[HEARTBEAT].modified for a in attempts if HEARTBEAT in a.objects}
    count, running_s = 0, 0.0
    for info, after in pairwise(attempts):
        if info.claim.kind == "driver" or "claim.json" not in info.objects:
            continue
        began = info.objects["claim.json"].modified
        ended = [info.objects[STOP].modified] if info.stopped else []
        if not info.stopped:
            count += 1
            ended = [after.objects["claim.json"].modified] if "claim.json" in after.objects else []
            ended += [signs[info.claim.driver]] if info.claim.driver in signs else []
        running_s += max(min(ended, default=began) - began, 0.0)
    return Losses(count, running_s)


def save_cost(stall_s: float, steps_during: int, step_during_s: float, step_otherwise_s: float) -> float:
    """Seconds of training that one save cost.

    Args:
        stall_s: how long the loop stood still for it.
        steps_during: steps taken while it was written in the background.
        step_during_s: mean seconds of those steps.
        step_otherwise_s: mean seconds of the steps without a save.
    """
    return stall_s + steps_during * max(step_during_s - step_otherwise_s, 0.0)


def next_interval(
    costs: Sequence[float],
    *,
    overhead: float,
    min_interval: float,
    max_interval: float,
    between_losses_s: float | None = None,
) -> Interval:
    """The interval at which saves and what is lost between them cost least, of those at which saves alone cost at most
    ``overhead`` of the time: the shortest of those, as long as nothing was lost.

    Args:
        costs: seconds that the latest saves cost, newest last; empty before the first one.
        overhead: share of the run's time they may cost.
        min_interval: seconds, lower bound.
        max_interval: seconds, upper bound; wins over ``overhead`` and over ``min_interval``.
        between_losses_s: mean seconds between two losses of a group; None: there was none.

    Returns:
        ``min_interval`` while nothing is measured: a first save soon gives a first cost, and a first safeguard.
    """
    # The mean keeps the share over time; the newest alone reacts when saving becomes expensive.
    cost = max(sum(costs) / len(costs), costs[-1]) if costs else 0.0
    least = math.sqrt(2 * cost * between_losses_s) if between_losses_s is not None else 0.0
    seconds = min(max(cost / overhead, least, min_interval), max_interval)
    share = cost / seconds if seconds > 0 else 0.0
    return Interval(seconds, share, cost / overhead > max_interval)
