"""A sweep with all its trials, delivered by the thread of its driver or by ``pliant sync``; its status when it died."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pliant.registry import PipelineRef
from pliant.settings import RunConfig
from pliant.storage.record import RunRecord
from pliant.track import background
from pliant.track.background import Tracking, deliver_beside, open_tracker, register
from pliant.track.settings import TrackingSettings
from pliant.track.status import Truth
from pliant.tune.tracking.delivery import SweepDelivery


def start_sweep_tracking(
    record: RunRecord, ref: PipelineRef, config: RunConfig, tell: Callable[[str], None]
) -> Tracking:
    """Begins to deliver a sweep with all its trials, as ``start_tracking`` a run.

    Args:
        config: the settings that all its trials share.
        tell: shows a line.
    """
    return deliver_beside(record, config.tracking, SweepOutbox(record, ref, config), tell)


@dataclass
class SweepOutbox:
    """An ``Outbox`` (track/background.py); ``delivered``: trials that are there to their end."""

    record: RunRecord
    ref: PipelineRef
    config: RunConfig
    delivery: SweepDelivery | None = None

    def deliver(self, *, last: bool) -> Truth:
        tracking = self.config.tracking
        if self.delivery is None:
            self.delivery = connect_sweep(self.record, tracking, self.config.run.storage)
        truth = self.delivery.deliver()
        due = self.delivery.model_due(truth) if last and tracking.model else None
        if due is not None:
            from pliant.track.model import trained_model
            from pliant.train.recorded import load_recorded

            config = load_recorded(due.record, self.ref).config
            with trained_model(due.record, self.ref, config, due.checkpoint) as trained:
                self.delivery.deliver_model(due, trained)
        register(self.delivery, truth, tracking, last=last)
        return truth

    @property
    def run_id(self) -> str | None:
        return self.delivery.run_id if self.delivery else None

    @property
    def delivered(self) -> int:
        return self.delivery.delivered_trials() if self.delivery else 0

    @property
    def reached(self) -> str:
        return f"{self.delivered} trials to their end"


def connect_sweep(record: RunRecord, settings: TrackingSettings, storage: str) -> SweepDelivery:
    """Delivery of a sweep to the store that settings name; arguments and errors as of ``connect`` for a run."""
    return SweepDelivery(record, *open_tracker(record, settings, storage))


def settle_status(record: RunRecord) -> str | None:
    """Tells the tracker of a sweep's driver that died, as ``settle_status`` of track/background.py of a run's."""
    return background.settle_status(record, connect_sweep)
