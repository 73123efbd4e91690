"""What a sweep shows while it works: a table on a terminal, a line for each change where there is none.

The table is drawn by the console, so that its other lines stay above it. It fits the terminal: columns that do not fit
are left out, the least worth first; the best trial stands first, then those that have not ended, then the newest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pliant.observe.console import Console
from pliant.units import format_seconds

_REDRAW_S = 0.25
_LINES_IN_THE_TIME_SO_FAR = 12
OPEN = ("running", "waiting", "paused")
"""Statuses of trials that have not ended."""
END = "end"
"""Of a trial that has reached its full length, where that is no rung."""
_COLOURS = {
    "running": "36", "waiting": "90", "paused": "33", "completed": "32", "stopped": "90", "limit": "90",
    "failed": "31", "diverged": "31", "out-of-memory": "31",
}  # fmt: skip
_WORTH = ("trial", "status", "metric", "at", "best", "why", "samples", "workers")
"""Columns in the order of their worth on a narrow terminal."""
_LEAST_WHY = 12


@dataclass(frozen=True)
class TrialRow:
    """A trial as it is shown.

    Attributes:
        status: ``running``, ``waiting`` for machines, ``paused`` by the scheduler, or how it ended.
        at: rung or generation: ``2/3``; empty before the first, ``END`` after the last rung.
        samples: rows seen at its newest report.
        value: of the metric at its newest report. best: its best so far.
        workers: that it has now, else 0.
        why: the newest decision about it, or how it ended.
    """

    trial: str
    status: str
    at: str
    samples: int
    value: float | None
    best: float | None
    workers: int
    why: str


@dataclass(frozen=True)
class SweepScreen:
    """A sweep as it is shown.

    Attributes:
        metric: its name. at: what rows are at: ``rung``, ``generation``, ``report``.
        planned: trials that it will have; None where only its searcher's end ends it.
        best: trial and value of the best so far.
        worker_seconds: used by all trials.
        elapsed_s: of this start; None for a recorded one.
    """

    name: str
    metric: str
    at: str
    rows: Sequence[TrialRow]
    planned: int | None
    best: tuple[str, float] | None
    worker_seconds: float
    elapsed_s: float | None = None


def head_line(screen: SweepScreen, columns: int | None = None) -> str:
    """``asha  12 of 27 trials: 2 running, 9 stopped, 1 completed  best accuracy 0.9678 (t0007)  1m05s``, and last the
    worker-hours; where there are not so many columns what stands last is left out."""
    whole = f" of {screen.planned:,}" if screen.planned is not None else ""
    listed = f": {_counts(screen.rows)}" if screen.rows else ""
    parts = [screen.name, f"{len(screen.rows):,}{whole} trials{listed}"]
    if screen.best is not None:
        parts.append(f"best {screen.metric} {number(screen.best[1])} ({screen.best[0]})")
    if screen.elapsed_s is not None:
        parts.append(format_seconds(screen.elapsed_s))
    parts.append(f"{screen.worker_seconds / 3600:.2g} worker-hours")
    while columns is not None and len(parts) > 2 and len("  ".join(parts)) > columns:
        parts.pop()
    return "  ".join(parts)[:columns]


def table_lines(
    screen: SweepScreen,
    *,
    columns: int | None = None,
    rows: int | None = None,
    colour: bool = False,
    in_order: bool = False,
) -> list[str]:
    """The trials in columns, those that matter most first, or ``in_order`` of their suggestion.

    Args:
        columns: of the terminal; None for as wide as it is.
        rows: lines at most, the head and the line about the rest included; None for all trials.
        colour: whether statuses and the best have colours.
    """
    ordered = list(screen.rows) if in_order else _by_worth(screen)
    shown = ordered if rows is None or len(ordered) + 1 <= rows else ordered[: max(rows - 2, 0)]
    names = {"metric": screen.metric, "at": screen.at}
    width_of = {key: len(names.get(key, key)) for key in _WORTH}
    cells = [_cells(row) for row in shown]
    for key in _WORTH:
        width_of[key] = max([width_of[key], *(len(cell[key]) for cell in cells)])
    kept = _fitting(width_of, columns)
    best = screen.best[0] if screen.best is not None else None
    lines = [_line(dict.fromkeys(kept, "") | {key: names.get(key, key) for key in kept}, kept, width_of, "  ", columns)]
    for row, cell in zip(shown, cells, strict=True):
        line = _line(cell, kept, width_of, "* " if row.trial == best else "  ", columns)
        paint = "1;32" if row.trial == best else _COLOURS.get(row.status, "")
        lines.append(f"\x1b[{paint}m{line}\x1b[0m" if colour and paint else line)
    if len(shown) < len(ordered):
        rest = f"  … {len(ordered) - len(shown):,} more: {_counts(ordered[len(shown) :])}"
        lines.append(rest if columns is None else rest[:columns])
    return lines


def number(value: float | None) -> str:
    """A value of the metric, in at most six digits; ``–`` where there is none."""
    return "–" if value is None else f"{value:.6g}"


class SweepTable:
    """Shows a sweep on a console, whenever it is told how things stand.

    Args:
        every: seconds between two lines about the whole sweep where there is no terminal; or a 12th of the time so far.
    """

    def __init__(self, console: Console, *, every: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._every, self._clock = console, every, clock
        self._began = clock()
        self._drawn_at = float("-inf")
        self._line_at = self._began
        self._seen: dict[str, tuple[str, str]] = {}
        self._best: tuple[str, float] | None = None

    def show(self, screen: SweepScreen, *, now: bool = False) -> None:
        """Shows how it stands: on a terminal not more often than four times a second, unless it must be ``now``."""
        if self._console.live:
            if now or self._clock() - self._drawn_at >= _REDRAW_S:
                self._drawn_at = self._clock()
                columns, rows = self._console.size()
                colour = self._console.colour
                table = table_lines(screen, columns=columns - 1, rows=max(rows - 3, 3), colour=colour)
                self._console.draw([head_line(screen, columns - 1), *table])
            return
        for row in screen.rows:
            self._tell(screen, row)
        if screen.best is not None and screen.best != self._best:
            self._best = screen.best
            self._console.event(f"best so far: {screen.metric} {number(screen.best[1])}, trial {screen.best[0]}")
        so_far = self._clock() - self._began
        if now or self._clock() - self._line_at >= max(self._every, so_far / _LINES_IN_THE_TIME_SO_FAR):
            self._line_at = self._clock()
            self._console.event(head_line(screen))

    def _tell(self, screen: SweepScreen, row: TrialRow) -> None:
        """A line where a trial has ended, or something was decided about it; none for its waiting."""
        ended = row.status not in OPEN
        after = (row.status, row.why) if ended else ("goes on", row.why)
        if row.status == "paused" or self._seen.get(row.trial) == after or not (ended or row.why):
            return
        self._seen[row.trial] = after
        place = f" at {screen.at} {row.at}" if row.at not in ("", END) else ""
        value = f", {screen.metric} {number(row.value)} after {row.samples:,} rows" if row.samples else ""
        why = f": {row.why}" if row.why else ""
        self._console.event(f"{row.trial} {after[0]}{place}{value}{why}")


def _by_worth(screen: SweepScreen) -> list[TrialRow]:
    """The best, what has not ended, then the newest."""
    best = screen.best[0] if screen.best is not None else None

    def rank(item: tuple[int, TrialRow]) -> tuple[int, int]:
        position, row = item
        kind = 0 if row.trial == best else 1 if row.status == "running" else 2 if row.status in OPEN else 3
        return kind, position if kind < 3 else -position

    return [row for _, row in sorted(enumerate(screen.rows), key=rank)]


def _counts(rows: Sequence[TrialRow]) -> str:
    """``2 running, 9 stopped``: how many have each status, open ones first."""
    counts = Counter(row.status for row in rows)
    order = sorted(counts, key=lambda status: (status not in OPEN, status))
    return ", ".join(f"{counts[status]:,} {status}" for status in order)


def _cells(row: TrialRow) -> dict[str, str]:
    return {
        "trial": row.trial,
        "status": row.status,
        "at": row.at,
        "samples": f"{row.samples:,}" if row.samples else "",
        "metric": number(row.value) if row.samples else "",
        "best": number(row.best) if row.best is not None else "",
        "workers": str(row.workers) if row.workers else "",
        "why": row.why,
    }


_SHOWN = ("trial", "status", "at", "samples", "metric", "best", "workers", "why")
_RIGHT = ("samples", "metric", "best", "workers")


def _fitting(width_of: dict[str, int], columns: int | None) -> list[str]:
    """Columns that fit, as they stand; ``why`` is cut where there is some room for it."""
    kept: set[str] = set()
    left = float("inf") if columns is None else columns
    for key in _WORTH:
        need = 2 + (min(width_of[key], _LEAST_WHY) if key == "why" else width_of[key])
        if need > left:
            break
        kept.add(key)
        left -= need
    return [key for key in _SHOWN if key in kept]


def _line(cell: dict[str, str], kept: Sequence[str], width_of: dict[str, int], mark: str, columns: int | None) -> str:
    texts = [cell[key].rjust(width_of[key]) if key in _RIGHT else cell[key].ljust(width_of[key]) for key in kept]
    line = (mark + "  ".join(texts)).rstrip()
    return line if columns is None or len(line) <= columns else f"{line[: columns - 1]}…"
