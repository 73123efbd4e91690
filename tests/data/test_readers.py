"""The stream of rows: the same whatever reads it, wherever it begins, and nothing wrong in it."""

from __future__ import annotations

import threading
import uuid
from itertools import islice

import pyarrow as pa
import pytest

from pliant.data import local
from pliant.data.filesystem import dataset_filesystem
from pliant.data.manifest import build_manifest
from pliant.data.memory import memory_bound, windows_ahead
from pliant.data.plan import Share
from pliant.data.reading import ROW_COLUMN, ROW_GROUP_COLUMN
from pliant.errors import DamageError
from tests.data.streams import (
    CASES,
    RAGGED,
    SINGLE,
    batches,
    expected_ids,
    open_at,
    settings,
    stream_ids,
    write_groups,
)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize(("shards", "lanes", "global_batch", "steps"), CASES)
def test_local_stream_is_the_planned_one_at_every_worker_count(
    tmp_path, shards, lanes, global_batch, steps, world_size
):
    manifest = write_groups(tmp_path, shards)
    plan = {"lanes": lanes, "global_batch": global_batch, "steps": steps}
    found = stream_ids(manifest, settings(manifest), world_size=world_size, **plan)
    assert found == expected_ids(manifest, window=2, **plan)
    flat = [i for batch in found for i in batch]
    assert len(flat) > manifest.rows


