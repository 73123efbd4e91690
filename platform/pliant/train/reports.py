"""What a trial of a sweep adds to training: after its milestones it evaluates, saves, reports, and awaits a decision.

loop ─► due? ─► evaluation ─► checkpoint ─► ask (rank 0) ─► on, or leave with the checkpoint

The axis is samples. Nothing is remembered between two processes: whether a step crosses a milestone follows from the
state, and whether its report was made from what the leg was told.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pliant.checkpoint.ranks import Ranks
from pliant.storage.logs import last_entry
from pliant.storage.record import RunRecord
from pliant.train.state import TrainState

Ask = Callable[[int, Mapping[str, float], float], bool]
"""(samples, values of the evaluation, worker-seconds since the last report) → whether the trial goes on."""


_NO_VALUES = ("step", "samples", "seconds", "time", "attempt")
"""What an entry of the log of evaluations holds besides."""


@dataclass(frozen=True)
class ReportPlan:
    """When a leg of a trial reports; small and picklable.

    Attributes:
        milestones: samples, ascending; it reports after the first step at or beyond each, and after its last step.
        reported: samples of the trial's last report that is known already; −1 before the first.
        durable: whether the state of a report is committed before it is made: where it may be cloned.
    """

    milestones: tuple[int, ...]
    reported: int = -1
    durable: bool = False

    def crosses(self, before: int, after: int) -> bool:
        """Whether a step from ``before`` to ``after`` samples reaches a milestone."""
        return bisect_left(self.milestones, before + 1) < bisect_left(self.milestones, after + 1)


class Reports(Protocol):
    """What the loop sees of it; the same on all ranks."""

    @property
    def told_to_leave(self) -> bool:
        """Whether the sweep ended this leg."""
        ...

    def due(self, state: TrainState) -> bool:
        """Whether the state after its step is to be reported, and so evaluated and saved."""
        ...

    def owed(self, state: TrainState) -> bool:
        """Whether the state that training begins with was saved, and its report never made."""
        ...

    def make(self, state: TrainState) -> bool:
        """Reports; whether training goes on. Collective; waits for the sweep."""
        ...


class NoReports:
    """A run of its own."""

    told_to_leave = False

    def due(self, state: TrainState) -> bool:
        return False

    def owed(self, state: TrainState) -> bool:
        return False

    def make(self, state: TrainState) -> bool:
        return True


class TrialReports:
    """One per rank.

    Args:
        ranks: all ranks of the trial.
        total_steps: the trial's last step.
        values: of the evaluation after the state's step; asked on rank 0.
        settle: returns when the checkpoint of a state is committed.
        wait_for: told what is being waited for.
    """

    def __init__(
        self,
        plan: ReportPlan,
        ask: Ask,
        ranks: Ranks,
        *,
        total_steps: int,
        values: Callable[[TrainState], Mapping[str, float]],
        settle: Callable[[TrainState], None],
        wait_for: Callable[[str], None],
    ) -> None:
        self._plan, self._ask, self._ranks, self._total_steps = plan, ask, ranks, total_steps
        self._values, self._settle, self._wait_for = values, settle, wait_for
        self._since = time.monotonic()
        self.told_to_leave = False

    def due(self, state: TrainState) -> bool:
        samples = state.data.samples
        return state.step == self._total_steps or self._plan.crosses(samples - state.data.global_batch, samples)

    def owed(self, state: TrainState) -> bool:
        return state.step > 0 and state.data.samples != self._plan.reported and self.due(state)

    def make(self, state: TrainState) -> bool:
        if self._plan.durable:
            self._settle(state)
        self._wait_for("the sweep's decision")
        goes_on = self._ranks.at_root("reporting to the sweep", lambda: self._report(state))
        self._wait_for("")
        self.told_to_leave = not goes_on
        return goes_on

    def _report(self, state: TrainState) -> bool:
        now = time.monotonic()
        seconds, self._since = (now - self._since) * self._ranks.size, now
        return self._ask(state.data.samples, self._values(state), seconds)


def evaluated_before(record: RunRecord | None, state: TrainState) -> dict[str, float]:
    """Values of the evaluation after a restored step, which an earlier group made and recorded."""
    if record is None:
        return {}
    entry = last_entry(record.store, record.view(), "evaluations") or {}
    if entry.get("step") != state.step:
        return {}
    return {name: value for name, value in entry.items() if name not in _NO_VALUES}


def milestones_of(every: int, length: int) -> Sequence[int]:
    """Multiples of ``every`` samples up to ``length``, which is always the last."""
    return (*range(every, length, every), length)
