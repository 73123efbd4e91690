"""Why each attempt ended: what it said itself, what the controller saw of it, or how its driver ended."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pliant.storage.view import Claim
from pliant.track.causes import CAUSES, End, ends_of, waits_of


def claim(number: int, driver: int, began: float) -> Claim:
    return Claim(number, "driver" if number == driver else "group", driver, {"time": began})


def event(kind: str, time: float, text: str = "", *, attempt: int = 1, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "time": time, "text": text, "attempt": attempt, **fields}


def stopped(reason: str, detail: str = "") -> dict[str, Any]:
    return {"reason": reason, "detail": detail, "time": 0.0}


def test_every_way_to_end() -> None:
    claims = [claim(1, 1, 0), *(claim(n, 1, 100.0 * n) for n in range(2, 9))]
    stops = {2: stopped("preemption"), 3: stopped("resize"), 8: stopped("done"), 1: stopped("done")}
    events = [
        event("preemption", 250, "node a goes away in 30 s: saving, then leaving"),
        event("resize", 350, "room for 3 workers: saving, then leaving"),
        event("failure", 450, "rank 1 died: starting again", cause="infrastructure"),
        event("recovered", 515, "2 workers: …", cause="infrastructure", seconds={"detection": 4.0, "total": 60.0}),
        event("failure", 550, "ValueError: no", cause="user"),
        event("waiting", 560, "waiting for machines: 1 worker fits, elastic.min_workers is 2"),
        event("recovered", 725, "2 workers: …", cause="preemption", seconds={"total": 70.0}),
    ]
    assert ends_of(claims, stops, events, living=None) == {
        1: End(None, "done"),
        2: End("preemption", "preemption: node a goes away in 30 s: saving, then leaving"),
        3: End("resize", "resize: room for 3 workers: saving, then leaving"),
        4: End("infrastructure", "infrastructure: rank 1 died: starting again", 446.0),
        5: End("user", "user: ValueError: no", 550.0),
        6: End("preemption", "preemption", 655.0),
        7: End("infrastructure", "it ended without a word"),
        8: End(None, "done"),
    }
    assert waits_of(events, 1) == [560.0]
    assert waits_of(events, 2) == []


def test_the_last_group_ends_with_its_driver() -> None:
    claims = [claim(1, 1, 0), claim(2, 1, 1), claim(3, 3, 10), claim(4, 3, 11), claim(5, 5, 20), claim(6, 5, 21)]
    stops = {3: stopped("user", "error[user.failed] no\n  more"), 5: stopped("damage", "no intact checkpoint")}
    assert ends_of(claims, stops, [], living=None) == {
        1: End("driver", "it ended without a word"),
        2: End("driver", "its driver ended without a word"),
        3: End("user", "user: error[user.failed] no"),
        4: End("user", "user: error[user.failed] no"),
        5: End("infrastructure", "damage: no intact checkpoint"),
        6: End("infrastructure", "damage: no intact checkpoint"),
    }
    running = ends_of([*claims, claim(7, 7, 30), claim(8, 7, 31)], stops, [], living=7)
    assert running[7] == running[8] == End(None, "")
    assert ends_of([claim(1, 1, 0), claim(2, 1, 1)], {1: stopped("signal"), 2: stopped("signal")}, [], living=None) == {
        1: End("stop", "signal"),
        2: End("stop", "stopped"),
    }


def test_what_was_seen_of_one_group_says_nothing_of_another() -> None:
    claims = [claim(1, 1, 0), claim(2, 1, 10), claim(3, 1, 20), claim(4, 4, 40), claim(5, 4, 50)]
    events = [
        event("failure", 15, "rank 0 died", cause="infrastructure"),
        event("resize", 55, "room for 2 workers", attempt=4),
    ]
    ends = ends_of(claims, {}, events, living=4)
    assert ends[2] == End("infrastructure", "infrastructure: rank 0 died", 15.0)
    assert ends[3] == End("driver", "its driver ended without a word")
    assert ends[5] == End("resize", "resize: room for 2 workers", 55.0)  # it is leaving


_TIMES = st.floats(0, 100)
_EVENTS = st.lists(
    st.builds(
        event,
        st.sampled_from(["preemption", "resize", "failure", "waiting", "recovered", "system", "end"]),
        _TIMES,
        attempt=st.integers(1, 8),
        cause=st.sampled_from([*CAUSES, "?"]),
        seconds=st.fixed_dictionaries({}, optional={"detection": _TIMES, "total": _TIMES}),
    ),
    max_size=12,
).map(lambda events: sorted(events, key=lambda e: float(e["time"])))
_REASONS = st.sampled_from(["done", "user", "signal", "limit", "damage", "preemption", "resize", "infrastructure"])


@given(st.lists(st.tuples(st.booleans(), _TIMES), max_size=8), st.dictionaries(st.integers(1, 8), _REASONS), _EVENTS)
def test_whatever_the_record_says(
    attempts: list[tuple[bool, float]], reasons: dict[int, str], events: list[dict[str, Any]]
) -> None:
    claims: list[Claim] = []
    driver = 0
    for number, (is_driver, began) in enumerate(attempts, 1):
        driver = number if is_driver or not driver else driver
        claims.append(claim(number, driver, began))
    stops = {number: stopped(reason) for number, reason in reasons.items()}
    ends = ends_of(claims, stops, events, living=None)
    assert list(ends) == [one.number for one in claims]
    for number, end in ends.items():
        assert end.text
        assert (end.cause is None) == (reasons.get(number) == "done")
