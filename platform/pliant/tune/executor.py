"""Runs the legs of a sweep on Ray Tune. The only file that touches it.

    Desk.next_leg ─► Tune trial, one per leg ─► Leg.step: a report ─► Desk.report ─► reply ─► … ─► Desk.ended

Tune places legs on the cluster, reuses their processes and notices when one is lost. What is tried, what goes on and
what stops is not its business: a Tune trial is one leg, which Tune never retries, pauses or restores, so that nothing
Tune keeps matters for the sweep (its restore forgets its schedulers, and a failed one starts over silently).
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import ray
from ray.train._internal.storage import StorageContext
from ray.tune import PlacementGroupFactory, Trainable
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.registry import register_trainable
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import SearchAlgorithm

from pliant.elastic.nodes import drains
from pliant.observe.board import STOP, Note
from pliant.tune.trial import Exchange, LegSpec, Outcome, run_leg

_TRAINABLE = "pliant-leg"
_PAYLOAD = "pliant"
_NOTICES_S = 0.5
_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_RESULT_BUFFER_LENGTH": "0",
    "TUNE_WARN_THRESHOLD_S": "10",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


@dataclass(frozen=True)
class Reached:
    """What a leg reports: samples, values of its evaluation by metric, and worker-seconds since its last report."""

    samples: int
    values: Mapping[str, float]
    worker_seconds: float


class Desk(Protocol):
    """Where legs come from and what becomes of them; called by one thread. What it raises ends the sweep."""

    def next_leg(self) -> tuple[str, LegSpec, Mapping[str, float]] | None:
        """Key of the next leg, what it is, and the Ray resources of its process; None where none can begin now."""
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


class Bulletin:
    """An actor between the legs and the sweep's driver: progress goes one way, wishes the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: list[tuple[str, Note]] = []
        self._all = 0
        self._wishes: dict[str, int] = {}

    def exchange(self, key: str, notes: list[Note]) -> int:
        """Leaves a leg's notes; returns the wishes for it so far."""
        with self._lock:
            self._notes.extend((key, note) for note in notes)
            return self._all | self._wishes.get(key, 0)

    def request(self, wish: int, key: str | None = None) -> None:
        """Wishes something of a leg, or of all of them."""
        with self._lock:
            if key is None:
                self._all |= wish
            else:
                self._wishes[key] = self._wishes.get(key, 0) | wish

    def drain(self) -> list[tuple[str, Note]]:
        """The notes since the last call, each with its leg."""
        with self._lock:
            notes, self._notes = self._notes, []
            return notes


class RemoteBulletin:
    """The bulletin as the driver and the legs hold it."""

    def __init__(self) -> None:
        here = ray.get_runtime_context().get_node_id()
        self._actor = ray.remote(
            num_cpus=0, label_selector={"ray.io/node-id": here}, max_concurrency=16
        )(Bulletin).remote()  # fmt: skip

    def exchange(self, key: str, notes: list[Note]) -> int:
        return int(ray.get(self._actor.exchange.remote(key, notes)))

    def request(self, wish: int, key: str | None = None) -> None:
        ray.get(self._actor.request.remote(wish, key))

    def drain(self) -> list[tuple[str, Note]]:
        found: list[tuple[str, Note]] = ray.get(self._actor.drain.remote())
        return found


