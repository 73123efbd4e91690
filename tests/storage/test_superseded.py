"""What was written and does not count can still be read: what is lost and what counts are together all there is."""

from __future__ import annotations

from pliant.storage.layout import CheckpointRef, Segment
from pliant.storage.logs import last_written, read_log, read_superseded
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.store import Store

LOG = "metrics"


def group(record: RunRecord, checkpoint: CheckpointRef | None, seq: int) -> LogWriter:
    """A driver and a group of it that goes on after ``seq`` entries of the checkpoint's attempt."""
    attempt = record.claim_group(record.claim_driver().number)
    logs = {LOG: {"attempt": checkpoint.attempt, "seq": seq}} if checkpoint else {}
    attempt.restore(checkpoint, logs)
    return LogWriter(record.store, attempt, LOG, every_s=600.0)


def write(log: LogWriter, first: int, last: int) -> None:
    """Steps, in segments of two where the storage has segments."""
    for step in range(first, last + 1):
        log.append({"step": step})
        if step % 2 == 0:
            log.flush()
    log.close()


def pairs(entries: object) -> list[tuple[int, int]]:
    return [(entry["attempt"], entry["step"]) for entry in entries]  # type: ignore[attr-defined]


def test_lost_and_counting_entries_are_all_there_is(store: Store) -> None:
    record = RunRecord.create(store, {"name": "run"})
    first = group(record, None, 0)
    write(first, 1, 9)
    saved = CheckpointRef(5, 2)
    store.put(saved.manifest, b"{}")
    assert pairs(read_superseded(store, record.view(), LOG)) == []

    before = record.view()
    write(group(record, saved, 5), 6, 8)
    view = record.view()
    assert pairs(read_log(store, view, LOG)) == [(2, s) for s in range(1, 6)] + [(4, s) for s in range(6, 9)]
    assert pairs(read_superseded(store, view, LOG)) == [(2, s) for s in range(6, 10)]
    assert pairs(read_superseded(store, before, LOG)) == []  # it knows nothing of the later attempt

    write(group(record, None, 0), 1, 2)
    assert pairs(read_log(store, record.view(), LOG)) == [(6, 1), (6, 2)]
    lost = [(2, s) for s in range(1, 10)] + [(4, s) for s in range(6, 9)]
    assert pairs(read_superseded(store, record.view(), LOG)) == lost


def test_the_newest_entry_of_each_attempt_whether_it_counts_or_not(store: Store) -> None:
    record = RunRecord.create(store, {"name": "run"})
    assert last_written(store, LOG) == {}
    write(group(record, None, 0), 1, 9)
    saved = CheckpointRef(5, 2)
    store.put(saved.manifest, b"{}")
    write(group(record, saved, 5), 6, 7)
    group(record, saved, 5).close()  # wrote nothing
    store.put_if_absent(Segment(LOG, 8, 1).key, b'{"step":8}\n{"ste')
    store.put_if_absent(Segment(LOG, 9, 1).key, b"nonsense\n")
    assert last_written(store, LOG) == {2: {"step": 9}, 4: {"step": 7}, 8: {"step": 8}}
    assert pairs(read_log(store, record.view(), LOG, of={4})) == []  # the newest attempt started from step 5
    assert pairs(read_log(store, record.view(), LOG, of={2})) == [(2, step) for step in range(1, 6)]


def test_a_lost_line_that_cannot_be_read_is_passed_over(store: Store) -> None:
    record = RunRecord.create(store, {"name": "run"})
    record.claim_group(record.claim_driver().number)
    store.put_if_absent(Segment(LOG, 2, 1).key, b'{"step":1}\nnonsense\n{"step":3}\n{"ste')
    write(group(record, None, 0), 1, 1)
    assert pairs(read_superseded(store, record.view(), LOG)) == [(2, 1), (2, 3)]
