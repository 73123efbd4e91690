"""When a raylet starts again, and what it is drained for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pliant.cluster.notice_agent import address_of
from pliant.cluster.notices import Notice
from pliant.cluster.raylet import blocking, shown
from pliant.cluster.respawn import Backoff, differs, most_urgent


@given(st.floats(0.1, 120), st.lists(st.floats(0, 300), max_size=50))
def test_the_wait_grows_while_raylets_do_not_last(first_s: float, lives_s: list[float]) -> None:
    backoff = Backoff(first_s)
    assert backoff.wait_s == first_s
    for lived_s in lives_s:
        before, backoff = backoff, backoff.after(lived_s)
        assert first_s <= backoff.wait_s <= max(60.0, first_s)
        if lived_s >= 60:
            assert backoff.wait_s == first_s
        else:
            assert backoff.wait_s >= before.wait_s
    assert backoff.fresh().wait_s == first_s


def test_the_wait_doubles_up_to_a_minute() -> None:
    backoff, waits = Backoff(1.0), []
    for _ in range(9):
        backoff = backoff.after(0.0)
        waits.append(backoff.wait_s)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e9)), min_size=1))
def test_the_earliest_deadline_is_the_most_urgent(deadlines: list[float | None]) -> None:
    found = most_urgent(Notice("preemption", "", deadline) for deadline in deadlines)
    assert found is not None
    known = [deadline for deadline in deadlines if deadline is not None]
    assert found.deadline == (min(known) if known else None)


def test_a_notice_is_over_when_the_machine_outlived_it() -> None:
    notice = Notice("preemption", "", 1000.0, slack_s=60.0)
    assert [notice.is_over(now) for now in (999.0, 1060.0, 1060.1)] == [False, False, True]
    assert not Notice("rebalance", "", None).is_over(1e12)


def test_ray_is_told_of_another_deadline() -> None:
    assert [differs(10.0, 10.9), differs(10.0, 12.0), differs(None, 10.0), differs(None, None)] == [
        False,
        True,
        True,
        False,
    ]


def test_the_address_stands_in_the_command() -> None:
    ray = ["ray", "start"]
    assert address_of([*ray, "--address=10.0.0.1:6379", "--num-cpus=1"]) == "10.0.0.1:6379"
    assert address_of([*ray, "--address", "[fd00::1]:6379"]) == "[fd00::1]:6379"
    for unknown in (["--head", "--port=6379"], ["--address=auto"], ["--address"], ["--address="]):
        assert address_of([*ray, *unknown]) == ""


def test_the_command_is_shown_without_its_password() -> None:
    assert shown(["ray", "start", "--redis-password=secret", "--head"]) == "ray start --redis-password=… --head"
    assert shown(["ray", "start", "--redis-password", "secret"]) == "ray start --redis-password …"


def test_the_command_blocks() -> None:
    assert blocking(["ray", "start"]) == ["ray", "start", "--block"]
    assert blocking(["ray", "start", "--block", "--head"]) == ["ray", "start", "--block", "--head"]
