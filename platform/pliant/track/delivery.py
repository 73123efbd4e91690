"""Tells a tracker what it lacks of a run: a function of the run's record and of what the tracker has already.

    record ──► what counts: logs up to the newest committed checkpoint, settings, attempts, status ──► tracker

Any process may deliver at any time, again after any failure, and two at once: what is there already is not sent
twice. A step that a resume has trained again keeps its first values in the tracker, and a tag names it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from pliant.storage.layout import CheckpointRef, attempt_key, decode, encode
from pliant.storage.record import RunRecord
from pliant.storage.store import Store
from pliant.storage.view import STEP_LOGS, View
from pliant.track.curves import Curves, Source, Steps
from pliant.track.goodput import Account
from pliant.track.history import CONFIG, RESOLVED, Facts, artifact, datasets, read_facts
from pliant.track.lives import read_accounts, spent
from pliant.track.names import tag_value
from pliant.track.settings import masked
from pliant.track.status import Truth, truth_of
from pliant.track.tracker import Card, Tracker, TrainedModel

MODEL_TAG = "pliant.model"
REGISTERED_TAG = "pliant.registered"
_CLOSED_TAG = "pliant.attempts_delivered"


class Delivery:
    """Deliveries of one run by one process.

    Args:
        record: the run's.
        tracker: where to.
        uri: of the tracker's store: a run has one counterpart in each.
        card: what its counterpart is created with.
        sources: of its metrics; default: those of a run that trains.
    """

    def __init__(
        self, record: RunRecord, tracker: Tracker, uri: str, card: Card, sources: Sequence[Source] | None = None
    ) -> None:
        self._record, self._tracker, self._card = record, tracker, card
        self._uri = uri
        self.run_id: str | None = None
        """The run's id in the tracker, once it is known."""
        self._curves = Curves(tracker, None)
        self._sources = [Steps("metrics"), Steps("evaluations"), Steps("system")] if sources is None else sources
        self._newest_step = 0
        self._checkpoints: set[str] | None = None
        self._facts = Facts()
        self._closed: int | None = None
        self._tags: dict[str, str] = {}

    def deliver(self) -> Truth:
        """Delivers all that counts now; returns the status it set.

        Raises:
            Exception: whatever the tracker or the storage raises; what had been delivered is not sent again.
        """
        try:
            view = self._record.view()  # before the status: of a driver that has ended, it then shows the last word
            truth = self.set_status()
            self._deliver_history(view)
            for source in self._sources:
                whole = truth.ended or source.log not in STEP_LOGS
                last_step = math.inf if whole else covered(view)
                newest = self._curves.add(source.moments(self._record, view, self._curves, last_step))
                source.accept()
                if source.log == "metrics":
                    self._newest_step = max(self._newest_step, newest)
            self._deliver_checkpoints(view)
            self.set_tags(self._curves.notes())
            if truth.ended and not self._record.is_sweep:  # whose own time went into its trials
                self.set_tags(_time_tags(read_accounts(self._record)))
            self._curves.noted()
            return truth
        except BaseException:
            self._curves.forget()
            raise

    def set_status(self) -> Truth:
        """Makes the tracker's status true, and nothing else."""
        self._attach()
        while True:
            truth = truth_of(self._record)
            if self._tracker.look().status != truth.status:
                self._tracker.set_status(truth.status, truth.time_ms)
            self.set_tags({"pliant.state": truth.state})
            # Another driver may have begun or ended meanwhile, and have said so before this did.
            if truth_of(self._record).status == truth.status:
                return truth

    def model_due(self, truth: Truth) -> CheckpointRef | None:
        """The checkpoint whose model the tracker shall have, and has not."""
        if truth.status != "FINISHED":
            return None
        usable = self._record.view().checkpoints()
        return usable[0] if usable and self._tracker.look().tags.get(MODEL_TAG) != usable[0].name else None

    def deliver_model(self, ref: CheckpointRef, model: TrainedModel) -> None:
        """Logs the model of a checkpoint."""
        self._tracker.add_model(model)
        self._tracker.set_tags({MODEL_TAG: ref.name})

    def register(self, name: str, alias: str) -> None:
        """Registers the model that was logged last, if there is one; a second time changes nothing."""
        if self.tag(MODEL_TAG) is not None:
            version = self._tracker.register(name, alias, {})
            self.set_tags({REGISTERED_TAG: f"models:/{name}/{version}"})

    def delivered_step(self) -> int:
        """The newest step that is known to be there."""
        return self._newest_step

    def tag(self, key: str) -> str | None:
        """A tag's value as the tracker has it."""
        return self._tags.get(key) or self._tracker.look().tags.get(key)

    def _attach(self) -> None:
        """The run's counterpart: the one that the record names, else one made for it, else a new one."""
        if self.run_id is not None:
            return
        store, key = self._record.store, f"{place_of(self._uri)}.json"
        run_id = recorded_id(store, key) or settle_id(store, key, self._uri, self._tracker, self._card)
        self._tracker.attach(run_id)
        self.run_id = run_id

    def _deliver_history(self, view: View) -> None:
        """Settings, datasets, code, and what each attempt says of itself."""
        facts = read_facts(self._record, view, self._facts)
        if facts is self._facts:
            return
        there = self._tracker.look()
        if self._closed is None:
            self._closed = int(there.tags.get(_CLOSED_TAG, 0))
            self._tracker.add_datasets(datasets(self._record))
        if missing := {key: value for key, value in facts.params.items() if key not in there.params}:
            self._tracker.add_params(missing)
        for number, name in sorted(facts.objects - self._facts.objects):
            if number > self._closed and (data := artifact(self._record, number, name)) is not None:
                self._tracker.add_artifact(attempt_key(number, name), data)
                if name == CONFIG and number == facts.newest_driver:
                    self._tracker.add_artifact(RESOLVED, data)
        # What attempts before the newest driver's have to say they have said: later processes need not look.
        self.set_tags({**facts.tags, _CLOSED_TAG: str(max(facts.newest_driver - 1, 0))})
        self._facts = facts
        self._curves.forget()  # where another driver has been at work it may have delivered as well

    def _deliver_checkpoints(self, view: View) -> None:
        if self._checkpoints is None:
            self._checkpoints = self._tracker.artifacts("checkpoints")
        for ref in reversed(view.checkpoints()):
            path = f"checkpoints/{ref.name}.json"
            if path in self._checkpoints:
                continue
            try:
                self._tracker.add_artifact(path, self._record.store.get(ref.manifest))
            except FileNotFoundError:
                continue  # retention was faster
            self._checkpoints.add(path)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Sets those that this process has not set so already."""
        new = {key: tag_value(value) for key, value in tags.items()}
        if changed := {key: value for key, value in new.items() if self._tags.get(key) != value}:
            self._tracker.set_tags(changed)
            self._tags |= changed


def place_of(uri: str) -> str:
    """Where a record keeps the ids that its runs have in a tracker's store."""
    return f"tracking/{blake2b(uri.encode(), digest_size=8).hexdigest()}"


