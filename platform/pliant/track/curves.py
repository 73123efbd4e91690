"""What was measured along a run, on its way into a tracker: each moment once, however often it is delivered.

Which moments a tracker has is asked of itself, of each kind by one metric, the anchor: at first use, and after every
failure. A step that a resume has trained again keeps its first values there, and a note names it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pliant.storage.logs import read_log_after
from pliant.storage.record import RunRecord
from pliant.storage.view import View
from pliant.track.names import numbers, ranges, stored_name
from pliant.track.tracker import Point, Tracker

_POINTS_PER_CALL = 1000


@dataclass(frozen=True)
class Moment:
    """Values that were measured together.

    Attributes:
        step: of the tracker: a run's steps, a trial's samples.
        values: by stored name.
        anchor: the one of them by which it is found again: where that is, all are.
        mark: what tells it from another moment of the same step beside its time, which a step that is trained again has
            anew: of a trial the generation, which is the anchor's value then; of what is never written twice its time.
    """

    log: str
    step: int
    time_ms: int
    values: Mapping[str, float]
    anchor: str
    mark: float | None = None

    @property
    def place(self) -> tuple[int, float | None]:
        """The same for all values that stand for the same."""
        return self.step, self.mark


@dataclass(frozen=True)
class Along:
    """Parameters and tags, at most 100 of each, that go in one call with the last values."""

    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


class Curves:
    """The metrics of one run in a tracker.

    Args:
        there: names of the metrics that the tracker has values of; None where that is not known.
    """

    def __init__(self, tracker: Tracker, there: frozenset[str] | None) -> None:
        self._tracker, self._names_there = tracker, there
        self._known: dict[str, dict[tuple[int, float | None], int]] = {}
        self._replaced: dict[tuple[str, int, float | None], tuple[Moment, int]] = {}
        self._uncompared = False
        self._renamed: dict[str, str] = {}
        self._infinite: dict[str, list[int]] = {}

    def forget(self) -> None:
        """The tracker is asked again: a call that failed may have succeeded, or another process has been at work."""
        self._known.clear()
        self._names_there = None

    def moment(
        self,
        log: str,
        step: int,
        time: float,
        values: Mapping[str, float],
        *,
        anchor: str,
        mark: float | None = None,
    ) -> Moment | None:
        """Values under the names that they are stored by; notes what is renamed or infinite. None without values.

        Args:
            time: seconds since 1970.
            anchor: where it is among the values; else it is the first name in order.
        """
        stored = {}
        for name, value in values.items():
            key = stored_name(name)
            if key != name:
                self._renamed[name] = key
            if math.isinf(value):
                self._infinite.setdefault(key, []).append(step)
            stored[key] = value
        if not stored:
            return None
        if anchor not in stored:
            anchor = min(stored)
        return Moment(log, step, round(time * 1000), stored, anchor, mark)

    def add(self, moments: Iterable[Moment], last: Callable[[], Along] | None = None) -> int:
        """Sends what is not there yet, in calls that never part a moment; returns the newest step of all, or 0.

        Args:
            last: asked when all moments are known: what goes along with the last of them.
        """
        batch: list[Moment] = []
        newest = 0
        for moment in moments:
            newest = moment.step
            there = self._there(moment).get(moment.place)
            if there is not None:
                if there != moment.time_ms:
                    self._replaced[(moment.log, *moment.place)] = moment, there
                    self._uncompared = True
                continue
            if batch and sum(len(m.values) for m in batch) + len(moment.values) > _POINTS_PER_CALL:
                self._send(batch)
                batch = []
            batch.append(moment)
        self._send(batch, last() if last is not None else Along())
        return newest

    def notes(self) -> dict[str, str]:
        """Tags about what the tracker could not take as it is."""
        notes = {}
        if self._renamed:
            notes["pliant.renamed_metrics"] = json.dumps(self._renamed, ensure_ascii=False)
        if self._infinite:
            listed = "; ".join(f"{key}: {ranges(steps)}" for key, steps in sorted(self._infinite.items()))
            notes["pliant.infinite"] = f"{listed} (stored as ±1.797e+308)"
        if self._uncompared and (differ := self._differences()):
            notes["pliant.steps_that_differ"] = differ
        return notes

    def noted(self) -> None:
        """The notes have been delivered."""
        self._uncompared = False

    def _there(self, moment: Moment) -> dict[tuple[int, float | None], int]:
        """Time in ms, by place, of the moments of one kind that the tracker has."""
        anchor = moment.anchor
        if anchor not in self._known:
            empty = self._names_there is not None and anchor not in self._names_there
            history = {} if empty else self._tracker.history(anchor)
            if moment.mark is None:
                self._known[anchor] = {(step, None): time for step, time in history}
            elif moment.mark == moment.time_ms:
                self._known[anchor] = {(step, float(time)): time for step, time in history}
            else:
                self._known[anchor] = {(step, value): time for (step, time), value in history.items()}
        return self._known[anchor]

    def _send(self, moments: list[Moment], along: Along = Along()) -> None:
        # The anchor last: where it is, the rest of its moment is too, however the store cuts a large batch.
        points = [
            Point(key, moment.values[key], moment.step, moment.time_ms)
            for moment in moments
            for key in (*(moment.values.keys() - {moment.anchor}), moment.anchor)
        ]
        most = _POINTS_PER_CALL - len(along.params) - len(along.tags)
        while len(points) > most:
            self._tracker.send(points[:most])
            points = points[most:]
        if points or along.params or along.tags:
            self._tracker.send(points, along.params, along.tags)
        for moment in moments:
            self._there(moment)[moment.place] = moment.time_ms

    def _differences(self) -> str:
        """Steps whose values there are those of a first training of them, and in which metrics."""
        names = sorted({key for moment, _ in self._replaced.values() for key in moment.values})
        there = {name: self._tracker.history(name) for name in names}
        steps, keys = set(), set()
        for moment, time_ms in self._replaced.values():
            for key, value in moment.values.items():
                theirs = there[key].get((moment.step, time_ms))
                if theirs is None or not _same(value, theirs):
                    steps.add(moment.step)
                    keys.add(key)
        return f"{ranges(steps)} (in {', '.join(sorted(keys))})" if steps else ""


class Source(Protocol):
    """Where moments come from; what has been read is read again until it is accepted."""

    log: str

    def moments(self, record: RunRecord, view: View, curves: Curves, last_step: float) -> Iterable[Moment]:
        """What is new, up to a step of the run."""
        ...

    def accept(self) -> None:
        """All that was read has been delivered."""
        ...


@dataclass
class Steps:
    """A log of a run, as far as it has been delivered by this process.

    Attributes:
        log: its name.
        axis: what of an entry is the tracker's step.
        generation: of a trial's run; None for a run of its own.
        begin: values that the first entry of the log has besides.
    """

    log: str
    axis: str = "step"
    generation: int | None = None
    begin: Mapping[str, float] = field(default_factory=dict)
    _accepted: dict[int, int] = field(default_factory=dict)
    _read: dict[int, int] = field(default_factory=dict)

    def moments(self, record: RunRecord, view: View, curves: Curves, last_step: float) -> Iterator[Moment]:
        self._read = dict(self._accepted)
        begin = {} if self._read else self.begin
        for attempt, seq, entry in read_log_after(record.store, view, self.log, self._accepted):
            if entry["step"] > last_step:
                return
            moment = self._moment(entry, begin, curves)
            self._read[attempt] = seq
            if moment is not None:
                begin = {}
                yield moment

    def accept(self) -> None:
        self._accepted = self._read

    def _moment(self, entry: Mapping[str, Any], begin: Mapping[str, float], curves: Curves) -> Moment | None:
        prefix = {"evaluations": "eval/", "system": f"system/{entry.get('node')}/"}.get(self.log, "")
        left_out = {"attempt", "samples"} if prefix else set()
        values = numbers({key: value for key, value in entry.items() if key not in left_out}, prefix)
        if not values:
            return None
        anchor, mark = f"{prefix}loss", None
        if self.generation is not None:
            anchor, mark = f"{prefix}generation", float(self.generation)
            values[anchor] = mark
        step, time = int(entry[self.axis]), float(entry["time"])
        return curves.moment(self.log, step, time, {**begin, **values}, anchor=anchor, mark=mark)


def _same(ours: float, theirs: float) -> bool:
    return ours == theirs or (math.isnan(ours) and math.isnan(theirs)) or (math.isinf(ours) and abs(theirs) > 1.797e308)