def test_each_row_comes_once_an_epoch(tmp_path):
    manifest = write_groups(tmp_path, RAGGED)
    data = settings(manifest)
    with open_at(manifest, data, lanes=6, limit_epochs=1) as stream:
        ids = [
            i
            for lane in range(6)
            for i in stream.take(Share(0, lane, 0, (lane + 1) * 446 // 6 - lane * 446 // 6)).column("id").to_pylist()
        ]
        assert sorted(ids) == list(range(446))
        with pytest.raises(ValueError, match="behind the end of the stream"):
            stream.take(Share(1, 0, 0, 1))


@pytest.mark.parametrize("position", [1, 7, 129, 440, 445])
def test_stream_resumes_at_any_position_and_worker_count(tmp_path, position):
    manifest = write_groups(tmp_path, RAGGED)
    plan = {"lanes": 4, "global_batch": 12, "steps": 30, "position": position}
    expected = expected_ids(manifest, window=2, **plan)
    for world_size in (1, 3):
        assert stream_ids(manifest, settings(manifest), world_size=world_size, **plan) == expected


def test_resizes_in_mid_epoch_leave_the_stream_alone(tmp_path):
    manifest = write_groups(tmp_path, RAGGED)
    expected = expected_ids(manifest, window=2, lanes=4, global_batch=4, steps=100)
    found, position = [], 0
    for world_size, steps in ((4, 31), (3, 17), (2, 29), (1, 23)):
        found += stream_ids(
            manifest, settings(manifest), world_size=world_size, lanes=4, global_batch=4, steps=steps, position=position
        )
        position += 4 * steps
    assert found == expected


def test_row_ids_say_where_each_row_was_read(tmp_path):
    manifest = write_groups(tmp_path, RAGGED)
    starts = [0, *manifest.group_rows.cumsum().tolist()]
    with open_at(manifest, settings(manifest), lanes=2, row_ids=True) as stream:
        table = stream.take(Share(0, 1, 0, 223))
    assert table.schema.field(ROW_GROUP_COLUMN).type == pa.int32()
    assert table.schema.field(ROW_COLUMN).type == pa.int64()
    rows = zip(table.column(ROW_GROUP_COLUMN).to_pylist(), table.column(ROW_COLUMN).to_pylist(), strict=True)
    assert [starts[group] + row for group, row in rows] == table.column("id").to_pylist()
    assert table.column("tokens").to_pylist() == [[i + k for k in range(4)] for i in table.column("id").to_pylist()]


def test_without_shuffle_rows_come_in_manifest_order(tmp_path):
    manifest = write_groups(tmp_path, RAGGED)
    with open_at(manifest, settings(manifest), lanes=2, shuffle=False) as stream:
        assert stream.take(Share(0, 0, 0, 223)).column("id").to_pylist() == list(range(223))
        assert stream.take(Share(0, 1, 0, 223)).column("id").to_pylist() == list(range(223, 446))


def test_shares_may_skip_rows_and_never_go_back(tmp_path):
    manifest = write_groups(tmp_path, [[10] * 20])
    with open_at(manifest, settings(manifest), lanes=2, shuffle=False) as stream:
        assert stream.take(Share(0, 0, 57, 60)).column("id").to_pylist() == [57, 58, 59]
        assert stream.take(Share(2, 1, 99, 100)).column("id").to_pylist() == [199]
        assert stream.take(Share(1, 0, 0, 1)).column("id").to_pylist() == [0]
        with pytest.raises(ValueError, match="lies before row 0 of epoch 1"):
            stream.take(Share(0, 0, 60, 61))
        assert stream.empty().schema == stream.schema
        assert stream.empty().num_rows == 0


class Reads:
    """Records every window that is read, and can hold reading back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.windows: list[tuple[int, int]] = []
        self.begun = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()

        def read(self_, window):
            with self.begun:
                self.windows.append((window.epoch, window.lane))
                self.begun.notify_all()
            self.gate.wait()
            return original(self_, window)

        original = local.LocalReader._read
        monkeypatch.setattr(local.LocalReader, "_read", read)

    def wait_for(self, count: int) -> None:
        with self.begun:
            assert self.begun.wait_for(lambda: len(self.windows) >= count, timeout=30)


def test_nothing_is_read_before_the_first_batch_but_one_window_a_lane(tmp_path, monkeypatch):
    manifest = write_groups(tmp_path, [[10] * 40])
    reads = Reads(monkeypatch)
    with open_at(manifest, settings(manifest), lanes=4, position=77) as stream:
        reads.wait_for(4)
        for lane in range(3):
            stream.take(Share(0, lane, 19 + (lane == 0), 20 + (lane == 0)))
        assert sorted(reads.windows) == [(0, 0), (0, 1), (0, 2), (0, 3)]
        stream.take(Share(0, 3, 19, 20))
        reads.wait_for(8)  # now one more of each is read ahead


def test_next_epochs_windows_are_read_while_this_one_ends(tmp_path, monkeypatch):
    manifest = write_groups(tmp_path, [[10] * 8])  # two lanes of two windows
    reads = Reads(monkeypatch)
    with open_at(manifest, settings(manifest), lanes=2) as stream:
        for lane in (0, 1):
            stream.take(Share(0, lane, 0, 20))
        for lane in (0, 1):
            stream.take(Share(0, lane, 20, 21))
        reads.wait_for(6)
        assert reads.windows[4:] == [(1, 0), (1, 1)]


@pytest.mark.parametrize("look_ahead", [0, 1, 3])
def test_memory_stays_within_the_bound_computed_before_start(tmp_path, look_ahead):
    manifest = write_groups(tmp_path, [[100, 37, 5], [80, 61], [100, 99]], tokens=500)
    data = settings(manifest, look_ahead=look_ahead)
    bound = memory_bound(manifest=manifest, data=data, lanes=4, world_size=1, global_batch=40)
    before = pa.total_allocated_bytes()
    with open_at(manifest, data, lanes=4) as stream:
        source = stream._source
        most = 0
        for _ in islice(batches([stream], rows=manifest.rows, lanes=4, global_batch=40), 100):
            assert pa.total_allocated_bytes() - before <= bound
            most = max(most, source._held + len(source._pending))
        assert 4 < most <= 4 + windows_ahead(4, look_ahead)


def test_several_windows_in_one_share(tmp_path):
    manifest = write_groups(tmp_path, [[1] * 60])
    plan = {"lanes": 2, "global_batch": 50, "steps": 6}
    data = settings(manifest, look_ahead=0)
    assert stream_ids(manifest, data, world_size=2, **plan) == expected_ids(manifest, window=2, **plan)


def reading_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("pliant-read")]


def test_close_leaves_no_thread_and_may_come_twice(tmp_path):
    manifest = write_groups(tmp_path, RAGGED)
    stream = open_at(manifest, settings(manifest, threads=3), lanes=8)
    stream.take(Share(0, 0, 0, 1))
    assert reading_threads()
    stream.close()
    stream.close()
    assert not reading_threads()
    with pytest.raises(RuntimeError, match="closed"):
        stream.take(Share(0, 0, 1, 56))


def test_close_frees_a_thread_that_waits_for_rows(tmp_path, monkeypatch):
    manifest = write_groups(tmp_path, [[10] * 40])
    reads = Reads(monkeypatch)
    reads.gate.clear()
    stream = open_at(manifest, settings(manifest, threads=1), lanes=4)
    outcome: list[BaseException] = []

    def take() -> None:
        try:
            for lane in range(4):
                stream.take(Share(0, lane, 0, 1))
        except RuntimeError as error:
            outcome.append(error)

    taker = threading.Thread(target=take)
    taker.start()
    reads.wait_for(1)
    closer = threading.Thread(target=stream.close)
    closer.start()
    reads.gate.set()
    for thread in (closer, taker):
        thread.join(30)
        assert not thread.is_alive()
    assert [str(e) for e in outcome] == ["the reader is closed"]


def test_errors_of_reading_threads_surface_at_take_every_time(tmp_path, monkeypatch):
    manifest = write_groups(tmp_path, RAGGED)
    monkeypatch.setattr(local, "read_window", lambda *a, **k: (_ for _ in ()).throw(MemoryError("none left")))
    with open_at(manifest, settings(manifest), lanes=4) as stream:
        for _ in range(2):
            with pytest.raises(MemoryError, match="none left"):
                stream.take(Share(0, 0, 0, 1))


def test_more_workers_than_lanes_are_refused(tmp_path):
    manifest = write_groups(tmp_path, SINGLE)
    with pytest.raises(Exception, match="3 workers over 2 lanes"):
        open_at(manifest, settings(manifest), lanes=2, world_size=3)


def test_shards_on_s3_are_read_alike(tmp_path, s3_server):
    manifest = write_groups(tmp_path, RAGGED)
    uri = s3_server.uri(f"t-{uuid.uuid4().hex}/shards")
    filesystem, root = dataset_filesystem(uri)
    for file in manifest.files:
        with filesystem.open_output_stream(f"{root}/{file.path}") as sink:
            sink.write((tmp_path / file.path).read_bytes())
    remote = build_manifest(uri)
    assert remote.digest == manifest.digest
    plan = {"lanes": 4, "global_batch": 8, "steps": 70, "world_size": 2}
    assert stream_ids(remote, settings(remote), **plan) == stream_ids(manifest, settings(manifest), **plan)
    filesystem.delete_file(f"{root}/{manifest.files[1].path}")
    with pytest.raises(DamageError, match=r"s3://.*part-00001\.parquet, row group \d.*no longer there"):
        stream_ids(remote, settings(remote), **plan)
