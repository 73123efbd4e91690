"""What a run shows while it works. One owner of stderr: a live bar on a terminal, sparse lines where there is none.

The bar is redrawn in place; everything else is a line that stays. Without a terminal a progress line comes at the first
and last step, at every tenth of the way, and otherwise at most once per interval, so that logs stay short.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

from pliant.units import format_seconds

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Console:
    """Shows a run on a text stream.

    Args:
        stream: default: stderr.
        live: draw a bar; default: if the stream is a terminal that can. Colours follow NO_COLOR.
        every: seconds between progress lines where there is no bar.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        live: bool | None = None,
        every: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._live = (self._stream.isatty() and os.environ.get("TERM") != "dumb") if live is None else live
        self._every = every
        self._clock = clock
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._first: tuple[float, int] | None = None  # when the first step of this process ended, and its number
        self._last_line = float("-inf")
        self._last_tenth = -1

    def start(self, plan_lines: Iterable[str]) -> None:
        """Shows the plan, before the first step."""
        for line in plan_lines:
            self.event(line)

    def update(
        self,
        step: int,
        total: int,
        *,
        loss: float,
        lr: float,
        rate: float | None = None,
        unit: str = "rows",
        workers: int | None = None,
        checkpoint: int | None = None,
    ) -> None:
        """Shows a finished step.

        Args:
            step: its number, from 1.
            total: steps of the whole run.
            loss: of its global batch.
            lr: it was made with.
            rate: ``unit`` per second, over the whole group.
            unit: what is counted.
            workers: world size.
            checkpoint: step of the newest committed checkpoint.
        """
        now = self._clock()
        if self._first is None:
            self._first = (now, step)
        parts = [f"loss {loss:.4g}", f"lr {lr:.2e}"]
        if workers is not None:
            parts.append(f"{workers} worker{'s' if workers != 1 else ''}")
        if rate is not None:
            parts.append(f"{_short(rate)} {unit}/s")
        if checkpoint is not None:
            parts.append(f"checkpoint {checkpoint}")
        if (left := self._left(now, step, total)) is not None:
            parts.append(f"{format_seconds(left)} left")
        figures = "  ".join(parts)
        if self._live:
            self._draw(step, total, figures)
        elif self._is_due(now, step, total):
            self._write(f"step {step}/{total}  {figures}")

    def event(self, text: str) -> None:
        """Shows something that happened: a line that stays."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            self._write(text)

    def summary(self, lines: Iterable[str]) -> None:
        """Shows the end: the bar goes, the lines stay."""
        self.close()
        for line in lines:
            self._write(line)

    def close(self) -> None:
        """Takes the bar away, if there is one. Safe to call again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def _is_due(self, now: float, step: int, total: int) -> bool:
        tenth = 10 * step // total if total else 0
        if now - self._last_line < self._every and tenth <= self._last_tenth and step != total:
            return False
        self._last_line, self._last_tenth = now, tenth
        return True

    def _left(self, now: float, step: int, total: int) -> float | None:
        """Seconds to the end at this process's own pace; None before there is one, and at the end."""
        if self._first is None or step <= self._first[1] or step >= total:
            return None
        return (now - self._first[0]) / (step - self._first[1]) * (total - step)

    def _draw(self, step: int, total: int, figures: str) -> None:
        if self._bar is None or self._task is None:
            from rich.console import Console as RichConsole
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[figures]}", markup=False),
                console=RichConsole(file=self._stream, force_terminal=True),
                transient=True,
                refresh_per_second=4,
            )
            self._task = self._bar.add_task("", total=total, figures=figures)
            self._bar.start()
        self._bar.update(self._task, completed=step, total=total, figures=figures)


def _short(number: float) -> str:
    """412345 → ``412k``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
