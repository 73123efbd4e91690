"""What a sweep shows, with and without a terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from pliant.observe.console import Console
from pliant.observe.sweep_table import SweepScreen, SweepTable, TrialRow, head_line, table_lines
from tests.observe.terminal import Terminal
from tests.observe.test_console import Clock

ROWS = [
    TrialRow("t0000", "stopped", "1/3", 480, 0.91, 0.91, 0, "rung 1 of 3: 5th of 6, 2 go on"),
    TrialRow("t0001", "completed", "3/3", 12_960, 0.9678, 0.9688, 0, "trained to its full length"),
    TrialRow("t0002", "diverged", "1/3", 480, None, None, 0, "the loss is no number"),
    TrialRow("t0003", "running", "2/3", 1440, 0.94, 0.94, 2, "rung 1 of 3: 1st of 6, 2 go on"),
    TrialRow("t0004", "paused", "1/3", 480, 0.93, 0.93, 0, "rung 1 of 3: waits for 2 others"),
    TrialRow("t0005", "waiting", "", 0, None, None, 0, ""),
]
SCREEN = SweepScreen("asha", "accuracy", "rung", ROWS, 27, ("t0001", 0.9688), 750.0)


def test_the_head_says_how_far_it_is() -> None:
    assert head_line(replace(SCREEN, elapsed_s=65.0)) == (
        "asha  6 of 27 trials: 1 paused, 1 running, 1 waiting, 1 completed, 1 diverged, 1 stopped"
        "  best accuracy 0.9688 (t0001)  1m05s  0.21 worker-hours"
    )
    assert head_line(SCREEN, 120).endswith(" stopped  best accuracy 0.9688 (t0001)")
    assert len(head_line(SCREEN, 30)) == 30
    empty = replace(SCREEN, rows=[], planned=None, best=None, worker_seconds=0.0)
    assert head_line(empty) == "asha  0 trials  0 worker-hours"


def test_the_table_is_in_columns_what_matters_most_first() -> None:
    assert table_lines(SCREEN) == [
        "  trial  status     rung  samples  accuracy    best  workers  why",
        "* t0001  completed  3/3    12,960    0.9678  0.9688           trained to its full length",
        "  t0003  running    2/3     1,440      0.94    0.94        2  rung 1 of 3: 1st of 6, 2 go on",
        "  t0004  paused     1/3       480      0.93    0.93           rung 1 of 3: waits for 2 others",
        "  t0005  waiting",
        "  t0002  diverged   1/3       480         –                   the loss is no number",
        "  t0000  stopped    1/3       480      0.91    0.91           rung 1 of 3: 5th of 6, 2 go on",
    ]
    assert [line.split()[0] for line in table_lines(SCREEN, in_order=True)[1:4]] == ["t0000", "*", "t0002"]


def test_it_fits_the_terminal() -> None:
    for columns in range(20, 120):
        for rows in range(3, 9):
            lines = table_lines(SCREEN, columns=columns, rows=rows)
            assert len(lines) <= rows
            assert max(map(len, lines)) <= columns
    assert table_lines(SCREEN, columns=60, rows=4) == [
        "  trial  status     rung  accuracy    best  why",
        "* t0001  completed  3/3     0.9678  0.9688  trained to its …",
        "  t0003  running    2/3       0.94    0.94  rung 1 of 3: 1s…",
        "  … 4 more: 1 paused, 1 waiting, 1 diverged, 1 stopped",
    ]


def test_on_a_terminal_the_table_is_drawn_over_and_no_other_line_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "12")
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal, clock = Terminal(80), Clock()
    console = Console(terminal, clock=clock)
    shown = SweepTable(console, clock=clock)
    told = []
    for count in range(1, 40):
        clock.now += 1.0
        rows = [replace(ROWS[n % 6], trial=f"t{n:04d}") for n in range(count)]
        shown.show(replace(SCREEN, rows=rows))
        if count % 10 == 0:
            told.append(f"checkpoint of the sweep {count}\n  on two lines")
            console.event(told[-1])
        drawn = len(told) * 2
        assert terminal.lines[:drawn] == "\n".join(told).splitlines()
        assert terminal.lines[drawn].startswith(f"asha  {count} of 27 trials")
        assert len(terminal.lines) - drawn == min(count, 8) + 2
    fewer = len(terminal.lines)
    clock.now += 1.0
    shown.show(replace(SCREEN, rows=ROWS[:2]))
    assert len(terminal.lines) == fewer - 6, "nothing is left of the longer table"
    console.summary(["done"])
    assert terminal.lines == [*"\n".join(told).splitlines(), "done", ""]


def test_it_is_drawn_four_times_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal, clock = Terminal(200), Clock()
    shown = SweepTable(Console(terminal, clock=clock), clock=clock)
    for _ in range(1000):
        clock.now += 0.001
        shown.show(SCREEN)
    assert terminal.getvalue().count("asha") == 4
    shown.show(SCREEN, now=True)
    assert terminal.getvalue().count("asha") == 5


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> str:
        stream, clock = io.StringIO(), Clock()
        SweepTable(Console(stream, live=True, clock=clock), clock=clock).show(SCREEN)
        return stream.getvalue()

    colour = re.compile(r"\x1b\[[0-9;]*m")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colour.search(drawn())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.search(drawn())


def test_without_a_terminal_there_is_a_line_for_each_change() -> None:
    stream, clock = io.StringIO(), Clock()
    shown = SweepTable(Console(stream, live=False), every=30.0, clock=clock)
    running = TrialRow("t0000", "running", "", 0, None, None, 1, "")
    screen = replace(SCREEN, rows=[running], best=None, worker_seconds=0.0)
    shown.show(screen)
    shown.show(replace(screen, rows=[replace(running, at="1/3", samples=480, value=0.9, best=0.9, why="1st of 1")]))
    went_on = replace(running, at="1/3", samples=480, value=0.9, best=0.9, why="1st of 1")
    for status in ("waiting", "running", "paused"):
        shown.show(replace(screen, rows=[replace(went_on, status=status)]))
    stopped = replace(running, status="stopped", at="1/3", samples=480, value=0.9, best=0.9, workers=0, why="5th of 6")
    for _ in range(3):
        shown.show(replace(screen, rows=[stopped], best=("t0000", 0.9)))
    clock.now = 31.0
    shown.show(replace(screen, rows=[stopped], best=("t0000", 0.9)))
    assert stream.getvalue().splitlines() == [
        "t0000 goes on at rung 1/3, accuracy 0.9 after 480 rows: 1st of 1",
        "t0000 stopped at rung 1/3, accuracy 0.9 after 480 rows: 5th of 6",
        "best so far: accuracy 0.9, trial t0000",
        "asha  1 of 27 trials: 1 stopped  best accuracy 0.9 (t0000)  0 worker-hours",
    ]


def test_quiet_shows_nothing() -> None:
    for live in (False, True):
        stream = io.StringIO()
        SweepTable(Console(stream, live=live, quiet=True)).show(SCREEN, now=True)
        assert stream.getvalue() == ""
