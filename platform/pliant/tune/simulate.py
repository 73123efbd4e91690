"""Runs a sweep on a virtual clock: tables or functions instead of training, any number of slots, thousands of trials.

The sweep is the real one, with its scheduler, its searcher and, where it is given one, its durable log. What training
would give is a function: so decisions can be tested, and searches compared, at sizes that no machine here has.

```python
simulation = Simulation(curves(lambda params, samples: (table[params["id"]][samples], samples * 0.01)), slots=16)
simulation.run(sweep)
sweep.best, simulation.now, simulation.history
```
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pliant.elastic.policy import lane_steps
from pliant.tune.sweep import Leg, Sweep
from pliant.tune.types import Cause, Loss, Params, Report, finite


@dataclass(frozen=True)
class Stretch:
    """A piece of training.

    Attributes:
        state: of the trial at its end, for whatever goes on from there; treated as immutable.
        value: of the metric at its end; None, NaN and infinite alike are none.
        seconds: that one worker needs for it.
    """

    state: Any
    value: float | None
    seconds: float


Train = Callable[[Any, Params, int, int], Stretch]
"""Trains from a state (None for a new trial) with parameters, from so many samples to so many."""


@dataclass(frozen=True)
class Fault:
    """A leg is lost on its way to the next report, after a share of the work in between."""

    cause: Cause
    share: float = 0.5
    signature: str = ""


Faults = Callable[[Leg, int], Fault | None]
"""What befalls a leg before it has so many samples; asked once for each piece of work that is begun."""


def curves(function: Callable[[Params, int], tuple[float | None, float]]) -> Train:
    """Training whose value is a function of parameters and samples alone, a table's say.

    Args:
        function: value at so many samples, and the seconds that one worker needs to get there from the beginning.
    """

    def train(state: Any, params: Params, begin: int, end: int) -> Stretch:
        value, seconds = function(params, end)
        return Stretch(None, value, seconds - (function(params, begin)[1] if begin else 0.0))

    return train


@dataclass(frozen=True)
class Moment:
    """A report, and the virtual seconds and samples of all trials when it came. ``value`` None: not finite."""

    seconds: float
    samples: int
    trial: str
    at: int
    value: float | None


@dataclass(frozen=True)
class _Checkpoint:
    """What a trial leaves behind at each report, before it reports."""

    samples: int
    state: Any
    value: float | None
    worker_seconds: float


@dataclass(order=True)
class _Arrival:
    """A report or a loss that will come; of those at one moment, the one that was begun first."""

    seconds: float
    order: int
    leg: Leg = field(compare=False)
    reached: _Checkpoint = field(compare=False)
    fault: Fault | None = field(compare=False)
    samples: int = field(compare=False)


class Simulation:
    """Machines on which sweeps run, with the checkpoints that their trials have left.

    Args:
        train: what training gives.
        slots: trials that run at once.
        workers: that there are in all; where there are more than trials want, the leaders get them. None: what the
            trials of all slots have to begin with.
        batch: of a trial: it reports after the first whole batch at or beyond a milestone.
        begin_s: seconds from the begin of a leg to its first sample.
        faults: what goes wrong.

    Attributes:
        now: virtual seconds.
        samples: trained by all trials, work that was lost included.
        history: every report that was made.
    """

    def __init__(
        self,
        train: Train,
        *,
        slots: int = 1,
        workers: int | None = None,
        batch: Callable[[Params], int] = lambda params: 1,
        begin_s: float = 0.0,
        faults: Faults = lambda leg, samples: None,
    ) -> None:
        self._train, self._slots, self._workers = train, slots, workers
        self._batch, self._begin_s, self._faults = batch, begin_s, faults
        self._checkpoints: dict[str, list[_Checkpoint]] = {}  # by run
        self._arrivals: list[_Arrival] = []
        self._begun = 0
        self.now = 0.0
        self.samples = 0
        self.history: list[Moment] = []

    def run(self, sweep: Sweep) -> None:
        """Runs a sweep to its end, or until its record raises. A sweep whose driver was killed goes on in another call,
        its log replayed, from the last checkpoints of its trials."""
        self._arrivals.clear()
        begun_at = self.now
        while True:
            self._fill(sweep)
            if not self._arrivals:
                return
            arrival = heapq.heappop(self._arrivals)
            self.now = arrival.seconds
            sweep.elapsed(self.now - begun_at)
            self._arrive(sweep, arrival)

    def _fill(self, sweep: Sweep) -> None:
        while len(sweep.legs) < self._slots:
            leg = sweep.next_leg(self._free(sweep))
            if not isinstance(leg, Leg):
                break
            self._begin(sweep, leg)
        if self._workers is not None:
            sweep.grow(self._free(sweep))

    def _free(self, sweep: Sweep) -> int:
        total = self._slots * sweep.workers.usual if self._workers is None else self._workers
        return total - sum(leg.workers for leg in sweep.legs.values())

    def _begin(self, sweep: Sweep, leg: Leg) -> None:
        own = self._checkpoints.setdefault(leg.run, [])
        if own and own[-1].samples > leg.samples:  # the driver was killed between checkpoint and report
            self._push(self._begin_s, leg, own[-1], None, 0)
            return
        if not own and leg.donor_run is not None:
            donor = self._checkpoints[leg.donor_run]
            own.append(next(c for c in reversed(donor) if c.samples == leg.donor_samples))
        self._work(sweep, leg, own[-1] if own else _Checkpoint(0, None, None, 0.0), self._begin_s)

    def _work(self, sweep: Sweep, leg: Leg, start: _Checkpoint, before_s: float) -> None:
        """The way from a checkpoint to the next report."""
        milestones = sweep.milestones
        goal = milestones[min(bisect_right(milestones, start.samples), len(milestones) - 1)]
        batch = self._batch(leg.params)
        end = start.samples + -(-max(goal - start.samples, 1) // batch) * batch
        stretch = self._train(start.state, leg.params, start.samples, end)
        lanes = sweep.workers.lanes
        faster = lane_steps(lanes, 1) / lane_steps(lanes, leg.workers)
        seconds = stretch.seconds / faster
        fault = self._faults(leg, end)
        share = 1.0 if fault is None else fault.share
        spent = share * seconds * leg.workers
        reached = _Checkpoint(end, stretch.state, finite(stretch.value), spent)
        self._push(before_s + share * seconds, leg, reached, fault, round(share * (end - start.samples)))

    def _push(self, seconds: float, leg: Leg, reached: _Checkpoint, fault: Fault | None, samples: int) -> None:
        self._begun += 1
        heapq.heappush(self._arrivals, _Arrival(self.now + seconds, self._begun, leg, reached, fault, samples))

    def _arrive(self, sweep: Sweep, arrival: _Arrival) -> None:
        leg, reached, fault = arrival.leg, arrival.reached, arrival.fault
        self.samples += arrival.samples
        if fault is not None:
            text = f"{fault.cause} before {reached.samples:,} samples"
            sweep.lost(Loss(leg.trial, fault.cause, text, fault.signature, reached.worker_seconds))
            return
        checkpoints = self._checkpoints[leg.run]
        if not checkpoints or checkpoints[-1].samples < reached.samples:
            checkpoints.append(reached)
        metrics = {"value": reached.value}
        report = Report(leg.trial, reached.samples, reached.value, metrics, reached.worker_seconds, leg.generation)
        self.history.append(Moment(self.now, self.samples, leg.trial, reached.samples, reached.value))
        if sweep.report(report) == "continue":
            self._work(sweep, leg, reached, 0.0)
        else:
            sweep.left(leg.trial)
