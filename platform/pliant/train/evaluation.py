"""When to evaluate, and what an evaluation changes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from pliant.train.observer import Observer
from pliant.train.protocols import Pipeline
from pliant.train.settings import EvalSettings
from pliant.train.state import TrainState


class Evaluation:
    """Evaluates after the steps that are due.

    Args:
        measure: runs the model over the validation rows, collective, and gives None where it is broken off; None
            without validation rows.
        total_steps: the run's last step.
        reporting: whether the state after a step is reported to a sweep, and therefore evaluated.
    """

    def __init__(
        self,
        settings: EvalSettings,
        pipeline: Pipeline[Any],
        measure: Callable[[], dict[str, float] | None] | None,
        observer: Observer,
        *,
        total_steps: int,
        reporting: Callable[[TrainState], bool] = lambda state: False,
    ) -> None:
        self._settings, self._measure, self._observer = settings, measure, observer
        self._main = pipeline.main_metric
        self._smaller_is_better = pipeline.metrics[self._main] == "min"
        self._total_steps, self._reporting = total_steps, reporting
        self.values: dict[str, float] | None = None
        """Of the last evaluation of this process."""

    def due(self, state: TrainState) -> bool:
        every = self._settings.every_steps
        regular = every is not None and state.step % every == 0
        at_end = self._settings.at_end and state.step == self._total_steps
        return self._measure is not None and (regular or at_end or self._reporting(state))

    def unfinished(self, state: TrainState) -> bool:
        """Whether an evaluation after this step is due that was not finished: the group was asked to leave in it."""
        return state.step > 0 and self.due(state) and state.evaluated != state.step

    def run(self, state: TrainState) -> TrainState:
        """Evaluates; the state knows the step and the best value so far. Unchanged when the group is to leave."""
        if self._measure is None:
            return state
        started = time.perf_counter()
        values = self._measure()
        if values is None:
            return state
        self.values = values
        value = values[self._main] if math.isfinite(values[self._main]) else None
        improved = value is not None and (state.best is None or self._better(value, state.best))
        state = state.advance(evaluated=state.step, metric=value, best=value if improved else state.best)
        self._observer.evaluation(state, values, seconds=time.perf_counter() - started)
        return state

    def _better(self, value: float, best: float) -> bool:
        return value < best if self._smaller_is_better else value > best
