"""Logs: what is appended is read once, in order, whatever happened to writers and storage."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pliant.errors import DamageError, FencedError, StorageError
from pliant.storage.layout import CheckpointRef, Segment
from pliant.storage.logs import read_log, read_log_after
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.store import Store

NEVER = 3600.0


@pytest.fixture
def record(store: Store) -> RunRecord:
    return RunRecord.create(store, {})


@pytest.fixture
def local(local_store: Store) -> RunRecord:
    return RunRecord.create(local_store, {})


def entries(record: RunRecord, name: str = "metrics") -> list[tuple[int, int]]:
    """(attempt, x) of every entry that counts."""
    return [(e["attempt"], e["x"]) for e in read_log(record.store, record.view(), name)]


def keys(record: RunRecord) -> list[str]:
    return [o.key for o in record.store.list("logs")]


def test_append_flush_read(record: RunRecord) -> None:
    driver = record.claim_driver()
    log = LogWriter(record.store, driver, "metrics", every_s=NEVER)
    assert [log.append({"x": 1, "loss": 0.1}), log.append({"x": 2, "loss": float("nan")})] == [1, 2]
    assert entries(record) == []
    log.flush()
    log.flush()
    log.append({"x": 3, "name": "ä\n"})
    log.close()
    assert log.seq == 3
    assert entries(record) == [(1, 1), (1, 2), (1, 3)]
    read = list(read_log(record.store, record.view(), "metrics"))
    assert read[0] == {"x": 1, "loss": 0.1, "attempt": 1}
    assert read[2]["name"] == "ä\n"
    first = "logs/metrics/a000001-s0000000001.jsonl"
    assert keys(record) == ([first] if record.store.is_local else [first, first.replace("01.j", "03.j")])


def test_reading_on_from_any_entry_gives_the_rest(record: RunRecord) -> None:
    for _ in range(2):
        log = LogWriter(record.store, record.claim_driver(), "metrics", every_s=NEVER)
        for x in range(1, 6):
            log.append({"x": x})
            if x in (2, 3):
                log.flush()
        log.close()
    whole = [(attempt, seq) for attempt in (1, 2) for seq in range(1, 6)]
    for read in range(len(whole) + 1):
        positions: dict[int, int] = {}
        positions.update(whole[:read])
        rest = [(a, n, e["x"]) for a, n, e in read_log_after(record.store, record.view(), "metrics", positions)]
        assert rest == [(attempt, seq, seq) for attempt, seq in whole[read:]]


def test_what_is_no_json_is_refused_at_once(local: RunRecord) -> None:
    log = LogWriter(local.store, local.claim_driver(), "metrics", every_s=NEVER)
    with pytest.raises(TypeError):
        log.append({"x": object()})
    assert log.append({"x": 1}) == 1
    log.close()


def test_background_thread_writes(record: RunRecord) -> None:
    log = LogWriter(record.store, record.claim_driver(), "metrics", every_s=0.05)
    log.append({"x": 1})
    written = threading.Event()
    for _ in range(400):
        if entries(record) == [(1, 1)]:
            written.set()
            break
        threading.Event().wait(0.05)
    assert written.is_set()
    log.close()


def test_many_threads_append(record: RunRecord) -> None:
    log = LogWriter(record.store, record.claim_driver(), "events", every_s=0.01)

    def work(i: int) -> None:
        for n in range(200):
            log.append({"x": i * 1000 + n})

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert sorted(x for _, x in entries(record, "events")) == [i * 1000 + n for i in range(4) for n in range(200)]
    assert log.seq == 800


def test_steps_are_cut_at_the_restored_checkpoint_and_events_at_the_last_seen(record: RunRecord) -> None:
    driver = record.claim_driver()
    events = LogWriter(record.store, driver, "events", every_s=NEVER)
    events.append({"x": 0, "time": 1.0})
    events.flush()
    old = record.claim_group(driver.number)
    old.restore(None)
    log = LogWriter(record.store, old, "metrics", every_s=NEVER)
    old_events = LogWriter(record.store, old, "events", every_s=NEVER)
    for x in range(1, 6):
        log.append({"x": x})
        log.flush()
    old_events.append({"x": 50, "time": 2.0})
    old_events.flush()
    ref = CheckpointRef(3, old.number)
    record.store.put(ref.manifest, b"{}")

    new = record.claim_group(driver.number)
    decision = new.restore(ref, {"metrics": {"attempt": old.number, "seq": 3}})
    assert decision.logs == {"metrics": {2: 3}, "events": {1: 1, 2: 1}}
    # The stopped group continues: a put that was under way lands, further ones are refused.
    late = Segment("metrics", old.number, 6) if not record.store.is_local else None
    if late:
        record.store.put(late.key, b'{"x": 6}\n')
    for writer in (log, old_events):
        writer.append({"x": 99, "time": 3.0})
        with pytest.raises(FencedError):
            writer.flush()
    mine = LogWriter(record.store, new, "metrics", every_s=NEVER)
    mine.append({"x": 4})
    mine.close()
    events.append({"x": 51, "time": 1.5})
    events.close()
    assert entries(record) == [(2, 1), (2, 2), (2, 3), (3, 4)]
    assert entries(record, "events") == [(1, 0), (1, 51), (2, 50)], "the driver's events go on, merged by time"


def test_restore_further_back_keeps_older_attempts_entries(record: RunRecord) -> None:
    """Attempts 1, 2, 3 train on; attempt 4 goes back to a checkpoint of attempt 1, then 5 to one of attempt 4."""
    refs: dict[int, CheckpointRef] = {}
    logged: dict[int, int] = {}
    x = 0
    for number, back in ((1, None), (2, 1), (3, 2), (4, 1), (5, 4)):
        attempt = record.claim_driver()
        seq = {"metrics": {"attempt": back, "seq": logged[back]}} if back else {}
        attempt.restore(refs[back] if back else None, seq)
        log = LogWriter(record.store, attempt, "metrics", every_s=NEVER)
        for _ in range(2):
            x += 1
            log.append({"x": x})
        log.flush()
        refs[number], logged[number] = CheckpointRef(x, number), log.seq
        record.store.put(refs[number].manifest, b"{}")
        log.append({"x": -x})
        log.close()
    assert entries(record) == [(1, 1), (1, 2), (4, 7), (4, 8), (5, 9), (5, 10), (5, -10)]


def test_log_that_the_restored_checkpoint_does_not_mention(local: RunRecord) -> None:
    """Audit was on in attempt 1, off in attempt 2, whose checkpoint attempt 3 restores."""
    first = local.claim_driver()
    log = LogWriter(local.store, first, "audit", every_s=NEVER)
    log.append({"x": 1})
    log.append({"x": 2})
    log.close()
    one, two = CheckpointRef(1, 1), CheckpointRef(2, 2)
    local.store.put(one.manifest, b"{}")
    second = local.claim_driver()
    second.restore(one, {"audit": {"attempt": 1, "seq": 1}})
    local.store.put(two.manifest, b"{}")
    local.claim_driver().restore(two, {})
    assert entries(local, "audit") == [(1, 1)]


# ---------------------------------------------------------------- faults


def test_failed_write_keeps_entries_and_leaves_no_half_lines(
    record: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogWriter(record.store, record.claim_driver(), "metrics", every_s=NEVER)
    log.append({"x": 1})
    log.flush()
    full = StorageError("storage.full", "no space")

    def half(key: str, size: int, data: bytes) -> None:
        with open(record.store.local_path(key), "ab") as file:
            file.write(data[: len(data) // 2])
        raise full

    def refused(key: str, data: bytes) -> bool:
        raise full

    monkeypatch.setattr(record.store, "extend", half)
    monkeypatch.setattr(record.store, "put_if_absent", refused)
    log.append({"x": 2, "text": "y" * 1000})
    for _ in range(2):
        with pytest.raises(StorageError, match="no space"):
            log.flush()
    log.append({"x": 3})
    assert entries(record) == [(1, 1)], "a torn end is not an entry"
    monkeypatch.undo()
    log.close()
    assert entries(record) == [(1, 1), (1, 2), (1, 3)]


def test_write_whose_answer_was_lost_counts_once(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogWriter(record.store, record.claim_driver(), "metrics", every_s=NEVER)
    real = record.store.put_if_absent

    def unanswered(key: str, data: bytes) -> bool:
        real(key, data)
        raise StorageError("storage.unavailable", "no answer")

    monkeypatch.setattr(record.store, "put_if_absent", unanswered)
    log.append({"x": 1})
    with pytest.raises(StorageError):
        log.flush()
    monkeypatch.undo()
    log.append({"x": 2})
    log.close()
    assert entries(record) == [(1, 1), (1, 2)]


def test_background_failure_is_tried_again(local: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, real = threading.Event(), local.store.put_if_absent

    def refused(key: str, data: bytes) -> bool:
        tried.set()
        raise StorageError("storage.full", "no space")

    monkeypatch.setattr(local.store, "put_if_absent", real)
    driver = local.claim_driver()
    monkeypatch.setattr(local.store, "put_if_absent", refused)
    log = LogWriter(local.store, driver, "metrics", every_s=0.01)
    log.append({"x": 1})
    assert tried.wait(10)
    monkeypatch.undo()
    log.append({"x": 2})
    log.close()
    assert entries(local) == [(1, 1), (1, 2)]


def test_append_tells_that_the_run_was_taken_over(record: RunRecord) -> None:
    log = LogWriter(record.store, record.claim_driver(), "metrics", every_s=0.02)
    record.claim_driver()
    log.append({"x": 1})
    log._thread.join(20)
    with pytest.raises(FencedError):
        log.append({"x": 2})
    with pytest.raises(FencedError):
        log.close()
    assert keys(record) == []


def test_two_writers_of_one_log_are_noticed(record: RunRecord) -> None:
    driver = record.claim_driver()
    logs = [LogWriter(record.store, driver, "metrics", every_s=NEVER) for _ in range(2)]
    logs[0].append({"x": 1})
    logs[0].close()
    logs[1].append({"x": 2})
    with pytest.raises(DamageError, match="two writers"):
        logs[1].close()


def segment(record: RunRecord, first: int, content: bytes, name: str = "metrics") -> None:
    record.store.put(f"logs/{name}/a000001-s{first:010d}.jsonl", content)


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ({1: b'{"x":1}\n', 3: b'{"x":3}\n'}, "entries 2 to 2"),
        ({2: b'{"x":2}\n'}, "entries 1 to 1"),
        ({1: b'{"x":1}\n{"x"', 2: b'{"x":2}\n'}, "incomplete"),
        ({1: b'{"x":1}\n\x00\x00\n{"x":2}\n'}, "not JSON"),
        ({1: b'{"x":1}\n[]\n'}, "holds a list"),
    ],
)
def test_damage_in_the_middle_is_named(local: RunRecord, segments: dict[int, bytes], message: str) -> None:
    local.claim_driver()
    for first, content in segments.items():
        segment(local, first, content)
    with pytest.raises(DamageError, match=message) as error:
        entries(local)
    assert "logs/metrics" in error.value.location


def test_torn_end_is_ignored_and_a_missing_accepted_entry_is_damage(local: RunRecord) -> None:
    local.claim_driver()
    segment(local, 1, b'{"x":1}\n{"x":2}\n{"x":')
    assert entries(local) == [(1, 1), (1, 2)]
    ref = CheckpointRef(1, 1)
    local.store.put(ref.manifest, b"{}")
    local.claim_driver().restore(ref, {"metrics": {"attempt": 1, "seq": 2}})
    assert entries(local) == [(1, 1), (1, 2)]
    segment(local, 1, b'{"x":1}\n{"x":')
    with pytest.raises(DamageError, match="should have 2 entries"):
        entries(local)
    local.store.delete("logs/metrics/a000001-s0000000001.jsonl")
    with pytest.raises(DamageError, match="should have 2 entries"):
        entries(local)


def test_foreign_files_are_no_segments(local: RunRecord) -> None:
    local.claim_driver()
    segment(local, 1, b'{"x":1}\n')
    for name in (".nfs0001", "notes.txt", "a1-s1.jsonl"):
        Path(local.store.local_path(f"logs/metrics/{name}")).write_bytes(b"?")
    assert entries(local) == [(1, 1)]


def test_hundreds_of_segments_are_read_in_order(record: RunRecord) -> None:
    record.claim_driver()
    for first in range(1, 200):
        segment(record, first, b'{"x":%d}\n' % first)
    reading = read_log(record.store, record.view(), "metrics")
    assert next(reading)["x"] == 1
    assert [e["x"] for e in reading] == list(range(2, 200))
