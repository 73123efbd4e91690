"""Runs the legs of a sweep on Ray Tune, which is touched here and in legs.py alone.

    Desk.next_leg ─► Tune trial, one per leg ─► Leg.step: a report ─► Desk.report ─► reply ─► … ─► Desk.ended

Tune places legs on the cluster, reuses their processes and notices when one is lost. What is tried, what goes on and
what stops is not its business: a Tune trial is one leg, which Tune never retries, pauses or restores, so that nothing
Tune keeps matters for the sweep (its restore forgets its schedulers, and a failed one starts over silently).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ray.train._internal.storage import StorageContext
from ray.tune import PlacementGroupFactory, Trainable
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.registry import register_trainable
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import SearchAlgorithm

from pliant.observe.board import STOP
from pliant.tune.legs import EVENT, Leg, Reached, RemoteBulletin
from pliant.tune.trial import LegSpec, Outcome

_TRAINABLE = "pliant-leg"
_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_RESULT_BUFFER_LENGTH": "0",
    "TUNE_WARN_THRESHOLD_S": "10",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


class Desk(Protocol):
    """Where legs come from and what becomes of them; called by one thread. What it raises ends the sweep."""

    def next_leg(self) -> tuple[str, LegSpec, Mapping[str, float]] | None:
        """Key of the next leg, what it is, and the Ray resources of each worker; None where none can begin now."""
        ...

    def report(self, key: str, reached: Reached) -> bool:
        """Whether the leg goes on. What was decided is durable when it returns."""
        ...

    def ended(self, key: str, outcome: Outcome) -> None:
        """The leg has ended, and its process is free."""
        ...

    @property
    def over(self) -> bool:
        """Whether no leg begins any more."""
        ...


class Executor:
    """Runs legs until the desk is over and none runs any more.

    Args:
        folder: a local directory that Tune may use; nothing in it is needed afterwards.
        slots: legs at once.
        process: runs them.
    """

    def __init__(
        self, desk: Desk, bulletin: RemoteBulletin, *, folder: str, slots: int, process: type[Trainable] = Leg
    ) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # What it says of a process that was lost, in twenty lines, the desk is told, and logs.
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        register_trainable(_TRAINABLE, process)
        storage = StorageContext(storage_path=folder, experiment_dir_name="legs")
        storage.experiment_driver_staging_path  # noqa: B018
        self._legs = _Legs(desk, bulletin, storage, slots)
        self._controller = _Controller(
            self._legs,
            search_alg=self._legs,
            scheduler=_Replies(self._legs),
            storage=storage,
            reuse_actors=True,
            callbacks=[],
        )
        self._controller.update_max_pending_trials(slots)

    def run(self) -> None:
        """Returns when all is done; call from a thread that may block.

        Raises:
            Exception: what the desk raised; the legs have left with a checkpoint then.
        """
        try:
            while not self._controller.is_finished():
                self._controller.step()
        finally:
            self._controller.cleanup()
        if self._legs.error is not None:
            raise self._legs.error


@dataclass
class _Legs(SearchAlgorithm):
    """What Tune asks for trials; and what hears of them, by way of the scheduler."""

    desk: Desk
    bulletin: RemoteBulletin
    storage: StorageContext
    slots: int
    running: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)  # legs whose machine goes away
    error: Exception | None = None

    def next_trial(self) -> Trial | None:
        if self.error is not None or len(self.running) >= self.slots:
            return None
        try:
            found = self.desk.next_leg()
        except Exception as error:
            self.fail(error)
            return None
        if found is None:
            return None
        key, spec, resources = found
        self.running.add(key)
        return Trial(
            _TRAINABLE,
            trial_id=key,
            config={"leg": spec, "bulletin": self.bulletin, "key": key},
            storage=self.storage,
            placement_group_factory=PlacementGroupFactory(_bundles(resources, spec.workers)),
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        )

    def is_finished(self) -> bool:
        return self.error is not None or self.desk.over

    def report(self, key: str, reached: Reached) -> bool:
        try:
            return self.error is None and self.desk.report(key, reached)
        except Exception as error:
            self.fail(error)
            return False

    def ended(self, key: str, outcome: Outcome) -> None:
        self.running.discard(key)
        if outcome.cause == "preemption":
            self.gone.add(key)
        try:
            if self.error is None:
                self.desk.ended(key, outcome)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """The sweep cannot go on: the legs that run leave at their next step."""
        self.error = error
        self.bulletin.request(STOP)


def _bundles(resources: Mapping[str, float], workers: int) -> list[dict[str, float]]:
    """What a leg needs, taken at once: its only worker's, or those of several and of a process that needs nothing."""
    return [dict(resources)] if workers == 1 else [{}, *[dict(resources)] * workers]


class _Replies(FIFOScheduler):
    """Where Tune hears what becomes of a trial."""

    def __init__(self, legs: _Legs) -> None:
        super().__init__()
        self._legs = legs

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        goes_on = self._legs.report(trial.trial_id, result[EVENT])
        # Calls to an actor run in the order they are made: this one before the next step.
        trial.temporary_state.ray_actor.reply.remote(goes_on)
        return str(TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        self._legs.ended(trial.trial_id, result[EVENT])


class _Controller(TuneController):
    """Tune's loop, which keeps no state of its own on disk."""

    def __init__(self, legs: _Legs, **settings: Any) -> None:
        self._pliant_legs = legs
        super().__init__(**settings)

    def checkpoint(self, force: bool = False, wait: bool = False) -> None:
        """Nothing of Tune's is needed to go on with a sweep."""

    def _maybe_cache_trial_actor(self, trial: Trial) -> bool:
        """A process whose machine goes away is not used for another leg, which would have to leave at once."""
        return trial.trial_id not in self._pliant_legs.gone and bool(super()._maybe_cache_trial_actor(trial))

    def _process_trial_failure(self, trial: Trial, exception: Any) -> None:
        cause = "preemption" if getattr(exception, "preempted", False) else "infrastructure"
        lines = [line for line in str(exception).splitlines() if line.strip()]
        text = f"its process was lost: {lines[0].strip() if lines else type(exception).__name__}"
        super()._process_trial_failure(trial, exception)
        self._pliant_legs.ended(trial.trial_id, Outcome("lost", cause, text))  # type: ignore[arg-type]
