"""The memory of a rank, added up: what the parts come to, and what a worker may take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.settings import RunConfig
from pliant.train.capacity import Room, container_limit, machine_room, rooms
from pliant.train.memory import (
    HELD_ACTIVATIONS,
    HELD_ALONE,
    HELD_IN_GROUP,
    HELD_RECOMPUTED,
    MAPPED_BYTES,
    Activations,
    ModelSize,
    Parameter,
    Work,
    rank_memory,
)

LARGE = 4096
"""A square matrix of this side is above what the allocator holds back."""
WORK = Work(
    workers=1, micro_batches=4, micro_batch=2, rows=8, evaluation_rows=0, prefetch=2, reduction="exact",
    compute_bytes=4, recomputes=False, optimizer="adamw", momentum=False, gpu=False, stream_bytes=1000,
    evaluation_stream_bytes=0,
)  # fmt: skip


def model(side: int = LARGE, blocks: int = 8) -> ModelSize:
    return ModelSize((Parameter((side,)),), tuple((Parameter((side, side)),) for _ in range(blocks)))


@given(rows=st.integers(1, 300), columns=st.integers(1, 5), workers=st.integers(1, 40))
def test_the_largest_shard_is_that_of_the_first_rank(rows: int, columns: int, workers: int) -> None:
    shard = Parameter((rows, columns)).shard_numel(workers)
    assert shard * workers >= rows * columns
    assert (shard // columns - 1) * workers < rows


def test_a_large_model_part_by_part() -> None:
    numbers = 8 * LARGE * LARGE + LARGE
    found = rank_memory(model(), WORK, Activations(train_bytes=7000, row_bytes=10)).host
    parts = found.parts
    block = LARGE * LARGE
    assert found.name == "backward"
    assert parts["optimizer"] == 2 * 4 * numbers
    assert parts["checkpoint"] == 3 * 4 * numbers
    assert parts["parameters"] == 4 * numbers + 4 * (block + LARGE)
    assert 8 * numbers < parts["gradients"] < 8 * numbers + 8 * 3 * block
    assert parts["activations"] == 7000
    assert parts["data"] == 1000 + 10 * 8 * 4
    assert parts["allocator"] == HELD_ALONE * 4 * LARGE
    assert found.bytes == sum(parts.values())


@given(workers=st.integers(2, 64), reduction=st.sampled_from(["exact", "fast"]), kind=st.sampled_from(["adamw", "sgd"]))
def test_more_workers_never_take_more_of_a_large_model(workers: int, reduction: str, kind: str) -> None:
    work = replace(WORK, reduction=reduction, optimizer=kind)
    here, more = (rank_memory(model(), replace(work, workers=w), Activations()).host for w in (workers, 2 * workers))
    assert more.bytes <= here.bytes


def test_exact_holds_eight_bytes_a_parameter_whatever_the_workers_and_fast_four() -> None:
    for workers in (2, 8):
        exact, fast = (
            rank_memory(model(), replace(WORK, workers=workers, reduction=r), Activations()).host.parts["gradients"]
            for r in ("exact", "fast")
        )
        assert 4 * 8 * LARGE * LARGE <= exact - fast < 4 * 10 * LARGE * LARGE


def test_one_micro_batch_a_step_accumulates_nothing() -> None:
    work = replace(WORK, workers=8, micro_batches=1)
    found = rank_memory(model(), work, Activations()).host
    assert found.parts.get("gradients", 0) < 8 * 4 * LARGE * LARGE


def test_optimizers() -> None:
    def state(**changes: object) -> int:
        found = rank_memory(model(), replace(WORK, **changes), Activations())  # type: ignore[arg-type]
        return found.host.parts.get("optimizer", 0)

    one = 4 * (8 * LARGE * LARGE + LARGE)
    assert state(optimizer="sgd") == 0
    assert state(optimizer="sgd", momentum=True) == one
    assert state() == 2 * one
    unknown = rank_memory(model(), replace(WORK, optimizer="my.optim:Lion"), Activations())
    assert unknown.notes == ("the state of my.optim:Lion is not known and counted as AdamW's",)
    assert unknown.host.parts["optimizer"] == 2 * one


def test_small_blocks_stay_with_the_allocator_and_large_ones_do_not() -> None:
    small = ModelSize((Parameter((1000, 1000)),))
    assert MAPPED_BYTES > 4 * 1000 * 1000
    for workers, copies in ((1, HELD_ALONE), (2, HELD_IN_GROUP)):
        found = rank_memory(small, replace(WORK, workers=workers), Activations())
        assert found.host.parts["allocator"] == copies * 4 * 1000 * 1000
    for recomputes, share in ((False, HELD_ACTIVATIONS), (True, HELD_RECOMPUTED)):
        found = rank_memory(ModelSize(()), replace(WORK, recomputes=recomputes), Activations(5000, 1000))
        assert found.host.parts["allocator"] == share * 1000


def test_a_gpu_has_a_memory_of_its_own() -> None:
    found = rank_memory(model(), replace(WORK, gpu=True), Activations(train_bytes=7000, row_bytes=10))
    assert found.device is not None
    assert {"parameters", "gradients", "optimizer"} <= set(found.device.parts)
    assert found.device.parts["activations"] == 7000 + 10 * 2
    assert "checkpoint" not in found.device.parts
    assert {"checkpoint", "data"} <= set(found.host.parts)
    assert "gradients" not in found.host.parts
    assert len(found.lines()) == 2


def test_unknown_activations_are_said_and_not_counted() -> None:
    found = rank_memory(model(), WORK, Activations(unknown="it looks at values"))
    assert "activations" not in found.host.parts
    assert found.lines()[1] == "note: activations not known and not counted: it looks at values"


def test_evaluation_may_be_fullest() -> None:
    found = rank_memory(model(8, 1), WORK, Activations(train_bytes=10, evaluation_bytes=10**7)).host
    assert found.name == "evaluation"


# --- what a worker may take


def config(**resources: float) -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"path": "x"},
            "train": {"global_batch": 8, "micro_batch": 1, "steps": 1},
            "elastic": {"resources_per_worker": {"CPU": 1.0, **resources}},
        }
    )


def test_a_worker_may_take_what_it_asks_for_or_its_share_of_the_machine() -> None:
    machine = Room(9000, "this machine's 9000 B")
    assert rooms(config(memory=500.0), 3, machine=machine, device_bytes=None).host == Room(
        500, "elastic.resources_per_worker.memory"
    )
    shared = rooms(config(), 3, machine=machine, device_bytes=None)
    assert shared.host == Room(3000, "this machine's 9000 B, shared by 3 workers")
    assert shared.device is None
    beside = rooms(config(), 3, machine=machine, device_bytes=None, spare_bytes=400).host
    assert beside == Room(2600, "this machine's 9000 B, shared by 3 workers, less a process that stands by")
    assert rooms(config(), 3, machine=None, device_bytes=None).host is None
    half = rooms(config(GPU=0.5), 2, machine=machine, device_bytes=1000).device
    assert half is not None
    assert half.bytes == 500


@pytest.mark.parametrize(
    ("lines", "files", "limit"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "700", "memory.max": "900"}, 700),
        ("0::/host/path\n", {"memory.max": "900"}, 900),
        ("0::/\n", {}, None),
        ("4:cpu,memory:/job\n", {"memory/job/memory.limit_in_bytes": "800"}, 800),
        ("4:memory:/host/job\n1:cpu:/\n", {"memory/memory.limit_in_bytes": "800"}, 800),
    ],
    ids=["v2, the lowest above", "v2, path of the host", "v2, none", "v1", "v1, path of the host"],
)
def test_container_limits(tmp_path: Path, lines: str, files: dict[str, str], limit: int | None) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(lines)
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    assert container_limit(tmp_path) == limit
    expected = limit or psutil.virtual_memory().total
    assert machine_room(tmp_path).bytes == expected


def test_no_control_groups(tmp_path: Path) -> None:
    assert container_limit(tmp_path) is None
