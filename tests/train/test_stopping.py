"""What stops a driver, and when: signals in a process of their own, since they are about the whole process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from pliant.observe.board import STOP
from pliant.train.stopping import Stopping
from tests.command import ROOT

PROGRAM = """
import signal, sys, threading
from pliant.train.stopping import OutOfTime, Stopping

stopping = Stopping(lambda text: print(text, flush=True), term_within=float(sys.argv[1]))
asked = threading.Event()
try:
    with stopping.signals():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as a library may do when it starts
        stopping.arm()
        stopping.attach(lambda wish: (print("wish", wish, flush=True), asked.set()))
        print("ready", flush=True)
        asked.wait()
        if len(sys.argv) > 2:
            threading.Event().wait()
except KeyboardInterrupt:
    print("now")
except OutOfTime:
    print("out of time", stopping.time_left(8.0))
print(stopping.exit_code, stopping.causes)
"""


class Process:
    """The program above, and what it says."""

    def __init__(self, *arguments: str, under: tuple[str, ...] = ()) -> None:
        self._process = subprocess.Popen(
            [*under, sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True,
            env={"PYTHONPATH": str(ROOT / "platform")},
        )  # fmt: skip
        self.hear("ready")

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def hear(self, expected: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{expected}\n"

    def end(self) -> None:
        assert self._process.wait() == 0
        assert self._process.stdout is not None
        assert self._process.stdout.read() == ""


def test_ctrl_c_asks_once_and_ends_at_once_the_second_time() -> None:
    process = Process("25", "never ends")
    process.send(signal.SIGINT)
    process.hear("stopping after a checkpoint: SIGINT; press Ctrl-C again to stop at once")
    process.hear(f"wish {STOP}")
    process.send(signal.SIGINT)
    process.hear("now")
    process.hear("130 ['SIGINT']")
    process.end()


def test_sigterm_asks_once_and_is_resumable() -> None:
    process = Process("25")
    process.send(signal.SIGTERM)
    process.hear("stopping after a checkpoint: SIGTERM")
    process.hear(f"wish {STOP}")
    process.hear("75 ['SIGTERM']")
    process.end()


def test_the_terminals_end_stops_as_sigterm_does() -> None:
    process = Process("25")
    process.send(signal.SIGHUP)
    process.hear("stopping after a checkpoint: SIGHUP")
    process.hear(f"wish {STOP}")
    process.hear("75 ['SIGHUP']")
    process.end()


def test_where_the_terminals_end_is_ignored_it_stays_so() -> None:
    process = Process("25", under=("nohup",))
    process.send(signal.SIGHUP)
    process.send(signal.SIGTERM)
    process.hear("stopping after a checkpoint: SIGTERM")
    process.hear(f"wish {STOP}")
    process.hear("75 ['SIGTERM']")
    process.end()


def test_what_is_started_behind_the_shield_survives_the_terminal() -> None:
    stopping = Stopping(lambda text: None)
    code = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    with stopping.signals():
        for shield, expected in ((lambda: None, "False"), (stopping.shield, "True"), (stopping.arm, "False")):
            shield()
            assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == expected


def test_sigterm_does_not_wait_longer_than_it_may() -> None:
    process = Process("0.3", "never ends")
    process.send(signal.SIGTERM)
    process.hear("stopping after a checkpoint: SIGTERM")
    process.hear(f"wish {STOP}")
    process.hear("out of time 0.0")
    process.hear("75 ['SIGTERM']")
    process.end()


@pytest.mark.parametrize("early", [True, False], ids=["before there are workers", "while there are"])
def test_a_request_reaches_the_workers(early: bool) -> None:
    told: list[str] = []
    wishes: list[int] = []
    arrived = threading.Event()
    stopping = Stopping(told.append)
    assert not stopping.asked

    def ask() -> None:
        stopping.ask("request", "pliant stop, from pid 7 on host h")

    def attach() -> None:
        stopping.attach(lambda wish: (wishes.append(wish), arrived.set()))

    for step in (ask, attach) if early else (attach, ask):
        step()
    assert arrived.wait(30)
    assert wishes == [STOP]
    assert told == ["stopping after a checkpoint: pliant stop, from pid 7 on host h"]
    assert (stopping.asked, stopping.exit_code, stopping.time_left(8.0)) == (True, 75, 8.0)
