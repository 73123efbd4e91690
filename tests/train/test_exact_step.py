"""The exact step: the same parameters, bit by bit, at every worker count.

No storage and no Ray here, only the step over rows in memory; the whole run is compared in tests/train/test_resume.py.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch

from pliant.checkpoint.digest import named_parameters
from pliant.data.plan import DataState
from pliant.train.batch_plan import plan_step
from pliant.train.optim import build_optimizer
from pliant.train.parallel import join_workers, shard_model
from pliant.train.phases import Course, Phase
from pliant.train.precision import resolve_precision
from pliant.train.settings import OptimSettings, ScheduleSettings, TrainSettings
from pliant.train.state import TrainState
from pliant.train.step import RankBatch, Step
from tests.train.pipelines.masked import ROWS, Masked, table
from tests.train.pipelines.masked_settings import ModelSettings
from tests.train.processes import run_group

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LANES, GLOBAL_BATCH, STEPS = 8, 32, 14
CASES: dict[str, dict[str, Any]] = {
    "fp32 adamw": {},
    "fp32 sgd momentum": {"optim": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.1, "lr": 0.05}},
    "bf16 adamw": {"train": {"precision": "bf16"}},
    "bf16 sgd": {"train": {"precision": "bf16"}, "optim": {"kind": "sgd", "lr": 0.05}},
    "fp16 adamw, overflow": {"train": {"precision": "fp16"}},
    "activation checkpointing": {"train": {"activation_checkpointing": True}},
    "one micro-batch a lane": {"train": {"micro_batch": 4}},
    "pad": {"tail": "pad"},
    "drop": {"tail": "drop"},
}


def start_of_lane(lane: int) -> int:
    return lane * ROWS // LANES


def run_case(case: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Runs in every worker: the same steps on this group; returns (digest, loss, norm, tokens) after each."""
    train = TrainSettings(**{"global_batch": GLOBAL_BATCH, "micro_batch": 3, "steps": STEPS, **case.get("train", {})})
    optim = OptimSettings(**{"lr": 3e-3, "weight_decay": 0.1, **case.get("optim", {})})
    tail = case.get("tail", "carry")
    workers = join_workers(torch.device("cpu"), save_timeout=600)
    torch.manual_seed(11)
    pipeline = Masked(ModelSettings())
    model = pipeline.model()
    precision = resolve_precision(train)
    model = shard_model(
        model, pipeline.blocks(model), workers, precision, activation_checkpointing=train.activation_checkpointing
    )
    optimizer = build_optimizer(model, optim)
    step = Step(
        pipeline=pipeline, model=model, optimizer=optimizer, workers=workers, precision=precision, seed=3,
        course=Course((Phase(0, 0, train, optim, ScheduleSettings(warmup=3), total=STEPS),), STEPS),
    )  # fmt: skip
    data = DataState(
        samples=0, epoch=0, position=0, global_batch=GLOBAL_BATCH, lanes=LANES, window=4, tail=tail, seed=3
    )
    state = TrainState(step=0, tokens=0, data=data, loss_scale=(2.0**20, 0))
    source, seen = pipeline.collate(table(ROWS, seed=5)), []
    for _ in range(STEPS):
        plan = plan_step(
            rows=ROWS, lanes=LANES, global_batch=GLOBAL_BATCH, micro_batch=train.micro_batch, tail=tail,
            epoch=state.data.epoch, position=state.data.position, rank=workers.rank, world_size=workers.world_size,
        )  # fmt: skip
        picks = [
            [start_of_lane(share.lane) + row for share in micro.shares for row in range(share.start, share.stop)]
            for micro in plan.micro_batches
        ]
        batch = RankBatch(plan, [{name: values[pick] for name, values in source.items()} for pick in picks])
        state, result = step.run(state, batch, wish=1 << workers.rank)
        digest = hashlib.blake2b()
        for name, parameter in sorted(named_parameters(model)):
            digest.update(name.encode() + parameter.full_tensor().detach().numpy().tobytes())
        assert result.wishes == (1 << workers.world_size) - 1
        seen.append((digest.hexdigest(), result.values, result.grad_norm, state))
    return seen


def run_cases() -> dict[str, list[tuple[Any, ...]]]:
    return {name: run_case(case) for name, case in CASES.items()}


@pytest.fixture(scope="module")
def runs() -> dict[int, list[dict[str, list[tuple[Any, ...]]]]]:
    """By worker count, what each rank saw in each case."""
    return {world_size: run_group(world_size, run_cases) for world_size in (1, 2, 3, 5)}


@pytest.mark.parametrize("case", CASES)
def test_same_bits_at_every_worker_count(case: str, runs: dict[int, list[dict[str, list[tuple[Any, ...]]]]]) -> None:
    alone = runs[1][0][case]
    assert len({digest for digest, *_ in alone}) > 1, "nothing was learnt"
    for world_size, ranks in runs.items():
        for rank, seen in enumerate(ranks):
            # As text: the norm of an overflowed step is not a number, which equals nothing.
            assert repr(seen[case]) == repr(alone), f"rank {rank} of {world_size}"


def test_cases_differ(runs: dict[int, list[dict[str, list[tuple[Any, ...]]]]]) -> None:
    """What is compared depends on what is set, or the comparison would show nothing."""
    same_by_design = {"activation checkpointing"}
    last = {name: seen[-1][0] for name, seen in runs[1][0].items() if name not in same_by_design}
    assert len(set(last.values())) == len(last)


def test_overflow_skips_the_update_and_halves_the_scale(
    runs: dict[int, list[dict[str, list[tuple[Any, ...]]]]],
) -> None:
    seen = runs[1][0]["fp16 adamw, overflow"]
    assert seen[0][3].loss_scale[0] == 2.0**19
    assert seen[0][0] == seen[1][0], "an overflowed step must not touch the parameters"
    assert seen[-1][3].step == STEPS
