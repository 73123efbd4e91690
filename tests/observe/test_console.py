"""What is shown, with and without a terminal."""

from __future__ import annotations

import io
import logging
import re

import pytest

from pliant.observe.console import Console
from tests.observe.terminal import Terminal


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
    for step in range(1, 50):
        clock.now = 7.0 * step
        shown.update(step, 10_000, loss=1.0, lr=1e-3)
    assert len(stream.getvalue().splitlines()) == 10


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


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_on_a_terminal_the_bar_is_the_last_line_and_no_other_line_is_lost(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal, clock = Terminal(columns), Clock()
    shown = Console(terminal, clock=clock)
    shown.start(["plan"])
    told = ["plan"]
    for step in range(1, 10_001):
        clock.now += 0.05
        shown.update(
            step, 10_000, loss=2.5, lr=3e-4, rate=412_345.6, unit="tokens", workers=12, checkpoint=max(step - 9, 0)
        )
        if step % 1000 == 1:
            told.append(f"evaluation at {step} [bold]")
            shown.event(told[-1])
            assert terminal.lines[:-1] == told
            assert terminal.lines[-1].startswith("step ")
            assert len(terminal.lines[-1]) < columns
    assert "100%" in terminal.lines[-1]
    shown.summary(["done"])
    shown.close()
    assert terminal.lines == [*told, "done", ""]


def test_a_narrow_terminal_keeps_what_matters_most(monkeypatch: pytest.MonkeyPatch) -> None:
    def bar(columns: int) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        terminal, clock = Terminal(columns), Clock()
        shown = Console(terminal, live=True, clock=clock)
        for step in (5, 6):
            clock.now += 60
            shown.update(step, 20, loss=2.5, lr=3e-4, rate=5e3, unit="tokens", workers=2, checkpoint=4)
        return terminal.lines[-1]

    full = "step 6/20 ━━━━━━──────────────  30%  loss 2.5"
    assert bar(120) == f"{full}  lr 3.00e-04  2 workers  5k tokens/s  checkpoint 4  14m00s left"
    assert bar(80) == f"{full}  5k tokens/s  14m00s left"
    assert bar(60) == f"{full}  14m00s left"
    assert bar(30) == "step 6/20 ━━━━──────────  30%"


def test_ten_thousand_steps_without_a_terminal_are_at_most_200_lines() -> None:
    for seconds_per_step in (0.001, 1.0, 10.0, 200.0):
        shown, stream, clock = console(live=False)
        for step in range(1, 10_001):
            clock.now += seconds_per_step
            shown.update(step, 10_000, loss=1.0, lr=1e-3)
            if step % 10 == 0:
                shown.milestone(step, 10_000, f"evaluation at step {step}")
        lines = stream.getvalue().splitlines()
        assert sum(line.startswith("step ") for line in lines) >= 11
        assert sum(line.startswith("evaluation ") for line in lines) == 21
        assert len(lines) <= 160  # the start screen and the end are some 40
        assert lines[-2].startswith("step 10000/10000")
        assert lines[-1] == "evaluation at step 10000"


def test_quiet_leaves_warnings() -> None:
    for live in (False, True):
        shown, stream, _ = console(live=live)
        shown = Console(stream, live=live, quiet=True)
        shown.start(["plan"])
        shown.update(1, 1, loss=1.0, lr=1e-3)
        shown.event("evaluation")
        shown.warn("storage is away")
        shown.summary(["done"])
        assert stream.getvalue() == "storage is away\n"


def test_what_is_logged_as_a_warning_is_a_line() -> None:
    shown, stream, _ = console(live=True)
    with shown.takes_warnings():
        shown.update(1, 2, loss=1.0, lr=1e-3)
        logging.getLogger("pliant.storage.owner").warning("heartbeat: %s", "no answer")
        logging.getLogger("pliant.storage.owner").info("nothing new")
    assert "\rwarning: heartbeat: no answer\x1b[K\nstep 1/2 " in stream.getvalue()
    assert "nothing new" not in stream.getvalue()


def test_a_debugger_gets_lines() -> None:
    shown, stream, _ = console(live=True)
    shown.update(1, 3, loss=1.0, lr=1e-3)
    shown.plain()
    shown.update(3, 3, loss=1.0, lr=1e-3)
    assert stream.getvalue().endswith("\r\x1b[Kstep 3/3  loss 1  lr 1.00e-03\n")


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> str:
        shown, stream, _ = console(live=True)
        shown.update(1, 2, loss=2.5, lr=3e-4)
        shown.close()
        return stream.getvalue()

    colour = re.compile(r"\x1b\[[0-9;]*m")
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
