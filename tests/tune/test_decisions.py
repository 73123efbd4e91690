"""The decision log: durable before anyone acts, read back as it was written, refused when it is damaged."""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from pliant.errors import DamageError, FencedError
from pliant.storage.attempts import Attempt
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.tune.decisions import (
    DecisionLog,
    DecisionReader,
    Difference,
    from_dict,
    open_log,
    read_decisions,
    read_entries,
    replay,
    to_dict,
    verify,
)
from pliant.tune.sweep import Sweep
from pliant.tune.types import (
    Change,
    Close,
    Decision,
    End,
    Entry,
    Halt,
    Loss,
    Report,
    Resize,
    Suggestion,
)
from tests.s3 import S3Server
from tests.tune.sweeps import Killed, Log, build, settings, simulation, uninterrupted

EVERY_KIND: list[Entry] = [
    Change(settings("asha").model_dump(mode="json"), {"space": {"optim.lr": {"log": [1e-4, 1e-2]}}}),
    Suggestion("t0000", 0, {"optim.lr": 0.1 + 0.2, "schedule.kind": "wsd", "model.bias": True, "model.depth": 3}, "ä"),
    Report("t0000", 128, None, {"loss": None, "accuracy": 1 / 3}, 12.5, 2),
    Decision("t0000", 128, "exploit", "4th of 4", {"optim.lr": 1e-9}, "t0001", 160),
    Loss("t0000", "user", "ValueError\n  at line 3", "ValueError: x", 0.1),
    Resize("t0000", 4, "it leads"),
    Close("nothing is left"),
    Halt("plateau", "3 trials"),
    End("t0000", "out-of-memory", 128, "killed", "oom", 3.0),
]


@pytest.fixture(params=["local", "s3"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> RunRecord:
    """A sweep's record, on a local path and on S3."""
    uri = str(tmp_path / "sweep")
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        uri = server.uri(f"t-{uuid.uuid4().hex}")
    return RunRecord.create(Store(uri, StorageSettings()), {"kind": "sweep"})


@pytest.fixture
def local(tmp_path: Path) -> RunRecord:
    return RunRecord.create(Store(str(tmp_path / "sweep"), StorageSettings()), {"kind": "sweep"})


def begin(record: RunRecord) -> tuple[DecisionLog, list[Entry], Attempt]:
    attempt = record.claim_driver()
    return *open_log(record, attempt), attempt


def run(record: RunRecord, *, most: int | None = None) -> Sweep:
    """A driver: replays, and runs to the end, or until it is killed once so many entries are durable."""
    log, before, _ = begin(record)
    left = [10**9 if most is None else most]

    def keep(entries: Sequence[Entry]) -> None:
        log.record(entries[: left[0]])
        left[0] -= len(entries)
        if left[0] < 0:
            raise Killed

    sweep = build(settings("halving", trials=9), record=keep)
    replay(before, sweep)
    try:
        sweep.begin()
        simulation().run(sweep)
    finally:
        log.close()
    return sweep


def segments(record: RunRecord) -> list[Path]:
    return sorted(record.store.local_path("logs/decisions").iterdir())


@pytest.mark.parametrize("entry", EVERY_KIND, ids=lambda entry: type(entry).__name__)
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    assert from_dict(to_dict(entry)) == entry


def test_no_kind_of_entry_is_missing() -> None:
    assert len({type(entry) for entry in EVERY_KIND}) == len(EVERY_KIND) == len(Entry.__args__)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"kind": "wish"}, "kind 'wish' is unknown"),
        ({"trial": "t0000"}, "kind None is unknown"),
        ({"kind": "close", "why": "x", "trial": "t0000"}, "close has no trial"),
        ({"kind": "close"}, "missing 1 required"),
    ],
)
def test_what_is_no_entry_is_refused(value: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        from_dict(value)


def test_what_is_recorded_is_durable_when_record_returns(record: RunRecord) -> None:
    log, before, attempt = begin(record)
    assert before == []
    for number, entry in enumerate(EVERY_KIND, 1):
        log.record([entry])
        assert read_entries(record) == EVERY_KIND[:number]
    log.record(EVERY_KIND)
    log.close()
    read = list(read_decisions(record))
    assert [logged.entry for logged in read] == EVERY_KIND * 2
    assert {logged.attempt for logged in read} == {attempt.number}
    assert read[0].time <= read[-1].time


def test_drivers_follow_each_other(record: RunRecord) -> None:
    for number in range(3):
        log, before, _ = begin(record)
        assert before == EVERY_KIND * number
        log.record(EVERY_KIND)
        log.close()
    assert [logged.attempt for logged in read_decisions(record)] == [n for n in (1, 2, 3) for _ in EVERY_KIND]


def test_a_reader_that_goes_on_reads_each_entry_once(record: RunRecord) -> None:
    reader = DecisionReader(record)
    assert list(reader.read(record.view())) == []
    every = []
    for _ in range(2):  # drivers
        log, _, _ = begin(record)
        for entry in EVERY_KIND:
            log.record([entry])
            new = list(reader.read(record.view()))
            assert [logged.entry for logged in new] == [entry]
            every += new
        log.close()
    assert list(reader.read(record.view())) == []
    assert every == list(read_decisions(record))


def test_a_driver_that_was_replaced_can_decide_nothing_more(record: RunRecord) -> None:
    old, _, _ = begin(record)
    old.record(EVERY_KIND[:2])
    new, before, _ = begin(record)
    assert before == EVERY_KIND[:2]
    with pytest.raises(FencedError, match="must stop writing"):
        old.record(EVERY_KIND[2:4])
    new.record(EVERY_KIND[4:5])
    new.close()
    assert read_entries(record) == [*EVERY_KIND[:2], EVERY_KIND[4]]


def test_what_a_stopped_driver_still_writes_does_not_count(local: RunRecord) -> None:
    old, _, _ = begin(local)
    old.record(EVERY_KIND[:2])
    old.close()
    stale = segments(local)[0]
    new, _, _ = begin(local)
    lines = stale.read_bytes()
    stale.write_bytes(lines + lines.splitlines(keepends=True)[-1])  # it had passed its check before it was stopped
    new.record(EVERY_KIND[3:4])
    new.close()
    assert read_entries(local) == [*EVERY_KIND[:2], EVERY_KIND[3]]


def test_a_sweep_whose_driver_is_killed_goes_on_from_its_log(record: RunRecord) -> None:
    whole, log = uninterrupted(settings("halving", trials=9), simulation())
    for most in (5, 1, 11):
        with pytest.raises(Killed):
            run(record, most=most)
    again = run(record)
    assert read_entries(record) == log.entries
    assert again.best == whole.best


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_torn_line_at_the_end_does_not_count(local: RunRecord, cut: int) -> None:
    _, log = uninterrupted(settings("halving", trials=9), simulation())
    with pytest.raises(Killed):
        run(local, most=30)
    newest = segments(local)[-1]
    newest.write_bytes(newest.read_bytes()[:-cut])
    assert read_entries(local) == log.entries[:29]
    run(local)
    assert read_entries(local) == log.entries


def _zeros(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], bytes(len(lines[4])), *lines[5:]]