def recorded_id(store: Store, key: str) -> str | None:
    """The id that a record has of a run in a tracker; None where it has none."""
    try:
        return str(decode(store.get(key), f"{store.uri}/{key}")["run_id"])
    except FileNotFoundError:
        return None


def settle_id(store: Store, key: str, uri: str, tracker: Tracker, card: Card) -> str:
    """Records the id of the run that was made for this card, or of a new one. Of processes that do so at once one wins.

    Args:
        key: of the object that names it.
    """
    found = tracker.find(card)
    return name_id(store, key, uri, found) if found is not None else new_id(store, key, uri, tracker, card)[0]


def new_id(store: Store, key: str, uri: str, tracker: Tracker, card: Card) -> tuple[str, bool]:
    """As ``settle_id``, where there is known to be none; and whether it was made just now."""
    mine = tracker.create(card)
    recorded = name_id(store, key, uri, mine)
    if recorded != mine:
        tracker.drop(mine)  # another driver was faster
    return recorded, recorded == mine


def name_id(store: Store, key: str, uri: str, run_id: str) -> str:
    """Records an id unless one is recorded already; returns the one that is."""
    chosen = {"run_id": run_id, "uri": masked(uri), "time": time.time()}
    return run_id if store.put_if_absent(key, encode(chosen)) else recorded_id(store, key) or run_id


def _time_tags(accounts: Sequence[Account]) -> dict[str, str]:
    """Where the run's time went, up to now."""
    found = spent(accounts)
    seconds = {category: seconds for category, seconds in found["seconds"].items() if seconds}
    causes = {category: parts for category, parts in found["causes"].items() if parts}
    share = {} if found["goodput"] is None else {"pliant.goodput": f"{found['goodput']:.4f}"}
    return {"pliant.seconds": json.dumps(seconds), "pliant.seconds_by_cause": json.dumps(causes), **share}


def covered(view: View) -> int:
    """The newest committed checkpoint's step: a resume starts there, or further on."""
    return max((ref.step for ref in view.checkpoints()), default=0)
