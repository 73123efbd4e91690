"""What a run shows while it works. One owner of stderr: a live bar on a terminal, sparse lines where there is none.

The bar, or a sweep's table, is the terminal's last lines, drawn over in place; everything else is a line that stays
above it. Each change is one write, so that nothing flickers and nothing is torn; no thread draws, so that a debugger's
prompt is left alone. Without a terminal a progress line comes at the first and last step, at every tenth of the way,
and otherwise at most once per interval, which grows with the time that the run has taken, so that logs stay short.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

from pliant.units import format_seconds

_BAR_CELLS = 20
_REDRAW_S = 0.1
_LINES_IN_THE_TIME_SO_FAR = 12
_MILESTONES = 20
_CLEAR_REST, _CLEAR_BELOW = "\x1b[K", "\x1b[J"


class Console:
    """Shows a run on a text stream. Safe to use from several threads, and in signal handlers.

    Args:
        stream: default: stderr.
        live: draw a bar; default: if the stream is a terminal that can. Colours follow NO_COLOR.
        every: seconds between progress lines where there is no bar; or a 12th of the time so far, if that is more.
        quiet: show neither plan nor progress, only warnings and what happens to the run in the end.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        live: bool | None = None,
        every: float = 30.0,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._live = is_live(self._stream) if live is None else live
        self._colour = not os.environ.get("NO_COLOR")
        self._every, self._quiet, self._clock = every, quiet, clock
        self._drawn: list[str] = []  # the lines at the end that are drawn over; the cursor stands on the last
        self._drawn_at = float("-inf")
        self._first: tuple[float, int] | None = None  # when the first step of this process ended, and its number
        self._last_line = float("-inf")
        self._last_tenth = self._last_milestone = -1
        self._lock = threading.RLock()

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
        left = self._left(now, step, total)
        # In the order of their worth on a narrow terminal; of a line, all are shown.
        parts = {
            "loss": f"loss {loss:.4g}",
            "lr": f"lr {lr:.2e}",
            "workers": f"{workers} worker{'s' if workers != 1 else ''}" if workers is not None else "",
            "rate": f"{_short(rate)} {unit}/s" if rate is not None else "",
            "checkpoint": f"checkpoint {checkpoint}" if checkpoint is not None else "",
            "left": f"{format_seconds(left)} left" if left is not None else "",
        }
        if self._quiet:
            return
        if not self._live:
            if self._is_due(now, step, total):
                self._write(f"step {step}/{total}  {'  '.join(filter(None, parts.values()))}")
        elif now - self._drawn_at >= _REDRAW_S or step == total:
            self._drawn_at = now
            with self._lock:
                self._redraw([self._draw(step, total, parts)])

    @property
    def live(self) -> bool:
        """Whether something may be drawn over in place."""
        return self._live

    @property
    def colour(self) -> bool:
        """Whether what is drawn may have colours."""
        return self._colour

    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal; 80 and 24 where that is not known."""
        return _size(self._stream)

    def draw(self, lines: Sequence[str]) -> None:
        """Shows lines in the place of those drawn before; only on a terminal, where none may wrap."""
        if self._live and not self._quiet:
            with self._lock:
                self._redraw(lines)

    def event(self, text: str) -> None:
        """Shows something that happened: a line that stays."""
        if not self._quiet:
            self._write(text)

    def milestone(self, step: int, total: int, text: str) -> None:
        """Shows what comes again and again: where there is no bar, not more often than every 20th of the way."""
        part = _MILESTONES * step // total if total else 0
        if self._live or part > self._last_milestone or step == total:
            self._last_milestone = part
            self.event(text)

    def warn(self, text: str) -> None:
        """The same for what is shown even where little is wanted."""
        self._write(text)

    def summary(self, lines: Iterable[str]) -> None:
        """Shows the end: the bar goes, the lines stay."""
        self.close()
        for line in lines:
            self.event(line)

    def close(self) -> None:
        """Takes away what is drawn, if something is. Safe to call again."""
        with self._lock:
            if self._drawn:
                self._put(f"{self._top()}{_CLEAR_BELOW if len(self._drawn) > 1 else _CLEAR_REST}")
                self._drawn = []

    def plain(self) -> None:
        """Lines from now on, whatever the stream: someone else needs the terminal, e.g. a debugger."""
        self.close()
        self._live = False

    @contextmanager
    def takes_warnings(self) -> Iterator[None]:
        """In the block, what Pliant logs as a warning is a line of this console."""
        logger, handler = logging.getLogger("pliant"), _LineHandler(self.warn)
        before = logger.propagate
        logger.addHandler(handler)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = before

    def _write(self, line: str) -> None:
        with self._lock:
            over = _over([*line.splitlines(), *self._drawn])
            self._put(f"{self._top()}{over}" if self._drawn else f"{line}\n")

    def _redraw(self, lines: Sequence[str]) -> None:
        rest = _CLEAR_BELOW if len(lines) < len(self._drawn) else ""
        self._put(f"{self._top()}{_over(lines)}{rest}")
        self._drawn = list(lines)

    def _top(self) -> str:
        """Moves to the first of the drawn lines."""
        above = len(self._drawn) - 1
        return f"\r\x1b[{above}A" if above > 0 else "\r"

    def _put(self, text: str) -> None:
        with suppress(OSError):  # whoever looked is gone: a closed terminal, a pipe without a reader
            self._stream.write(text)
            self._stream.flush()

    def _is_due(self, now: float, step: int, total: int) -> bool:
        tenth = 10 * step // total if total else 0
        so_far = now - self._first[0] if self._first else 0.0
        every = max(self._every, so_far / _LINES_IN_THE_TIME_SO_FAR)
        if now - self._last_line < every and tenth <= self._last_tenth and step != total:
            return False
        self._last_line, self._last_tenth = now, tenth
        return True

    def _left(self, now: float, step: int, total: int) -> float | None:
        """Seconds to the end at this process's own pace; None before there is one, and at the end."""
        if self._first is None or step <= self._first[1] or step >= total:
            return None
        return (now - self._first[0]) / (step - self._first[1]) * (total - step)

    def _draw(self, step: int, total: int, parts: dict[str, str]) -> str:
        """The bar, not longer than the terminal is wide: what does not fit is left out, the least worth first."""
        done = min(step / total, 1.0) if total else 0.0
        head, share = f"step {step}/{total} ", f" {done:>4.0%}"
        width = self.size()[0] - 1  # in the last column some terminals wrap
        cells = min(max(width - len(head) - len(share), 0), _BAR_CELLS)
        full = round(done * cells)
        bar = "━" * full + "─" * (cells - full)
        shown = [key for key in ("loss", "left", "rate", "workers", "checkpoint", "lr") if parts[key]]
        while shown and len(head) + cells + len(share) + sum(len(parts[key]) + 2 for key in shown) > width:
            shown.pop()
        rest = "".join(f"  {text}" for key, text in parts.items() if key in shown)
        if self._colour and cells:
            bar = f"\x1b[36m{bar[:full]}\x1b[90m{bar[full:]}\x1b[0m"
        return f"{head}{bar}{share}{rest}"


def is_live(stream: TextIO) -> bool:
    """Whether a stream is a terminal on which a line can be drawn over."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class _LineHandler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(f"{record.levelname.lower()}: {record.getMessage()}")


def _over(lines: Iterable[str]) -> str:
    """Lines over what stood there."""
    return "\n".join(f"{line}{_CLEAR_REST}" for line in lines)


def _size(stream: TextIO) -> tuple[int, int]:
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns, rows = 0, 0
    given = [os.environ.get(name, "") for name in ("COLUMNS", "LINES")]
    columns, rows = (int(text) if text.isdigit() else here for text, here in zip(given, (columns, rows), strict=True))
    return columns or 80, rows or 24


def _short(number: float) -> str:
    """412345 → ``412k``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
