"""What is shown, with and without a terminal."""

from __future__ import annotations

import io
import re

import pytest

from pliant.observe.console import Console


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def console(*, live: bool, every: float = 30.0) -> tuple[Console, io.StringIO, Clock]:
    stream, clock = io.StringIO(), Clock()
    return Console(stream, live=live, every=every, clock=clock), stream, clock


def test_lines_without_a_terminal() -> None:
    shown, stream, clock = console(live=False)
    shown.start(["plan: 2 workers", "  [not markup]"])
    for step in (1, 2):
        clock.now = 2.0 * step
        shown.update(step, 1000, loss=2.5, lr=3e-4, rate=412_345.6, unit="tokens", workers=2, checkpoint=step - 1)
    clock.now = 40.0
    shown.update(3, 1000, loss=0.5, lr=1e-5, workers=1)
    shown.event("resize 2 → 1 workers")
    shown.summary(["done", "go on with: pliant resume x"])
    assert stream.getvalue().splitlines() == [
        "plan: 2 workers",
        "  [not markup]",
        "step 1/1000  loss 2.5  lr 3.00e-04  2 workers  412k tokens/s  checkpoint 0",
        "step 3/1000  loss 0.5  lr 1.00e-05  1 worker  5h15m left",
        "resize 2 → 1 workers",
        "done",
        "go on with: pliant resume x",
    ]


def test_a_fast_run_writes_few_lines() -> None:
    shown, stream, _ = console(live=False)
    for step in range(1, 1001):
        shown.update(step, 1000, loss=1.0, lr=1e-3)
    steps = [int(n) for n in re.findall(r"^step (\d+)/", stream.getvalue(), re.MULTILINE)]
    assert steps == [1, *range(100, 1001, 100)]


def test_a_slow_run_writes_a_line_per_interval() -> None:
    shown, stream, clock = console(live=False, every=30.0)
    for step in range(1, 100):
        clock.now = 7.0 * step
        shown.update(step, 10_000, loss=1.0, lr=1e-3)
    assert len(stream.getvalue().splitlines()) == 20


def test_a_run_that_goes_on_in_the_middle_starts_with_a_line() -> None:
    shown, stream, _ = console(live=False)
    shown.update(612, 1000, loss=1.0, lr=1e-3)
    assert stream.getvalue().startswith("step 612/1000")


@pytest.mark.parametrize(
    ("rate", "text"), [(0.5, "0.5"), (999.0, "999"), (1234.0, "1.23k"), (5.6e6, "5.6M"), (7.77e9, "7.77G")]
)
def test_rates_are_short(rate: float, text: str) -> None:
    shown, stream, _ = console(live=False)
    shown.update(1, 2, loss=1.0, lr=1e-3, rate=rate)
    assert f"  {text} rows/s" in stream.getvalue()


def test_a_bar_on_a_terminal_and_lines_that_stay() -> None:
    shown, stream, _ = console(live=True)
    shown.start(["plan"])
    shown.update(1, 40, loss=2.5, lr=3e-4)
    shown.event("checkpoint 1 [bold]committed[/bold]")
    shown.update(40, 40, loss=0.5, lr=3e-4)
    shown.summary(["done"])
    shown.close()
    text = stream.getvalue()
    assert text.startswith("plan\n")
    assert "40/40" in text
    assert "100 %" in text
    assert "loss 0.5" in text
    assert "checkpoint 1 [bold]committed[/bold]\n" in text
    assert "\x1b[?25h" in text, "the cursor is shown again"
    assert text.endswith("done\n")


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> str:
        shown, stream, _ = console(live=True)
        shown.update(1, 2, loss=2.5, lr=3e-4)
        shown.close()
        return stream.getvalue()

    colour = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colour.search(drawn())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.search(drawn())


def test_a_stream_that_is_no_terminal_gets_lines() -> None:
    stream = io.StringIO()
    Console(stream).update(1, 2, loss=1.0, lr=1e-3)
    assert stream.getvalue() == "step 1/2  loss 1  lr 1.00e-03\n"


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    Console(stream).update(1, 2, loss=1.0, lr=1e-3)
    assert "\x1b" not in stream.getvalue()