class Leg(Trainable):
    """The process of legs, one after the other. ``step`` returns at the leg's next report, or at its end."""

    def setup(self, config: dict[str, Any]) -> None:
        self._thread: threading.Thread | None = None
        self._events: queue.Queue[Reached | Outcome] = queue.Queue()
        self._answers: queue.Queue[bool] = queue.Queue()
        self._goes_on = True

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._leave()
        self.setup(new_config)
        return True

    def reply(self, goes_on: bool) -> None:
        """What becomes of the leg after the report that ``step`` has returned."""
        self._goes_on = goes_on

    def step(self) -> dict[str, Any]:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pliant-leg", daemon=True)
            self._thread.start()
        else:
            self._answers.put(self._goes_on)
        event = self._events.get()
        if isinstance(event, Outcome):
            self._thread.join()
            return {_PAYLOAD: event, "done": True}
        return {_PAYLOAD: event}

    def cleanup(self) -> None:
        self._leave()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None

    def _run(self) -> None:
        spec: LegSpec = self.config["leg"]
        bulletin: RemoteBulletin = self.config["bulletin"]
        with _Notices(partial(bulletin.exchange, self.config["key"])) as notices:
            outcome = run_leg(spec, self._ask, notices.exchange)
        if outcome.cause == "stopped" and notices.come:
            outcome = Outcome("lost", "preemption", "its machine goes away")
        self._events.put(outcome)

    def _ask(self, samples: int, values: Mapping[str, float], worker_seconds: float) -> bool:
        self._events.put(Reached(samples, dict(values), worker_seconds))
        return self._answers.get()

    def _leave(self) -> None:
        """Ends a leg whose end nobody has waited for: the driver has given up on it."""
        if self._thread is not None and self._thread.is_alive():
            self._answers.put(False)
            self._thread.join(5.0)


class _Notices:
    """Has the leg leave with a checkpoint when its machine goes away.

    Args:
        exchange: hands over notes and returns wishes.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._ended = threading.Event()
        self.come = False
        self._thread = threading.Thread(target=self._watch, name="pliant-notices", daemon=True)

    def __enter__(self) -> _Notices:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def exchange(self, notes: list[Note]) -> int:
        """Notes and wishes, those of the machine among them."""
        return (STOP if self.come else 0) | self._exchange(notes)

    def _watch(self) -> None:
        here = ray.get_runtime_context().get_node_id()
        while not self._ended.wait(_NOTICES_S):
            with suppress(Exception):  # the control service does not answer just now
                self.come = self.come or drains(here)


class Executor:
    """Runs legs until the desk is over and none runs any more.

    Args:
        folder: a local directory that Tune may use; nothing in it is needed afterwards.
        slots: legs at once.
    """

    def __init__(self, desk: Desk, bulletin: RemoteBulletin, *, folder: str, slots: int) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        register_trainable(_TRAINABLE, Leg)
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
            placement_group_factory=PlacementGroupFactory([dict(resources)]),
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
        try:
            if self.error is None:
                self.desk.ended(key, outcome)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """The sweep cannot go on: the legs that run leave at their next step."""
        self.error = error
        self.bulletin.request(STOP)


class _Replies(FIFOScheduler):
    """Where Tune hears what becomes of a trial."""

    def __init__(self, legs: _Legs) -> None:
        super().__init__()
        self._legs = legs

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        goes_on = self._legs.report(trial.trial_id, result[_PAYLOAD])
        # Calls to an actor run in the order they are made: this one before the next step.
        trial.temporary_state.ray_actor.reply.remote(goes_on)
        return str(TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        self._legs.ended(trial.trial_id, result[_PAYLOAD])


class _Controller(TuneController):
    """Tune's loop, which keeps no state of its own on disk."""

    def __init__(self, legs: _Legs, **settings: Any) -> None:
        self._pliant_legs = legs
        super().__init__(**settings)

    def checkpoint(self, force: bool = False, wait: bool = False) -> None:
        """Nothing of Tune's is needed to go on with a sweep."""

    def _process_trial_failure(self, trial: Trial, exception: Any) -> None:
        cause = "preemption" if getattr(exception, "preempted", False) else "infrastructure"
        lines = [line for line in str(exception).splitlines() if line.strip()]
        text = f"its process was lost: {lines[0].strip() if lines else type(exception).__name__}"
        super()._process_trial_failure(trial, exception)
        self._pliant_legs.ended(trial.trial_id, Outcome("lost", cause, text))  # type: ignore[arg-type]
