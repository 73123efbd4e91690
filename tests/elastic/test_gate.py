"""The gate: ranks that are asked to leave leave at the same piece of work, wherever they are."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.elastic.gate import Gate


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Callable[[], float] | None = None) -> Gate:
    gate = Gate(clock) if clock else Gate()
    gate.open(step=0)
    return gate


def test_nothing_stops_a_loop_that_nobody_asks() -> None:
    gate = opened()
    assert [gate.enter() for _ in range(3)] == [True] * 3
    assert not gate.leaving


def test_a_loop_that_has_not_begun_has_nothing_to_leave() -> None:
    assert Gate().hold() is None


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_ranks_leave_at_the_same_tick(ahead: list[int]) -> None:
    gates = [opened() for _ in ahead]
    for gate, ticks in zip(gates, ahead, strict=True):
        assert all(gate.enter() for _ in range(ticks))
    held = [gate.hold() for gate in gates]
    assert held == ahead
    for gate in gates:
        gate.stop_at(max(ahead), "preemption")
    for gate, ticks in zip(gates, ahead, strict=True):
        assert [gate.enter() for _ in range(max(ahead) - ticks)] == [True] * (max(ahead) - ticks)
        assert gate.leaving
        assert not gate.enter()


def entering(gate: Gate) -> tuple[threading.Thread, list[bool]]:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(gate.enter()))
    thread.start()
    return thread, answers


def test_a_held_gate_lets_nobody_in_until_the_tick_is_known() -> None:
    gate = opened()
    assert gate.hold() == 0
    thread, answers = entering(gate)
    thread.join(0.05)
    assert thread.is_alive()
    assert not gate.leaving
    gate.stop_at(1, "resize")
    thread.join()
    assert answers == [True]
    assert gate.cause == "resize"
    assert not gate.enter()


def test_released_the_loop_goes_on() -> None:
    gate = opened()
    gate.hold()
    thread, answers = entering(gate)
    gate.release()
    thread.join()
    assert answers == [True]
    assert gate.enter()


def test_what_is_asked_twice_counts_once() -> None:
    gate = opened()
    gate.enter()
    assert [gate.hold(), gate.hold()] == [1, 1]
    gate.stop_at(1, "preemption")
    gate.stop_at(1, "preemption")
    assert not gate.enter()


def test_a_report_tells_ages_and_means() -> None:
    clock = Clock()
    gate = Gate(clock)
    assert gate.report().phase == "starting"
    clock.now += 5
    assert gate.report().idle_s == 5
    gate.open(step=40)
    for step, seconds in ((41, 1.0), (42, 3.0)):
        assert gate.enter()
        clock.now += seconds
        gate.stepped(step, seconds)
    clock.now += 7
    gate.saved(0.5)
    clock.now += 2
    report = gate.report()
    assert (report.phase, report.tick, report.first_step, report.step) == ("training", 2, 40, 42)
    assert (report.step_s, report.save_s, report.slowest_s, report.idle_s) == (2.0, 0.5, 7.0, 2.0)
    assert (report.open_s, report.stepped_s) == (13.0, 12.0)
    gate.hold()
    gate.stop_at(2, "preemption")
    assert gate.report().phase == "leaving"


def test_what_is_waited_for_stands_until_there_is_progress() -> None:
    clock = Clock()
    gate = opened(clock)
    clock.now += 50
    gate.wait_for("storage: 503")
    assert (gate.report().waiting, gate.report().idle_s) == ("storage: 503", 0.0)
    gate.enter()
    assert gate.report().waiting == ""


@pytest.mark.parametrize("function", ["hold", "report"])
def test_a_fresh_gate_takes_the_place_of_the_one_before(function: str) -> None:
    from pliant.elastic import gate as module

    first = module.install()
    first.open(step=3)
    module.install()
    assert getattr(module, function)() != getattr(first, function)()


def test_stacks_are_printed_for_every_thread_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    from pliant.elastic.gate import dump_stacks, install

    kept = threading.Event()
    install().keep_printed = kept.set
    asleep = threading.Event()
    thread = threading.Thread(target=asleep.wait, name="TrainingThread(loop)")
    thread.start()
    place = dump_stacks()
    asleep.set()
    thread.join()
    assert kept.is_set()
    told = capsys.readouterr().err
    assert "thread MainThread:" in told
    assert "thread TrainingThread(loop):" in told
    assert place.endswith("in wait")
    assert "threading.py:" in place
