"""Tells a tracker what it lacks of a run: a function of the run's record and of what the tracker has already.

    record ──► what counts: logs up to the newest committed checkpoint, settings, attempts, status ──► tracker

Any process may deliver at any time, again after any failure, and two at once: what is there already is not sent
twice. A step that a resume has trained again keeps its first values in the tracker, and a tag names it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from pliant.storage.layout import CheckpointRef, attempt_key, decode, encode
from pliant.storage.logs import read_log_after
from pliant.storage.record import RunRecord
from pliant.storage.view import View
from pliant.track.goodput import Account
from pliant.track.history import CONFIG, RESOLVED, Facts, artifact, datasets, read_facts
from pliant.track.lives import read_accounts, spent
from pliant.track.names import numbers, ranges, stored_name, tag_value
from pliant.track.settings import masked
from pliant.track.status import Truth, truth_of
from pliant.track.tracker import Card, Point, Tracker, TrainedModel

MODEL_TAG = "pliant.model"
_CLOSED_TAG = "pliant.attempts_delivered"
_POINTS_PER_CALL = 1000


@dataclass(frozen=True)
class _Item:
    """One entry of a log as the tracker shall have it; ``values`` by stored name, the ``anchor`` among them."""

    anchor: str
    step: int
    time_ms: int
    values: dict[str, float]


@dataclass
class _Log:
    """How far a log has been delivered by this process.

    Attributes:
        cut: whether only steps that a checkpoint covers are delivered while the run goes on.
        positions: last entry read, by attempt.
    """

    name: str
    cut: bool
    positions: dict[int, int] = field(default_factory=dict)


class Delivery:
    """Deliveries of one run by one process.

    Args:
        record: the run's.
        tracker: where to.
        uri: of the tracker's store: a run has one counterpart in each.
        card: what its counterpart is created with.
    """

    def __init__(self, record: RunRecord, tracker: Tracker, uri: str, card: Card) -> None:
        self._record, self._tracker, self._card = record, tracker, card
        self._key = f"tracking/{blake2b(uri.encode(), digest_size=8).hexdigest()}.json"
        self._uri = masked(uri)
        self.run_id: str | None = None
        """The run's id in the tracker, once it is known."""
        self._logs = (_Log("metrics", True), _Log("evaluations", True), _Log("system", False))
        self._known: dict[str, dict[int, int]] = {}
        self._newest_step = 0
        self._replaced: dict[tuple[str, int], _Item] = {}
        self._uncompared = False
        self._renamed: dict[str, str] = {}
        self._infinite: dict[str, list[int]] = {}
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
            for log in self._logs:
                self._deliver_log(log, view, math.inf if truth.ended or not log.cut else _covered(view))
            self._deliver_checkpoints(view)
            self._set_tags(self._notes())
            if truth.ended:
                self._set_tags(_time_tags(read_accounts(self._record)))
            self._uncompared = False
            return truth
        except BaseException:
            self._known.clear()  # a call that failed may have succeeded: ask again
            raise

    def set_status(self) -> Truth:
        """Makes the tracker's status true, and nothing else."""
        self._attach()
        while True:
            truth = truth_of(self._record)
            if self._tracker.status() != truth.status:
                self._tracker.set_status(truth.status, truth.time_ms)
            self._set_tags({"pliant.state": truth.state})
            # Another driver may have begun or ended meanwhile, and have said so before this did.
            if truth_of(self._record).status == truth.status:
                return truth

    def model_due(self, truth: Truth) -> CheckpointRef | None:
        """The checkpoint whose model the tracker shall have, and has not."""
        if truth.status != "FINISHED":
            return None
        usable = self._record.view().checkpoints()
        return usable[0] if usable and self._tracker.tags().get(MODEL_TAG) != usable[0].name else None

    def deliver_model(self, ref: CheckpointRef, model: TrainedModel) -> None:
        """Logs the model of a checkpoint."""
        self._tracker.add_model(model)
        self._tracker.set_tags({MODEL_TAG: ref.name})

    def delivered_step(self) -> int:
        """The newest step that is known to be there."""
        return self._newest_step

    def _attach(self) -> None:
        """The run's counterpart: the one that the record names, else one made for it, else a new one."""
        if self.run_id is not None:
            return
        store = self._record.store
        if store.head(self._key) is None:
            run_id = self._tracker.find(self._card)
            mine = None
            if run_id is None:
                run_id = mine = self._tracker.create(self._card)
            chosen = {"run_id": run_id, "uri": self._uri, "time": time.time()}
            if not store.put_if_absent(self._key, encode(chosen)) and mine and self._recorded() != mine:
                self._tracker.drop(mine)  # another driver was faster
        run_id = self._recorded()
        self._tracker.attach(run_id)
        self.run_id = run_id

    def _recorded(self) -> str:
        return str(decode(self._record.store.get(self._key), f"{self._record.store.uri}/{self._key}")["run_id"])

    def _deliver_history(self, view: View) -> None:
        """Settings, datasets, code, and what each attempt says of itself."""
        facts = read_facts(self._record, view, self._facts)
        if facts is self._facts:
            return
        if self._closed is None:
            self._closed = int(self._tracker.tags().get(_CLOSED_TAG, 0))
            self._tracker.add_datasets(datasets(self._record))
        there = self._tracker.params()
        if missing := {key: value for key, value in facts.params.items() if key not in there}:
            self._tracker.add_params(missing)
        for number, name in sorted(facts.objects - self._facts.objects):
            if number > self._closed and (data := artifact(self._record, number, name)) is not None:
                self._tracker.add_artifact(attempt_key(number, name), data)
                if name == CONFIG and number == facts.newest_driver:
                    self._tracker.add_artifact(RESOLVED, data)
        # What attempts before the newest driver's have to say they have said: later processes need not look.
        self._set_tags({**facts.tags, _CLOSED_TAG: str(max(facts.newest_driver - 1, 0))})
        self._facts = facts
        self._known.clear()  # where another driver has been at work it may have delivered as well

    def _deliver_log(self, log: _Log, view: View, last_step: float) -> None:
        batch: list[_Item] = []
        positions, newest = dict(log.positions), 0
        for attempt, seq, entry in read_log_after(self._record.store, view, log.name, positions):
            if entry["step"] > last_step:
                break
            item = self._item(log.name, entry)
            positions[attempt] = seq
            if item is None:
                continue
            newest = item.step
            there = self._there(item.anchor).get(item.step)
            if there is not None:
                if there != item.time_ms:
                    self._replaced[(log.name, item.step)] = item
                    self._uncompared = True
                continue
            if batch and sum(len(i.values) for i in batch) + len(item.values) > _POINTS_PER_CALL:
                self._send(batch)
                batch = []
            batch.append(item)
        self._send(batch)
        log.positions = positions
        if log.name == "metrics":
            self._newest_step = max(self._newest_step, newest)

    def _item(self, log: str, entry: dict[str, Any]) -> _Item | None:
        """An entry's metrics under the names they are stored by; notes what is renamed or infinite."""
        prefix = {"evaluations": "eval/", "system": f"system/{entry.get('node')}/"}.get(log, "")
        if prefix:
            entry = {key: value for key, value in entry.items() if key != "attempt"}
        values = {}
        for name, value in numbers(entry, prefix).items():
            stored = stored_name(name)
            if stored != name:
                self._renamed[name] = stored
            if math.isinf(value):
                self._infinite.setdefault(stored, []).append(entry["step"])
            values[stored] = value
        if not values:
            return None
        anchor = f"{prefix}loss" if f"{prefix}loss" in values else min(values)
        return _Item(anchor, int(entry["step"]), round(entry["time"] * 1000), values)

    def _there(self, anchor: str) -> dict[int, int]:
        """Time in ms by step of what the tracker has of a metric."""
        if anchor not in self._known:
            self._known[anchor] = {step: time_ms for step, (time_ms, _) in self._tracker.history(anchor).items()}
        return self._known[anchor]

    def _send(self, items: list[_Item]) -> None:
        # The anchor last: where it is, the rest of its entry is too, however the store cuts a large batch.
        points = [
            Point(key, item.values[key], item.step, item.time_ms)
            for item in items
            for key in (*(item.values.keys() - {item.anchor}), item.anchor)
        ]
        for start in range(0, len(points), _POINTS_PER_CALL):
            self._tracker.send(points[start : start + _POINTS_PER_CALL])
        for item in items:
            self._there(item.anchor)[item.step] = item.time_ms

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

    def _notes(self) -> dict[str, str]:
        notes = {}
        if self._renamed:
            notes["pliant.renamed_metrics"] = json.dumps(self._renamed, ensure_ascii=False)
        if self._infinite:
            listed = "; ".join(f"{key}: {ranges(steps)}" for key, steps in sorted(self._infinite.items()))
            notes["pliant.infinite"] = f"{listed} (stored as ±1.797e+308)"
        if self._uncompared and (differ := self._differences()):
            notes["pliant.steps_that_differ"] = differ
        return notes

    def _differences(self) -> str:
        """Steps whose values here are those of a first training of them, and in which metrics."""
        names = sorted({key for item in self._replaced.values() for key in item.values})
        there = {name: self._tracker.history(name) for name in names}
        steps, keys = set(), set()
        for item in self._replaced.values():
            for key, value in item.values.items():
                if item.step not in there[key] or not _same(value, there[key][item.step][1]):
                    steps.add(item.step)
                    keys.add(key)
        return f"{ranges(steps)} (in {', '.join(sorted(keys))})" if steps else ""

    def _set_tags(self, tags: dict[str, str]) -> None:
        new = {key: tag_value(value) for key, value in tags.items()}
        if changed := {key: value for key, value in new.items() if self._tags.get(key) != value}:
            self._tracker.set_tags(changed)
            self._tags |= changed


def _time_tags(accounts: Sequence[Account]) -> dict[str, str]:
    """Where the run's time went, up to now."""
    found = spent(accounts)
    seconds = {category: seconds for category, seconds in found["seconds"].items() if seconds}
    causes = {category: parts for category, parts in found["causes"].items() if parts}
    share = {} if found["goodput"] is None else {"pliant.goodput": f"{found['goodput']:.4f}"}
    return {"pliant.seconds": json.dumps(seconds), "pliant.seconds_by_cause": json.dumps(causes), **share}


def _covered(view: View) -> int:
    """The newest committed checkpoint's step: a resume starts there, or further on."""
    return max((ref.step for ref in view.checkpoints()), default=0)


def _same(ours: float, theirs: float) -> bool:
    return ours == theirs or (math.isnan(ours) and math.isnan(theirs)) or (math.isinf(ours) and abs(theirs) > 1.797e308)
