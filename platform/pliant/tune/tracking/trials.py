"""Tells a tracker what it lacks of a trial: a child of the sweep's run, whatever its legs and generations.

A trial that has ended and is there is never looked at again, also by later processes: a tag says up to which entry of
the log the tracker has it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from itertools import chain

from pliant.errors import UsageError
from pliant.storage.layout import TRIALS, run_name
from pliant.storage.record import RunRecord
from pliant.track.curves import Along, Curves, Moment, Steps
from pliant.track.delivery import covered
from pliant.track.history import first_config
from pliant.track.names import flatten, shortened, stored_name, tag_value
from pliant.track.settings import masked
from pliant.track.status import Truth, living_driver
from pliant.track.tracker import NOTHING, Counterpart, Status, Tracker
from pliant.tune.tracking.course import SweepCourse, TrialCourse

ENTRIES_TAG = "pliant.log_entries"
"""How much of the decision log, of a trial of what is about it, the tracker has."""
_ENDINGS: Mapping[str, Status] = {"completed": "FINISHED", "stopped": "FINISHED", "limit": "KILLED"}
"""How trials end; all others have failed."""
_PLACES = ("run.", "tracking.", "cluster.")
"""Settings that say nothing about a trial."""
_MOST_ALONG = 80
"""Parameters that go in one call with the first values."""
_WHOLE_IN = "the trial's config.yaml"


class TrialDelivery:
    """Deliveries of one trial.

    Args:
        record, base, sweep: of the sweep; ``base`` are the settings that its trials share, by dotted key.
        course: its own.
        there: what the tracker has of it.
    """

    def __init__(
        self,
        record: RunRecord,
        base: Mapping[str, str],
        sweep: SweepCourse,
        course: TrialCourse,
        tracker: Tracker,
        there: Counterpart,
    ) -> None:
        self._record, self._base, self._sweep, self._course, self.tracker = record, base, sweep, course, tracker
        self._trial = course.trial
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
        return self._trial.end is not None and self._tags.get(ENTRIES_TAG) == str(self._course.entries)

    def deliver(self, truth: Truth) -> None:
        """What is new. ``truth``: of the sweep."""
        status, state, at_ms = standing(self._course, truth)
        lives = status == "RUNNING" and not self._trial.paused
        entries = str(self._course.entries)
        if self.removed or (not lives and self._status == status and self._tags.get(ENTRIES_TAG) == entries):
            return
        try:
            # Before its logs are read: what a run has that nobody drives any more is all there will be.
            at_rest = {ENTRIES_TAG: entries} if not lives and self._at_rest() else {}
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
        run = self._run(self._trial.generation)
        return run is None or living_driver(run) is None

    def _run(self, generation: int) -> RunRecord | None:
        if generation not in self._runs:
            run = open_trial(self._record, run_name(self._trial.id, generation))
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
        if config is None and self._trial.end is None:
            return NOTHING
        mine = dict(flatten(config or {}))
        own = {k: v for k, v in mine.items() if self._base.get(k) != v and not k.startswith(_PLACES)}
        params = {**dict(flatten(self._trial.generations[0].params)), **own}
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
        for number in range(len(self._trial.generations)):
            run = None if number in self._closed else self._run(number)
            if run is None:
                continue
            over = number < self._trial.generation or self._trial.end is not None
            view = run.view()
            for source in self._sources.setdefault(number, self._sources_of(number)):
                moments.append(source.moments(run, view, self._curves, math.inf if over else covered(view)))
                read.append(source)
            if number < self._trial.generation:
                closing.append(number)
        moments.append(self._course.moments(self._sweep.metric, self._curves, self._reports))
        count = len(self._course.reports)
        self._curves.add(chain.from_iterable(moments), last)
        for source in read:
            source.accept()
        self._closed.update(closing)
        self._reports = count
        self._curves.noted()
        self._tags |= tags
        self._has_params = self._has_params or bool(params)

    def _sources_of(self, generation: int) -> list[Steps]:
        if not self._sweep.clones:
            return [Steps("metrics", "samples"), Steps("evaluations", "samples")]
        point = self._trial.generations[generation].params
        begin = {f"params/{k}": float(v) for k, v in point.items() if type(v) in (int, float)}
        return [Steps("metrics", "samples", generation, begin), Steps("evaluations", "samples", generation)]

    def _about(self, state: str) -> dict[str, str]:
        trial = self._trial
        tags = {
            "pliant.state": state,
            "pliant.why": masked(self._course.why),
            "pliant.params": json.dumps(dict(trial.params), ensure_ascii=False),
            "pliant.run": f"{self._record.store.uri}/{TRIALS}/{trial.run}",
            "pliant.note": trial.suggestion.note,
        }
        if trial.losses:
            tags["pliant.losses"] = str(len(trial.losses))
        if trial.generation:
            here = trial.generations[-1]
            tags |= {
                "pliant.generation": str(trial.generation),
                "pliant.donor": str(here.donor),
                "pliant.donor_samples": str(here.samples),
                "pliant.lineage": json.dumps(self._sweep.lineage(trial.id, trial.generation)),
            }
        return {key: value for key, value in tags.items() if value}


def standing(course: TrialCourse, sweep: Truth) -> tuple[Status, str, int]:
    """How a trial stands: its status, the same in Pliant's words, and since when, in ms.

    One that the scheduler stopped ended as it should: FINISHED, as one that was trained to its full length. One that
    has not ended is open as long as its sweep runs, and was cut off when that has ended or died.
    """
    end = course.trial.end
    if end is not None and course.ended is not None:
        return _ENDINGS.get(end.how, "FAILED"), end.how, round(course.ended * 1000)
    if sweep.status == "RUNNING":
        return "RUNNING", "paused" if course.trial.paused else "running", sweep.time_ms
    return "KILLED", sweep.state, sweep.time_ms


def open_trial(sweep: RunRecord, run: str) -> RunRecord | None:
    """The record of a trial's run; None before it has begun."""
    try:
        return RunRecord.open(sweep.store.child(f"{TRIALS}/{run}"))
    except UsageError as error:
        if error.code != "record.unknown":
            raise
        return None
