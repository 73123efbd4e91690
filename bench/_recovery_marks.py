"""What processes under test leave behind, and what a recovery is made of. Standard library only.

Every process appends lines of JSON to a file of its own. A group of workers has a name that all its marks bear.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


class Marks:
    """Appends marks of this process: ``process`` (when it began), ``imported``, ``loaded``, ``step``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{os.getpid()}-{time.time_ns()}.jsonl").open("a", buffering=1)

    def add(self, kind: str, *, at: float | None = None, **fields: Any) -> None:
        """One mark; ``at``: Unix time, default now."""
        mark = {"kind": kind, "at": time.time() if at is None else at, **fields}
        self._file.write(json.dumps(mark) + "\n")


def read_marks(folder: Path) -> list[dict[str, Any]]:
    """All marks so far, in the order of their times. A line that is being written is left out."""
    marks = []
    for file in sorted(folder.glob("*.jsonl")):
        marks += [json.loads(line) for line in file.read_text().split("\n")[:-1]]
    return sorted(marks, key=lambda mark: mark["at"])


@dataclass(frozen=True)
class Recovery:
    """An event and what came of it; seconds.

    Attributes:
        seconds: from the event to the end of the new group's first step whose number was not completed before the
            event, and, with the parts, of nothing else: they add up to it.
        to_leave: until the old group's last step: it trained on.
        to_processes: until the last process of the new group began: detection, teardown, placement.
        start: until all had imported what they need; of processes that began before, until they were through.
        join: until they had formed a process group and taken up the state.
        first_step: until the end of that first step, replayed ones included.
        steps_replayed: completed by the old group, and again by the new one.
        workers_before, workers: of the two groups.
    """

    seconds: float
    to_leave: float
    to_processes: float
    start: float
    join: float
    first_step: float
    steps_replayed: int
    workers_before: int
    workers: int

    def to_json(self) -> str:
        """One line."""
        return json.dumps({key: round(value, 3) for key, value in asdict(self).items()})


def step_reached(marks: Sequence[dict[str, Any]]) -> int:
    """The last completed step; 0 before the first."""
    return max((mark["step"] for mark in marks if mark["kind"] == "step"), default=0)


def recovery(marks: Sequence[dict[str, Any]], event_at: float, *, workers: int) -> Recovery | None:
    """What happened after an event; None as long as no new group of that many workers has gone beyond it."""
    steps = [mark for mark in marks if mark["kind"] == "step"]
    before = [mark for mark in steps if mark["at"] <= event_at]
    old = [mark for mark in steps if mark["group"] == before[-1]["group"]]
    new = [
        mark
        for mark in steps
        if mark["at"] > event_at and mark["group"] != old[0]["group"] and mark["world"] == workers
    ]
    first = next((mark for mark in new if mark["step"] > before[-1]["step"]), None)
    if first is None:
        return None
    group = [mark for mark in marks if mark["group"] == first["group"]]

    def last(kind: str, least: float) -> float:
        return max((mark["at"] for mark in group if mark["kind"] == kind), default=least)

    left = max(event_at, old[-1]["at"])
    began = max(left, last("process", left))
    imported = max(began, last("imported", began))
    loaded = max(imported, last("loaded", imported))
    return Recovery(
        seconds=first["at"] - event_at,
        to_leave=left - event_at,
        to_processes=began - left,
        start=imported - began,
        join=loaded - imported,
        first_step=first["at"] - loaded,
        steps_replayed=max(0, old[-1]["step"] - new[0]["step"] + 1),
        workers_before=old[-1]["world"],
        workers=first["world"],
    )
