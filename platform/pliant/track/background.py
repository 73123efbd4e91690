"""Delivers beside training, in a thread of the driver: a run, or what else an ``Outbox`` has. It never stops a run, nor
holds it up."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pliant.errors import PliantError, StorageError, UsageError
from pliant.registry import PipelineRef
from pliant.settings import RunConfig
from pliant.storage.layout import attempt_key, encode
from pliant.storage.record import RunRecord
from pliant.track.delivery import Delivery
from pliant.track.history import TOLD_OBJECT, recorded_tracking
from pliant.track.settings import TrackingSettings, masked, settle_uri
from pliant.track.status import Truth, is_trial
from pliant.track.tracker import Card, Tracker

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
    """Begins to deliver a run; of a sweep's trial its sweep tells.

    Args:
        tell: shows a line.
    """
    if is_trial(record):
        return NoTracking()
    return deliver_beside(record, config.tracking, run_outbox(record, ref, config), tell)


def deliver_beside(record: RunRecord, settings: TrackingSettings, box: Outbox, tell: Callable[[str], None]) -> Tracking:
    """Begins to deliver, first after ``tracking.every`` seconds.

    Args:
        box: what the record has to tell.
        tell: shows a line.
    """
    return NoTracking() if settings.kind == "none" else BackgroundTracking(record, settings, box, tell)


class Outbox(Protocol):
    """What is to be delivered."""

    def deliver(self, *, last: bool) -> Truth:
        """Delivers what can be delivered now; returns the status that it set.

        Args:
            last: of this process: with the model of a run or sweep that has ended as it should.

        Raises:
            Exception: whatever the store, the storage, or building the model raises.
        """
        ...

    @property
    def run_id(self) -> str | None:
        """In the tracker, once it is known."""
        ...

    @property
    def delivered(self) -> int:
        """How far it has come: of a run its newest step, of a sweep trials that are there to their end."""
        ...

    @property
    def reached(self) -> str:
        """The same for people."""
        ...


@dataclass
class RunOutbox:
    """A run."""

    record: RunRecord
    ref: PipelineRef
    config: RunConfig
    delivery: Delivery | None = None

    def deliver(self, *, last: bool) -> Truth:
        if self.delivery is None:
            self.delivery = connect(self.record, self.config.tracking, self.config.run.storage)
        truth = self.delivery.deliver()
        due = self.delivery.model_due(truth) if last and self.config.tracking.model else None
        if due is not None:
            from pliant.track.model import trained_model

            with trained_model(self.record, self.ref, self.config, due) as trained:
                self.delivery.deliver_model(due, trained)
        register(self.delivery, truth, self.config.tracking, last=last)
        return truth

    @property
    def run_id(self) -> str | None:
        return self.delivery.run_id if self.delivery else None

    @property
    def delivered(self) -> int:
        return self.delivery.delivered_step() if self.delivery else 0

    @property
    def reached(self) -> str:
        return f"metrics up to step {self.delivered}"


class Registers(Protocol):
    """A delivery, as to its model."""

    def register(self, name: str, alias: str) -> None:
        """Registers the model that it has logged, if there is one; a second time changes nothing."""
        ...


def register(delivery: Registers, truth: Truth, settings: TrackingSettings, *, last: bool) -> None:
    """Registers the model where the settings ask for it, once what it comes from has ended as it should.

    Args:
        truth, last: as of ``Outbox.deliver``.
    """
    if last and settings.model and settings.register_as is not None and truth.status == "FINISHED":
        delivery.register(settings.register_as, settings.alias)


def run_outbox(record: RunRecord, ref: PipelineRef, config: RunConfig) -> Outbox:
    """What a run has to tell.

    Raises:
        UsageError: it is that of a trial.
    """
    if is_trial(record):
        message = (
            f"this is a trial of the sweep {record.identity['sweep']['name']}: MLflow is told of it with its sweep"
        )
        sweep = record.store.uri.rpartition("/trials/")[0]
        raise UsageError("track.trial", message, hint=f"pliant sync {sweep}", location=record.store.uri)
    return RunOutbox(record, ref, config)


def connect(record: RunRecord, settings: TrackingSettings, storage: str) -> Delivery:
    """Delivery of a run to the store that settings name. Imports MLflow, which takes seconds.

    Args:
        storage: ``run.storage``.

    Raises:
        Exception: the store cannot be opened.
    """
    return Delivery(record, *open_tracker(record, settings, storage))


def open_tracker(record: RunRecord, settings: TrackingSettings, storage: str) -> tuple[Tracker, str, Card]:
    """The tracker that settings name, the URI of its store, and what a record's counterpart there is created with.
    Raises as ``connect``."""
    from pliant.track.mlflow import MlflowTracker

    uri, _ = settle_uri(settings, storage, os.environ)
    pipeline = str(record.identity["pipeline"]).partition(":")[0].rpartition("/")[2].removesuffix(".py")
    name = str(record.identity["name"])
    start_ms = round(float(record.identity["created"]) * 1000)
    card = Card(record.run_id, name, settings.experiment or pipeline, start_ms)
    return MlflowTracker(uri, storage), uri, card


def reason(error: BaseException) -> str:
    """One line about an error, without passwords."""
    text = error.message if isinstance(error, PliantError) else f"{type(error).__name__}: {error}"
    return masked(text.strip().splitlines()[0][:300])


class BackgroundTracking:
    """The thread."""

    def __init__(self, record: RunRecord, settings: TrackingSettings, box: Outbox, tell: Callable[[str], None]) -> None:
        self._record, self._settings, self._box, self._tell = record, settings, box, tell
        self._what = "sweep" if record.is_sweep else "run"
        self._failing: str | None = None
        self._hopeless = False
        self._ending, self._give_up, self._done = threading.Event(), threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="pliant-tracking", daemon=True).start()

    def finish(self, within: float) -> None:
        if self._failing is not None:  # it has been away for a while already
            within = min(within, self._settings.stop_within)
        self._ending.set()
        try:
            in_time = self._done.wait(within)
        except KeyboardInterrupt:
            in_time = False
        if not in_time:
            self._give_up.set()
            self._failing = self._failing or f"it was not waited for longer than {within:g} s"
        if self._failing is not None:
            self._tell(
                f"{self._where} does not have all of the {self._what} ({self._box.reached}): {self._failing}\n"
                f"  deliver the rest with: pliant sync {self._record.store.uri}"
            )
        elif self._box.run_id is not None:
            self._tell(f"{self._where} has the {self._what} as {self._box.run_id}")

    @property
    def _where(self) -> str:
        return f"MLflow at {masked(self._settings.uri or '')}"

    def _run(self) -> None:
        pause = every = self._settings.every
        while not self._ending.wait(pause):
            pause = every if self._try(last=False) else min(2 * pause, max(_LONGEST_PAUSE_S, every))
        for tries in range(_LAST_TRIES):
            if self._try(last=True) or self._hopeless or self._give_up.wait(float(tries + 1)):
                break
        self._done.set()

    def _try(self, *, last: bool) -> bool:
        """One delivery; tells of the first failure in a row, and of the first success after it."""
        try:
            self._box.deliver(last=last)
        except Exception as error:
            if self._failing is None and not last:
                self._tell(f"{self._where} cannot be told just now; training goes on: {reason(error)}")
            self._failing = reason(error)
            self._hopeless = isinstance(error, PliantError) and not isinstance(error, StorageError)
            return False
        if self._failing is not None and not last:
            self._tell(f"{self._where} is caught up")
        self._failing = None
        return True


class SetsStatus(Protocol):
    """A delivery, as to its status."""

    def set_status(self) -> Truth:
        """Makes the status that the tracker has true, and nothing else."""
        ...


def settle_status(
    record: RunRecord, connect: Callable[[RunRecord, TrackingSettings, str], SetsStatus] = connect
) -> str | None:
    """Tells the tracker of a driver that died without a word, once. Costs next to nothing for any other run.

    Args:
        connect: opens the delivery of such a record.

    Returns:
        What went wrong, if something did.
    """
    owner = record.owner()
    if is_trial(record) or owner is None or owner.liveness(record.store.settings.heartbeat_fresh) != "dead":
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
