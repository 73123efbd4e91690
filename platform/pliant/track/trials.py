"""Tells a tracker what it lacks of a sweep: the sweep is a run there, each trial a child of it, whatever its legs.

log `decisions` ─► story ─► which trials have something new ─► their runs' logs, reports, tags, status ─► tracker

All at once from one place: trials themselves know nothing of it. A trial that has ended and is there is never looked at
again, also by later processes: a tag says up to which entry of the log the tracker has it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain

from pliant.checkpoint.clone import checkpoint_at
from pliant.errors import DamageError, UsageError
from pliant.storage.layout import TRIALS, CheckpointRef, run_name
from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.track.curves import Along, Curves, Moment, Steps
from pliant.track.delivery import MODEL_TAG, REGISTERED_TAG, Delivery, covered, new_id, place_of, recorded_id
from pliant.track.history import first_config, newest_config
from pliant.track.names import flatten, shortened, stored_name, tag_value
from pliant.track.settings import masked
from pliant.track.status import Truth, living_driver, truth_of
from pliant.track.story import DECISIONS, Decisions, SweepStory, TrialStory, reported
from pliant.track.tracker import NOTHING, Card, Counterpart, Status, Tracker, TrainedModel

TRIAL_TAG = "pliant.trial"
_ENTRIES_TAG = "pliant.log_entries"
"""How much of the decision log, of a trial of what is about it, the tracker has."""
_ENDINGS: Mapping[str, Status] = {"completed": "FINISHED", "stopped": "FINISHED", "limit": "KILLED"}
"""How trials end; all others have failed."""
_PLACES = ("run.", "tracking.", "cluster.")
"""Settings that say nothing about a trial."""
_MOST_ALONG = 80
"""Parameters that go in one call with the first values."""
_WHOLE_IN = "the trial's config.yaml"


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
        self.story = SweepStory(str(record.identity["metric"]), str(record.identity["mode"]))
        self._decisions = Decisions(self.story)
        self._parent = Delivery(record, tracker, uri, card, [self._decisions, Steps("system")])
        self._trials: dict[str, _Trial] = {}
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
            for story in self.story.trials.values():
                if story.trial not in self._trials:
                    tracker, there = self._link(story, children.get(story.trial))
                    self._trials[story.trial] = _Trial(self._record, self._base, self.story, story, tracker, there)
                self._trials[story.trial].deliver(truth)
            self._parent.set_tags(self._tags())
            if truth.ended:
                self._deliver_outcome()
            # Its driver may have ended meanwhile, or another one begun: then trials stand otherwise, too.
            if truth_of(self._record).status == truth.status:
                return truth

    def set_status(self) -> Truth:
        """Makes the statuses of the sweep and of its trials that the tracker has true, and nothing else."""
        truth = self._parent.set_status()
        self._decisions.moments(self._record, self._record.view(), Curves(self._tracker, None), math.inf)
        for trial, there in self._children().items():
            status, _, at_ms = standing(self.story.trials[trial], truth)
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
        best = self.story.best
        if best is None or best.trial not in self._trials or self._trials[best.trial].removed:
            return None
        run = run_name(best.trial, best.generation)
        record = open_trial(self._record, run)
        ref = _checkpoint(record, best.samples) if record is not None else None
        if record is None or ref is None:
            return None
        return DueModel(record, ref, self._trials[best.trial].tracker, f"{run}/{ref.name}")

    def delivered_trials(self) -> int:
        """How many trials are known to be there, to their end."""
        return sum(trial.whole for trial in self._trials.values())

    def _lineage(self, record: RunRecord, ref: CheckpointRef) -> dict[str, str]:
        best = self.story.best
        if best is None:
            return {}
        steps = read_log(record.store, record.view(), "metrics")
        at = next((entry for entry in steps if entry["step"] == ref.step), {})
        ancestry = self.story.ancestry(best.trial, best.generation)
        return {
            "pliant.sweep": str(self._record.identity["name"]),
            "pliant.sweep.run_id": str(self.run_id),
            TRIAL_TAG: best.trial,
            "pliant.generation": str(best.generation),
            f"pliant.{stored_name(self.story.metric)}": repr(best.value),
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

    def _link(self, trial: TrialStory, there: Counterpart | None) -> tuple[Tracker, Counterpart]:
        """A trial's counterpart, made where there is none."""
        if there is not None:
            return self._tracker.of(there.run_id), there
        store, key = self._record.store, f"{place_of(self._uri)}/{trial.trial}.json"
        run_id = recorded_id(store, key)
        if run_id is None:
            tags = {TRIAL_TAG: trial.trial, "pliant.sweep": str(self._record.identity["name"])}
            start_ms, own_id = round(trial.began * 1000), f"{self._record.run_id}/{trial.trial}"
            card = Card(own_id, trial.trial, self._card.experiment, start_ms, self.run_id, tags)
            run_id, mine = new_id(store, key, self._uri, self._tracker, card)
            if mine:
                return self._tracker.of(run_id), Counterpart(run_id, "RUNNING", False, {}, tags, frozenset())
        tracker = self._tracker.of(run_id)
        return tracker, tracker.look()

    def _tags(self) -> dict[str, str]:
        ended = Counter(trial.how or "open" for trial in self.story.trials.values())
        tags = {"pliant.trials": json.dumps(dict(sorted(ended.items())))}
        if (best := self.story.best) is not None:
            tags["pliant.best"] = json.dumps(asdict(best))
            tags["pliant.best.run_id"] = self._trials[best.trial].run_id
        return tags

    def _deliver_outcome(self) -> None:
        """Of a sweep that has ended: its decision log, and the settings of the best trial."""
        entries = str(self.story.entries)
        if self._parent.tag(_ENTRIES_TAG) == entries:
            return
        lines = [json.dumps(entry) for entry in read_log(self._record.store, self._record.view(), DECISIONS)]
        self._tracker.add_artifact("decisions.jsonl", ("\n".join(lines) + "\n").encode())
        best = self.story.best
        run = None if best is None else open_trial(self._record, run_name(best.trial, best.generation))
        if run is not None and (config := newest_config(run)) is not None:
            self._tracker.add_artifact("best.yaml", config)
        self._parent.set_tags({_ENTRIES_TAG: entries})


