"""The bound on the time without progress."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.elastic.gate import Gate, Report
from pliant.elastic.watchdog import FIRST_S, FLOOR_S, SLOWER, Watchdog

STEADY = replace(Gate().report(), phase="training", slowest_s=20.0, step=7, open_s=90.0, stepped_s=80.0, idle_s=0.0)


@pytest.mark.parametrize(
    ("report", "timeout_s", "bound_s"),
    [
        (STEADY, None, SLOWER * 20),
        (replace(STEADY, slowest_s=0.1), None, FLOOR_S),
        (replace(STEADY, stepped_s=None), None, FIRST_S),
        (replace(STEADY, phase="leaving"), None, SLOWER * 20 + 600),
        (replace(STEADY, waiting="storage: 503"), None, SLOWER * 20 + 600),
        (STEADY, 45.0, 45.0),
        (replace(STEADY, stepped_s=None), 45.0, 45.0),
    ],
)
def test_the_bound_follows_what_was_seen(report: Report, timeout_s: float | None, bound_s: float) -> None:
    now = 0.0
    watchdog = Watchdog(timeout_s, patience_s=600, clock=lambda: now)
    now = 10_000.0
    assert watchdog.bound_s(report) == bound_s
    assert watchdog.check(replace(report, idle_s=bound_s - 5), age_s=4) == ""
    assert f"{bound_s:.0f} s are allowed" in watchdog.check(replace(report, idle_s=bound_s - 5), age_s=6)


def test_it_is_armed_before_the_first_report() -> None:
    now = 0.0
    watchdog = Watchdog(60.0, 0.0, clock=lambda: now)
    now = 50.0
    watchdog.begin()
    now = 109.0
    assert watchdog.check(None, 0.0) == ""
    now = 111.0
    assert (
        watchdog.check(None, 0.0)
        == "no progress for 61 s before the first report, 60 s are allowed (elastic.stall_timeout)"
    )


def test_it_says_where() -> None:
    now = 0.0
    watchdog = Watchdog(10.0, 0.0, clock=lambda: now)
    now = 100.0
    assert "after step 7" in watchdog.check(replace(STEADY, idle_s=11), 0.0)
    assert "before the first step" in watchdog.check(replace(STEADY, stepped_s=None, idle_s=11), 0.0)


def test_a_process_that_stood_by_has_not_stood_still() -> None:
    now = 0.0
    watchdog = Watchdog(60.0, 0.0, clock=lambda: now)
    now = 5_000.0
    watchdog.begin()
    now = 5_050.0
    stood_by = replace(STEADY, phase="starting", open_s=None, stepped_s=None, idle_s=5_000.0)
    assert watchdog.check(stood_by, 0.0) == ""
    now = 5_061.0
    assert "no progress for 61 s before the first step" in watchdog.check(stood_by, 0.0)
