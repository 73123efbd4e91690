"""Delivers a run to its tracker beside training, in a thread of the driver. It never stops a run, nor holds it up."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from pliant.errors import PliantError, StorageError
from pliant.registry import PipelineRef
from pliant.settings import RunConfig
from pliant.storage.layout import attempt_key, encode
from pliant.storage.record import RunRecord
from pliant.track.delivery import Delivery
from pliant.track.history import TOLD_OBJECT, recorded_tracking
from pliant.track.settings import TrackingSettings, masked, settle_uri
from pliant.track.status import Truth
from pliant.track.tracker import Card

_LAST_TRIES = 3
_LONGEST_PAUSE_S = 60.0


class Tracking(Protocol):
    """What the driver sees of it."""

    def finish(self, within: float) -> None:
        """Delivers the rest once the stop reason is recorded; names what is left after ``within`` seconds."""
        ...


class NoTracking:
    """A run that nobody is told of."""

    def finish(self, within: float) -> None: ...


def start_tracking(record: RunRecord, ref: PipelineRef, config: RunConfig, tell: Callable[[str], None]) -> Tracking:
    """Begins to deliver a run, first after ``tracking.every`` seconds.

    Args:
        tell: shows a line.
    """
    return NoTracking() if config.tracking.kind == "none" else BackgroundTracking(record, ref, config, tell)


def connect(record: RunRecord, settings: TrackingSettings, storage: str) -> Delivery:
    """Delivery to the store that settings name. Imports MLflow, which takes seconds.

    Args:
        storage: ``run.storage``.

    Raises:
        Exception: the store cannot be opened.
    """
    from pliant.track.mlflow import MlflowTracker

    uri, _ = settle_uri(settings, storage, os.environ)
    pipeline = str(record.identity["pipeline"]).partition(":")[0].rpartition("/")[2].removesuffix(".py")
    name = str(record.identity["name"])
    start_ms = round(float(record.identity["created"]) * 1000)
    card = Card(record.run_id, name, settings.experiment or pipeline, start_ms)
    return Delivery(record, MlflowTracker(uri, storage), uri, card)


def deliver_all(delivery: Delivery, record: RunRecord, ref: PipelineRef, config: RunConfig, *, model: bool) -> Truth:
    """Everything that can be delivered now, the model of a finished run included. Returns the status that was set.

    Raises:
        Exception: as ``Delivery.deliver``, and as building the model does.
    """
    truth = delivery.deliver()
    due = delivery.model_due(truth) if model else None
    if due is not None:
        from pliant.track.model import trained_model

        with trained_model(record, ref, config, due) as trained:
            delivery.deliver_model(due, trained)
    return truth


def reason(error: BaseException) -> str:
    """One line about an error, without passwords."""
    text = error.message if isinstance(error, PliantError) else f"{type(error).__name__}: {error}"
    return masked(text.strip().splitlines()[0][:300])


class BackgroundTracking:
    """The thread."""

    def __init__(self, record: RunRecord, ref: PipelineRef, config: RunConfig, tell: Callable[[str], None]) -> None:
        self._record, self._ref, self._config, self._tell = record, ref, config, tell
        self._delivery: Delivery | None = None
        self._failing: str | None = None
        self._hopeless = False
        self._ending, self._give_up, self._done = threading.Event(), threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="pliant-tracking", daemon=True).start()

    def finish(self, within: float) -> None:
        if self._failing is not None:  # it has been away for a while already
            within = min(within, self._config.tracking.stop_within)
        self._ending.set()
        try:
            in_time = self._done.wait(within)
        except KeyboardInterrupt:
            in_time = False
        if not in_time:
            self._give_up.set()
            self._failing = self._failing or f"it was not waited for longer than {within:g} s"
        if self._failing is not None:
            step = self._delivery.delivered_step() if self._delivery else 0
            self._tell(
                f"{self._where} does not have all of the run (metrics up to step {step}): {self._failing}\n"
                f"  deliver the rest with: pliant sync {self._record.store.uri}"
            )
        elif self._delivery is not None:
            self._tell(f"{self._where} has the run as {self._delivery.run_id}")

    @property
    def _where(self) -> str:
        return f"MLflow at {masked(self._config.tracking.uri or '')}"

    def _run(self) -> None:
        pause = every = self._config.tracking.every
        while not self._ending.wait(pause):
            pause = every if self._try(final=False) else min(2 * pause, max(_LONGEST_PAUSE_S, every))
        for tries in range(_LAST_TRIES):
            if self._try(final=True) or self._hopeless or self._give_up.wait(float(tries + 1)):
                break
        self._done.set()

    def _try(self, *, final: bool) -> bool:
        """One delivery; tells of the first failure in a row, and of the first success after it."""
        settings = self._config.tracking
        try:
            if self._delivery is None:
                self._delivery = connect(self._record, settings, self._config.run.storage)
            if final:
                deliver_all(self._delivery, self._record, self._ref, self._config, model=settings.model)
            else:
                self._delivery.deliver()
        except Exception as error:
            if self._failing is None and not final:
                self._tell(f"{self._where} cannot be told just now; training goes on: {reason(error)}")
            self._failing = reason(error)
            self._hopeless = isinstance(error, PliantError) and not isinstance(error, StorageError)
            return False
        if self._failing is not None and not final:
            self._tell(f"{self._where} is caught up")
        self._failing = None
        return True


def settle_status(record: RunRecord) -> str | None:
    """Tells the tracker of a driver that died without a word, once. Costs next to nothing for any other run.

    Returns:
        What went wrong, if something did.
    """
    owner = record.owner()
    if owner is None or owner.liveness(record.store.settings.heartbeat_fresh) != "dead":
        return None
    told = attempt_key(owner.attempt, TOLD_OBJECT)
    recorded = recorded_tracking(record)
    if recorded is None or recorded[0].kind == "none" or record.store.head(told) is not None:
        return None
    try:
        truth = connect(record, *recorded).set_status()
        record.store.put_if_absent(told, encode({"status": truth.status, "time": time.time()}))
    except Exception as error:
        return f"MLflow could not be told that the run's driver died: {reason(error)}"
    return None
