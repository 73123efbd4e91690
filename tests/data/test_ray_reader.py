"""The Ray Data reader: the local reader's stream bit for bit, and what only Ray can do wrong."""

from __future__ import annotations

import json
import threading
from functools import partial

import pytest
import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from pliant.data import stream as stream_module
from pliant.data.lanes import open_stream
from pliant.data.memory import RayBudget, windows_ahead
from pliant.data.order import EpochOrder, window_permutation
from pliant.data.plan import Share
from pliant.data.reading import read_window
from pliant.errors import DamageError
from tests.data.shardkit import flip_data_byte
from tests.data.streams import CASES, RAGGED, THIRTEEN, expected_ids, open_at, settings, stream_ids, write_groups


@pytest.mark.ray
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize(("shards", "lanes", "global_batch", "steps"), CASES)
def test_ray_stream_is_the_same(ray_cluster, tmp_path, shards, lanes, global_batch, steps, world_size):
    manifest = write_groups(tmp_path, shards)
    plan = {"lanes": lanes, "global_batch": global_batch, "steps": steps, "position": 3}
    found = stream_ids(manifest, settings(manifest), world_size=world_size, reader="ray", **plan)
    assert found == expected_ids(manifest, window=2, **plan)


@pytest.mark.ray
def test_ray_gives_the_same_bits(ray_cluster, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("pliant.data.stream._SECOND_CHUNK", 1)  # executions of 2, 1, 4 and 16 windows
    manifest = write_groups(tmp_path, RAGGED)
    tables = []
    for reader in ("local", "ray"):
        with open_at(manifest, settings(manifest), lanes=2, reader=reader, row_ids=True, limit_epochs=4) as stream:
            rows = [(0, 1), (1, 30), (30, 200), (200, 223)]
            shares = [Share(e, lane, *span) for e in range(4) for span in rows for lane in (0, 1)]
            tables.append([stream.take(share) for share in shares])
            assert {t.schema for t in tables[-1]} == {stream.schema}
            with pytest.raises(ValueError, match="behind the end"):
                stream.take(Share(4, 0, 0, 1))
    assert tables[0] == tables[1]
    assert not ray_threads()
    assert "Dataset" not in "".join(capfd.readouterr())


def ray_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith(("pliant-ray", "StreamingExecutor"))]


@pytest.mark.ray
def test_damage_found_by_ray_tasks_names_shard_and_row_group(ray_cluster, tmp_path, capfd):
    manifest = write_groups(tmp_path, [[50, 50, 50]], use_dictionary=False)
    flip_data_byte(tmp_path / "part-00000.parquet", row_group=1)
    with open_at(manifest, settings(manifest, window=1), lanes=1, reader="ray") as stream:
        for _ in range(2):
            with pytest.raises(DamageError, match=r"part-00000\.parquet, row group 1.*CRC"):
                stream.take(Share(0, 0, 0, 150))
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.ray
def test_closing_a_ray_stream_frees_who_waits_and_ends_its_threads(ray_cluster, tmp_path):
    manifest = write_groups(tmp_path, [[10] * 40])
    stream = open_at(manifest, settings(manifest), lanes=2, reader="ray")
    stream.take(Share(0, 0, 0, 5))
    outcome: list[BaseException] = []

    def take_for_ever() -> None:
        try:
            for epoch in range(10_000):
                stream.take(Share(epoch, 0, 199, 200))
        except RuntimeError as error:
            outcome.append(error)

    taker = threading.Thread(target=take_for_ever)
    taker.start()
    stream.close()
    stream.close()
    taker.join(30)
    assert [str(e) for e in outcome] == ["the reader is closed"]
    assert not ray_threads()


@pytest.mark.ray
@pytest.mark.parametrize("look_ahead", [1, 16])
def test_ray_reads_no_further_ahead_than_the_memory_bound_allows(ray_cluster, tmp_path, monkeypatch, look_ahead):
    manifest = write_groups(tmp_path / "data", [[10] * 60])
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setattr(stream_module, "_read", partial(read_and_mark, marks))
    data = settings(manifest, window=1, look_ahead=look_ahead)
    ahead = RayBudget.within(windows_ahead(1, look_ahead), data.read.tasks).ahead
    with open_at(manifest, data, lanes=1, reader="ray", limit_epochs=1) as stream:
        for row in range(0, 400, 10):  # each share is one window
            stream.take(Share(0, 0, row, row + 10))
            assert len(list(marks.iterdir())) <= row // 10 + 1 + ahead


def read_and_mark(marks, spec, pieces, window, seed):
    (marks / f"{window.epoch}-{window.lane}-{window.index}").touch()
    return [read_window(spec, pieces, window_permutation(seed, window))]


@pytest.mark.ray
@pytest.mark.slow
def test_ray_train_workers_read_their_lanes(ray_cluster, tmp_path):
    manifest = write_groups(tmp_path / "data", THIRTEEN)
    trainer = TorchTrainer(
        read_in_worker,
        train_loop_config={"manifest": manifest, "out": tmp_path},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(name="readers", storage_path=str(tmp_path / "ray")),
    )
    trainer.fit()
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert sorted(found[0] + found[1]) == list(range(13))
    assert found[0] == stream_ids_of(manifest, lanes=(0, 2))


def read_in_worker(config) -> None:
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    opened = partial(open_stream, rank=rank, world_size=world_size, reader="ray")
    ids = read_lanes(config["manifest"], range(rank, 4, world_size), opened)
    (config["out"] / f"{rank}.json").write_text(json.dumps(ids))


def read_lanes(manifest, lanes, open_shard) -> list[int]:
    """Ids of the first epoch of four lanes, lane after lane."""
    order = EpochOrder(manifest.group_rows, seed=3, epoch=0, lanes=4, window=2)
    with open_shard(manifest=manifest, data=settings(manifest), seed=3, lanes=4, epoch=0, position=0) as stream:
        tables = [stream.take(Share(0, lane, 0, order.lane_rows(lane))) for lane in lanes]
    return [i for table in tables for i in table.column("id").to_pylist()]


def stream_ids_of(manifest, lanes) -> list[int]:
    return read_lanes(manifest, lanes, partial(open_stream, rank=0, world_size=1, reader="local"))
