"""Tells a tracker what it lacks of a sweep: the sweep is a run there, each trial a child of it.

log `decisions` ─► course.py ─► which trials have something new ─► their runs' logs, reports, tags, status ─► tracker

All at once from one place: trials themselves know nothing of it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pliant.checkpoint.clone import checkpoint_at
from pliant.errors import DamageError, UsageError
from pliant.storage.layout import CheckpointRef
from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.track.curves import Curves, Steps
from pliant.track.delivery import MODEL_TAG, REGISTERED_TAG, Delivery, new_id, place_of, recorded_id
from pliant.track.history import first_config, newest_config
from pliant.track.names import flatten, stored_name, tag_value
from pliant.track.status import Truth, truth_of
from pliant.track.tracker import Card, Counterpart, Tracker, TrainedModel
from pliant.tune.decisions import DECISIONS
from pliant.tune.tracking.course import SweepCourse, TrialCourse
from pliant.tune.tracking.trials import ENTRIES_TAG, TrialDelivery, open_trial, standing

TRIAL_TAG = "pliant.trial"


@dataclass(frozen=True)
class DueModel:
    """The model that a tracker shall have of a sweep, and has not.

    Attributes:
        record: of the run of the best trial, in the generation that reported best.
        tracker: of the trial.
        name: of the run and its checkpoint, as the tag says it when it is there.
    """

    record: RunRecord
    checkpoint: CheckpointRef
    tracker: Tracker
    name: str


class SweepDelivery:
    """Deliveries of one sweep by one process.

    Args:
        record, tracker, uri, card: as of ``Delivery``.
    """

    def __init__(self, record: RunRecord, tracker: Tracker, uri: str, card: Card) -> None:
        self._record, self._tracker, self._uri, self._card = record, tracker, uri, card
        self._course = SweepCourse(record)
        self._parent = Delivery(record, tracker, uri, card, [self._course, Steps("system")])
        self._trials: dict[str, TrialDelivery] = {}
        self._there: dict[str, Counterpart] | None = None

    @property
    def run_id(self) -> str | None:
        """The sweep's id in the tracker, once it is known."""
        return self._parent.run_id

    def deliver(self) -> Truth:
        """Delivers all that counts now; returns the sweep's status that it set. Raises as ``Delivery.deliver``."""
        while True:
            truth = self._parent.deliver()
            children = self._children()
            for trial, course in self._course.trials.items():
                if trial not in self._trials:
                    tracker, there = self._link(course, children.get(trial))
                    one = TrialDelivery(self._record, self._base, self._course, course, tracker, there)
                    self._trials[trial] = one
                self._trials[trial].deliver(truth)
            self._parent.set_tags(self._tags())
            if truth.ended:
                self._deliver_outcome()
            # Its driver may have ended meanwhile, or another one begun: then trials stand otherwise, too.
            if truth_of(self._record).status == truth.status:
                return truth

    def set_status(self) -> Truth:
        """Makes the statuses of the sweep and of its trials that the tracker has true, and nothing else."""
        truth = self._parent.set_status()
        self._course.moments(self._record, self._record.view(), Curves(self._tracker, None), math.inf)
        for trial, there in self._children().items():
            status, _, at_ms = standing(self._course.trials[trial], truth)
            if there.status != status:
                self._tracker.of(there.run_id).set_status(status, at_ms)
        return truth

    def model_due(self, truth: Truth) -> DueModel | None:
        """The model of the best trial, of a sweep that has ended as it should, unless the tracker has it."""
        found = self._best_model() if truth.status == "FINISHED" else None
        return found if found and found.tracker.look().tags.get(MODEL_TAG) != found.name else None

    def deliver_model(self, due: DueModel, model: TrainedModel) -> None:
        """Logs the best trial's model with that trial."""
        due.tracker.add_model(model)
        due.tracker.set_tags({MODEL_TAG: due.name})

    def register(self, name: str, alias: str) -> None:
        """Registers the best trial's model, if it has been logged; a second time changes nothing."""
        found = self._best_model()
        if found is not None and found.tracker.look().tags.get(MODEL_TAG) == found.name:
            version = found.tracker.register(name, alias, self._lineage(found.record, found.checkpoint))
            self._parent.set_tags({REGISTERED_TAG: f"models:/{name}/{version}"})

    def _best_model(self) -> DueModel | None:
        best = self._course.state.best
        if best is None or best.trial not in self._trials or self._trials[best.trial].removed:
            return None
        record = open_trial(self._record, best.run)
        ref = _checkpoint(record, best.samples) if record is not None else None
        if record is None or ref is None:
            return None
        return DueModel(record, ref, self._trials[best.trial].tracker, f"{best.run}/{ref.name}")

    def delivered_trials(self) -> int:
        """How many trials are known to be there, to their end."""
        return sum(trial.whole for trial in self._trials.values())

    def _lineage(self, record: RunRecord, ref: CheckpointRef) -> dict[str, str]:
        best = self._course.state.best
        if best is None:
            return {}
        steps = read_log(record.store, record.view(), "metrics")
        at = next((entry for entry in steps if entry["step"] == ref.step), {})
        ancestry = self._course.lineage(best.trial, best.generation)
        return {
            "pliant.sweep": str(self._record.identity["name"]),
            "pliant.sweep.run_id": str(self.run_id),
            TRIAL_TAG: best.trial,
            "pliant.generation": str(best.generation),
            f"pliant.{stored_name(self._course.metric)}": repr(best.value),
            **{f"pliant.{key}": repr(at[key]) for key in ("samples", "lr", "global_batch") if key in at},
            **({"pliant.lineage": tag_value(json.dumps(ancestry))} if len(ancestry) > 1 else {}),
        }

    @cached_property
    def _base(self) -> Mapping[str, str]:
        """The settings that all trials share, by dotted key."""
        return dict(flatten(first_config(self._record) or {}))

    def _children(self) -> Mapping[str, Counterpart]:
        """What the tracker had of the trials when it was asked first."""
        if self._there is None:
            self._there = {c.tags[TRIAL_TAG]: c for c in self._tracker.children() if TRIAL_TAG in c.tags}
        return self._there

    def _link(self, course: TrialCourse, there: Counterpart | None) -> tuple[Tracker, Counterpart]:
        """A trial's counterpart, made where there is none."""
        if there is not None:
            return self._tracker.of(there.run_id), there
        store, trial = self._record.store, course.trial.id
        key = f"{place_of(self._uri)}/{trial}.json"
        run_id = recorded_id(store, key)
        if run_id is None:
            tags = {TRIAL_TAG: trial, "pliant.sweep": str(self._record.identity["name"])}
            start_ms, own_id = round(course.began * 1000), f"{self._record.run_id}/{trial}"
            card = Card(own_id, trial, self._card.experiment, start_ms, self.run_id, tags)
            run_id, mine = new_id(store, key, self._uri, self._tracker, card)
            if mine:
                return self._tracker.of(run_id), Counterpart(run_id, "RUNNING", False, {}, tags, frozenset())
        tracker = self._tracker.of(run_id)
        return tracker, tracker.look()

    def _tags(self) -> dict[str, str]:
        ended = Counter(trial.end.how if trial.end else "open" for trial in self._course.state.trials.values())
        tags = {"pliant.trials": json.dumps(dict(sorted(ended.items())))}
        if (best := self._course.state.best) is not None:
            told = {"trial": best.trial, "generation": best.generation, "samples": best.samples, "value": best.value}
            tags["pliant.best"] = json.dumps(told)
            tags["pliant.best.run_id"] = self._trials[best.trial].run_id
        return tags

    def _deliver_outcome(self) -> None:
        """Of a sweep that has ended: its decision log, and the settings of the best trial."""
        entries = str(self._course.entries)
        if self._parent.tag(ENTRIES_TAG) == entries:
            return
        lines = [json.dumps(entry) for entry in read_log(self._record.store, self._record.view(), DECISIONS)]
        self._tracker.add_artifact("decisions.jsonl", ("\n".join(lines) + "\n").encode())
        best = self._course.state.best
        run = None if best is None else open_trial(self._record, best.run)
        if run is not None and (config := newest_config(run)) is not None:
            self._tracker.add_artifact("best.yaml", config)
        self._parent.set_tags({ENTRIES_TAG: entries})


def _checkpoint(record: RunRecord, samples: int) -> CheckpointRef | None:
    """The checkpoint after so many samples; where that is gone, the newest there is."""
    try:
        return checkpoint_at(record.store, samples)
    except (UsageError, DamageError):
        usable = record.view().checkpoints()
        return usable[0] if usable else None