class _Trial:
    """Deliveries of one trial.

    Args:
        record, base, whole: of the sweep; ``base`` are the settings that its trials share, by dotted key.
        there: what the tracker has of it.
    """

    def __init__(
        self,
        record: RunRecord,
        base: Mapping[str, str],
        whole: SweepStory,
        story: TrialStory,
        tracker: Tracker,
        there: Counterpart,
    ) -> None:
        self._record, self._base, self._whole, self._story, self.tracker = record, base, whole, story, tracker
        self.run_id, self.removed = there.run_id, there.deleted
        self._curves = Curves(tracker, there.metrics)
        self._status, self._tags, self._has_params = there.status, dict(there.tags), bool(there.params)
        self._runs: dict[int, RunRecord] = {}
        self._sources: dict[int, list[Steps]] = {}
        self._closed: set[int] = set()
        self._reports = 0

    @property
    def whole(self) -> bool:
        """Whether it has ended, and the tracker has all of it."""
        return self._story.how is not None and self._tags.get(_ENTRIES_TAG) == str(self._story.entries)

    def deliver(self, truth: Truth) -> None:
        """What is new. ``truth``: of the sweep."""
        status, state, at_ms = standing(self._story, truth)
        lives = status == "RUNNING" and not self._story.paused
        entries = str(self._story.entries)
        if self.removed or (not lives and self._status == status and self._tags.get(_ENTRIES_TAG) == entries):
            return
        try:
            # Before its logs are read: what a run has that nobody drives any more is all there will be.
            at_rest = {_ENTRIES_TAG: entries} if not lives and self._at_rest() else {}
            self._deliver({**self._about(state), **at_rest})
            if self._status != status:
                self.tracker.set_status(status, at_ms)
                self._status = status
        except Exception:
            self._curves.forget()
            if not self._removed_meanwhile():
                raise

    def _removed_meanwhile(self) -> bool:
        """Whether somebody has removed it in the tracker: then it stays so, and the others go on."""
        there = self.tracker.look()
        self.removed, self._has_params = there.deleted, bool(there.params)
        return self.removed

    def _at_rest(self) -> bool:
        """Whether nobody writes the trial's newest run any more."""
        run = self._run(self._story.generation)
        return run is None or living_driver(run) is None

    def _run(self, generation: int) -> RunRecord | None:
        if generation not in self._runs:
            run = open_trial(self._record, run_name(self._story.trial, generation))
            if run is None:
                return None
            self._runs[generation] = run
        return self._runs[generation]

    def _params(self) -> Mapping[str, str]:
        """Its point of the search space, and the settings in which that differs from what all trials share; once."""
        if self._has_params:
            return NOTHING
        run = self._run(0)
        config = first_config(run) if run is not None else None
        if config is None and self._story.how is None:
            return NOTHING
        mine = dict(flatten(config or {}))
        own = {k: v for k, v in mine.items() if self._base.get(k) != v and not k.startswith(_PLACES)}
        params = {**dict(flatten(self._story.generations[0].params)), **own}
        named = {stored_name(k): shortened(masked(v), _WHOLE_IN) for k, v in params.items()}
        if len(named) > _MOST_ALONG:
            self.tracker.add_params(named)
            self._has_params = True
            return NOTHING
        return named

    def _deliver(self, about: Mapping[str, str]) -> None:
        """What its runs have measured, on the axis of samples, what it has reported, parameters and tags: where that is
        little, in one call."""
        params, tags = self._params(), {}

        def last() -> Along:
            nonlocal tags
            new = {key: tag_value(value) for key, value in {**about, **self._curves.notes()}.items()}
            tags = {key: value for key, value in new.items() if self._tags.get(key) != value}
            return Along(params, tags)

        read: list[Steps] = []
        moments: list[Iterable[Moment]] = []
        closing: list[int] = []
        for number in range(len(self._story.generations)):
            run = None if number in self._closed else self._run(number)
            if run is None:
                continue
            over = number < self._story.generation or self._story.how is not None
            view = run.view()
            for source in self._sources.setdefault(number, self._sources_of(number)):
                moments.append(source.moments(run, view, self._curves, math.inf if over else covered(view)))
                read.append(source)
            if number < self._story.generation:
                closing.append(number)
        moments.append(reported(self._story, self._whole.metric, self._curves, self._reports))
        count = len(self._story.reports)
        self._curves.add(chain.from_iterable(moments), last)
        for source in read:
            source.accept()
        self._closed.update(closing)
        self._reports = count
        self._curves.noted()
        self._tags |= tags
        self._has_params = self._has_params or bool(params)

    def _sources_of(self, generation: int) -> list[Steps]:
        if not self._whole.clones:
            return [Steps("metrics", "samples"), Steps("evaluations", "samples")]
        point = self._story.generations[generation].params
        begin = {f"params/{k}": float(v) for k, v in point.items() if type(v) in (int, float)}
        return [Steps("metrics", "samples", generation, begin), Steps("evaluations", "samples", generation)]

    def _about(self, state: str) -> dict[str, str]:
        story = self._story
        tags = {
            "pliant.state": state,
            "pliant.why": masked(story.why),
            "pliant.params": json.dumps(dict(story.generations[-1].params), ensure_ascii=False),
            "pliant.run": f"{self._record.store.uri}/{TRIALS}/{run_name(story.trial, story.generation)}",
            "pliant.note": story.note,
        }
        if story.losses:
            tags["pliant.losses"] = str(story.losses)
        if story.generation:
            here = story.generations[-1]
            tags |= {
                "pliant.generation": str(story.generation),
                "pliant.donor": str(here.donor),
                "pliant.donor_samples": str(here.samples),
                "pliant.lineage": json.dumps(self._whole.ancestry(story.trial, story.generation)),
            }
        return {key: value for key, value in tags.items() if value}


