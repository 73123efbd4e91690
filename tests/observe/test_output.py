"""What ranks print: into a log of each, rank 0's to the screen."""

from __future__ import annotations

import pdb
import sys
from pathlib import Path
from typing import Any

import pytest

from pliant.errors import UserCodeError
from pliant.observe.board import Board, BoardReporter, NullReporter, Reporter
from pliant.observe.console import Console
from pliant.observe.output import Printed, leave_terminal_to_debuggers, output_log, rank_of
from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.train.usercode import user_code


class Printing:
    """A run with one group; ``as_rank`` is a worker of it."""

    def __init__(self, folder: Path) -> None:
        self.record = RunRecord.create(Store(str(folder / "run"), StorageSettings()), {"name": "run"})
        self.group = self.record.claim_group(self.record.claim_driver().number)
        self.group.restore(None, {})
        self.board = Board()
        self.reporter: Reporter = NullReporter()

    def as_rank(self, rank: int) -> Printed:
        self.reporter = BoardReporter(self.board.exchange) if rank == 0 else NullReporter()
        return Printed(self.record.store, self.group.number, output_log(rank), self.reporter, every_s=600.0)

    def lines(self, rank: int) -> list[tuple[str, str]]:
        entries = read_log(self.record.store, self.record.view(), output_log(rank))
        return [(entry["stream"], entry["text"]) for entry in entries]

    def shown(self) -> list[str]:
        self.reporter.close()
        return [note["text"] for note in self.board.drain() if note["kind"] == "output"]


@pytest.fixture
def run(tmp_path: Path) -> Printing:
    return Printing(tmp_path)


def test_lines_of_both_streams_in_order(run: Printing, capsys: pytest.CaptureFixture[str]) -> None:
    before = (sys.stdout, sys.stderr)
    with run.as_rank(0):
        print("one\ntwo", end="")
        print(" goes on")
        print("broken", file=sys.stderr)
        for percent in range(101):  # a progress bar of the user's own
            sys.stdout.write(f"\r{percent} %")
        print("\nno end", end="")
    assert (sys.stdout, sys.stderr) == before
    expected = [("out", "one"), ("out", "two goes on"), ("err", "broken"), ("out", "100 %")]
    assert run.lines(0) == [*expected, ("out", "no end")]
    assert run.shown() == [text for _, text in expected] + ["no end"]
    assert capsys.readouterr() == ("", "")


def test_other_ranks_are_in_files_alone(run: Printing) -> None:
    with run.as_rank(3):
        print("from rank 3")
    assert run.lines(3) == [("out", "from rank 3")]
    assert run.lines(0) == []
    assert run.shown() == []


def test_what_ends_a_rank_is_the_end_of_its_log(run: Printing) -> None:
    def fails() -> None:
        with run.as_rank(1):
            print("begun")
            1 / 0  # noqa: B018

    with pytest.raises(ZeroDivisionError):
        fails()
    lines = run.lines(1)
    assert lines[:2] == [("out", "begun"), ("err", "Traceback (most recent call last):")]
    assert lines[-1] == ("err", "ZeroDivisionError: division by zero")


def test_of_an_error_in_user_code_the_log_has_the_users_lines_alone(run: Printing) -> None:
    with pytest.raises(UserCodeError), run.as_rank(1), user_code("loss", place="rank 1, step 7"):
        1 / 0  # noqa: B018
    lines = [text for _, text in run.lines(1)]
    assert lines[0] == "Traceback (most recent call last):"
    assert "error[pipeline.raised] rank 1, step 7  loss raised ZeroDivisionError: division by zero" in lines
    assert not [line for line in lines if "platform/pliant" in line]


def test_a_flood_is_in_the_log_and_the_screen_says_how_much(run: Printing) -> None:
    with run.as_rank(0):
        for n in range(10_000):
            print(n)
    assert len(run.lines(0)) == 10_000
    shown = run.shown()
    assert shown[0] == "0"
    assert len(shown) < 1000
    assert shown[-1].startswith("… ")
    assert shown[-1].endswith(" lines more: pliant logs shows them")


def test_a_group_that_was_fenced_prints_on_and_nothing_of_it_counts(run: Printing) -> None:
    with run.as_rank(0):
        run.record.claim_driver()
        print("too late")
    assert run.lines(0) == []


def test_a_debugger_finds_the_streams_as_they_were(run: Printing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    found: list[Any] = []
    monkeypatch.setattr(pdb.Pdb, "set_trace", lambda _, frame: found.append((sys.stdout, frame.f_code.co_name)))
    before, console = sys.stdout, Console(live=True)
    with leave_terminal_to_debuggers(console), run.as_rank(0):
        print("seen")
        breakpoint()
        assert sys.stdout is before
    assert found == [(before, test_a_debugger_finds_the_streams_as_they_were.__name__)]
    assert sys.breakpointhook is sys.__breakpointhook__
    assert run.lines(0) == [("out", "seen")]


def test_names_of_logs() -> None:
    assert [rank_of(output_log(rank)) for rank in (0, 7, 123)] == [0, 7, 123]
    assert [rank_of(name) for name in ("metrics", "rank-", "rank-x", "my-rank-1")] == [None] * 4


def test_what_is_to_be_kept_is_there_before_the_end(run: Printing) -> None:
    with run.as_rank(0) as printed:
        print("a stack")
        printed.keep()
        assert run.lines(0) == [("out", "a stack")]
