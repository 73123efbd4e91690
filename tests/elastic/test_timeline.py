"""Seconds of a recovery by part."""

from __future__ import annotations

from pliant.elastic.timeline import Timeline


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_parts_add_up() -> None:
    clock = Clock()
    line = Timeline(clock)
    line.mark("load")  # the first start of a run is no recovery
    assert not line.active
    line.begin("teardown", detection_s=2.0)
    for part, seconds in (("placement", 1.0), ("start", 3.0), ("load", 4.0)):
        clock.now += seconds
        line.mark(part)  # type: ignore[arg-type]
    assert line.part == "load"
    clock.now += 10
    line.mark("first_step", ago_s=2.0)
    line.mark("replay", ago_s=0.5)
    assert line.end(ago_s=0.25) == {
        "detection": 2.0, "teardown": 1.0, "placement": 3.0, "start": 4.0, "load": 8.0, "first_step": 1.5,
        "replay": 0.25, "total": 19.75,
    }  # fmt: skip
    assert not line.active
    assert line.seconds == {}


def test_a_group_that_ends_before_it_got_on_prolongs_it() -> None:
    clock = Clock()
    line = Timeline(clock)
    line.begin("save")
    clock.now += 1
    line.mark("teardown")
    clock.now += 2
    line.mark("load")
    clock.now += 4
    line.begin("teardown")
    clock.now += 8
    assert line.end() == {"save": 1.0, "teardown": 10.0, "load": 4.0, "total": 15.0}