def _digit(lines: list[bytes]) -> list[bytes]:
    other = lines[4].replace(b'"time":1', b'"time":2')
    assert other != lines[4]
    return [*lines[:4], other, *lines[5:]]


def _missing(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], *lines[5:]]


def _swapped(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], lines[5], lines[4], *lines[6:]]


@pytest.mark.parametrize("damage", [_zeros, _digit, _missing, _swapped])
@pytest.mark.parametrize("segment", [0, -1], ids=["an older segment", "the newest segment"])
def test_a_damaged_log_is_refused_and_named(local: RunRecord, damage: object, segment: int) -> None:
    for most in (12, 12):
        with pytest.raises(Killed):
            run(local, most=most)
    file = segments(local)[segment]
    file.write_bytes(b"".join(damage(file.read_bytes().splitlines(keepends=True))))
    kept = [(path, path.read_bytes()) for path in segments(local)]
    with pytest.raises(DamageError, match="damaged") as caught:
        run(local)
    assert caught.value.code == "sweep.log-damaged"
    assert "logs/decisions" in caught.value.location
    assert "never started over" in caught.value.hint
    assert [(path, path.read_bytes()) for path in segments(local)] == kept
    assert local.stop_of(3)["reason"] == "damage"


def test_a_log_that_is_gone_is_refused(local: RunRecord) -> None:
    with pytest.raises(Killed):
        run(local, most=12)
    local.store.child("trials/t0000").put("run.json", b"{}")
    for file in segments(local):
        file.unlink()
    with pytest.raises(DamageError, match="is gone, and there is a run of its trials"):
        run(local)


def test_a_log_in_which_something_does_not_follow_is_told(local: RunRecord) -> None:
    _, log = uninterrupted(settings("halving", trials=9), simulation())

    def difference(entries: Sequence[Entry]) -> Difference | None:
        return verify(entries, lambda own, space: build(own))

    entries = log.entries
    assert difference(entries) is None
    stop = next(n for n, e in enumerate(entries) if isinstance(e, Decision) and e.action == "stop")
    resumed = dataclasses.replace(entries[stop], action="resume")
    found = difference([*entries[:stop], resumed, *entries[stop + 1 :]])
    assert found == Difference(stop + 1, resumed, entries[stop])
    assert '"action": "resume"' in str(found)
    assert '"action": "stop"' in str(found)
    left_out = difference([*entries[:stop], *entries[stop + 1 :]])
    assert left_out is not None
    assert (left_out.number, left_out.expected) == (stop + 1, entries[stop])
    suggestion = next(n for n, e in enumerate(entries) if isinstance(e, Suggestion))
    other = dataclasses.replace(entries[suggestion], params={**entries[suggestion].params, "optim.lr": 0.05})
    found = difference([*entries[:suggestion], other, *entries[suggestion + 1 :]])
    assert found == Difference(suggestion + 1, other, entries[suggestion])
    twice = difference([*entries[: stop + 1], entries[stop]])
    assert twice is not None
    assert twice.number == stop + 2


def test_a_sweep_that_was_extended_and_narrowed_can_be_verified() -> None:
    log, narrowed = Log(), {"space": {"optim.lr": [0.001, 0.01]}}
    machines = simulation(slots=2)
    sweep = build(settings("none", trials=4), record=log.record)
    sweep.begin()
    machines.run(sweep)
    more = settings("none", trials=6)
    asked = []

    def other(own: object, space: object) -> Sweep:
        asked.append(space)
        return build(settings("none", trials=own.trials, searcher="grid" if space else "random"))

    again = build(settings("none", trials=6, searcher="grid"), record=log.record)
    replay(log.entries, again)
    again.begin(more, narrowed)
    machines.run(again)
    assert len(again.trials) >= 6
    assert verify(log.entries, other) is None
    assert asked == [None, narrowed]
    assert verify(log.entries, lambda own, space: build(own)) is not None
