"""Turns the notes that come from the workers into what the console shows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pliant.observe.board import Note
from pliant.observe.console import Console
from pliant.units import format_seconds

_SILENT = {"seconds", "time", "step", "kind"}


class Display:
    """Drains a board in a thread and shows it; remembers the newest progress and evaluation.

    Args:
        drain: the board's.
    """

    def __init__(self, drain: Callable[[], list[Note]], console: Console, *, every_s: float = 0.25) -> None:
        self._drain, self._console, self._every_s = drain, console, every_s
        self.progress: Note = {}
        self.evaluation: Note = {}
        self.ended: Note = {}
        self._first: Note = {}
        self._before: Note = {}
        self._rate: float | None = None
        self._checkpoint: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pliant-display", daemon=True)

    def __enter__(self) -> Display:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()
        self._show()

    @property
    def unit(self) -> str:
        return "tokens" if self.progress.get("tokens") else "rows"

    def mean_rate(self) -> float | None:
        """``unit`` per second over this attempt's steps, from its first to its last."""
        return _rate(self._first, self.progress, self.unit)

    def values(self) -> dict[str, float]:
        """Figures of the newest evaluation."""
        return {k: v for k, v in self.evaluation.items() if k not in _SILENT}

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._show()

    def _show(self) -> None:
        try:
            notes = self._drain()
        except Exception:  # the board's actor is gone; how the group ended is told by the group itself
            return
        for note in notes:
            kind = note["kind"]
            if kind == "progress":
                self._step(note)
            elif kind == "evaluation":
                self.evaluation = note
                figures = "  ".join(f"{k} {v:.4g}" for k, v in self.values().items())
                text = f"evaluation at step {note['step']}: {figures}  ({format_seconds(note['seconds'])})"
                self._console.milestone(note["step"], int(self.progress.get("total_steps", 0)), text)
            elif kind == "ended":
                self.ended = note
            elif "text" in note:
                if kind == "checkpoint":
                    self._checkpoint = note["step"]
                else:
                    self._console.event(note["text"])

    def _step(self, note: Note) -> None:
        self._first = self._first or note
        self.progress = note
        if not self._before or note["time"] - self._before["time"] > 2:
            self._rate = _rate(self._before, note, self.unit) or self._rate
            self._before = note
        self._console.update(
            note["step"], note["total_steps"], loss=note["loss"], lr=note["lr"], rate=self._rate, unit=self.unit,
            workers=note["world_size"], checkpoint=self._checkpoint,
        )  # fmt: skip


def _rate(first: Note, last: Note, unit: str) -> float | None:
    counted = "tokens" if unit == "tokens" else "samples"
    if not first or last["time"] <= first["time"] or last[counted] < first[counted]:  # steps are done again
        return None
    return float((last[counted] - first[counted]) / (last["time"] - first["time"]))