def standing(trial: TrialStory, sweep: Truth) -> tuple[Status, str, int]:
    """How a trial stands: its status, the same in Pliant's words, and since when, in ms.

    One that the scheduler stopped ended as it should: FINISHED, as one that was trained to its full length. One that
    has not ended is open as long as its sweep runs, and was cut off when that has ended or died.
    """
    if trial.how is not None and trial.ended is not None:
        return _ENDINGS.get(trial.how, "FAILED"), trial.how, round(trial.ended * 1000)
    if sweep.status == "RUNNING":
        return "RUNNING", "paused" if trial.paused else "running", sweep.time_ms
    return "KILLED", sweep.state, sweep.time_ms


def open_trial(sweep: RunRecord, run: str) -> RunRecord | None:
    """The record of a trial's run; None before it has begun."""
    try:
        return RunRecord.open(sweep.store.child(f"{TRIALS}/{run}"))
    except UsageError as error:
        if error.code != "record.unknown":
            raise
        return None


def _checkpoint(record: RunRecord, samples: int) -> CheckpointRef | None:
    """The checkpoint after so many samples; where that is gone, the newest there is."""
    try:
        return checkpoint_at(record.store, samples)
    except (UsageError, DamageError):
        usable = record.view().checkpoints()
        return usable[0] if usable else None
