"""What a run would be, without starting anything: memory and step time by worker count, steps, shuffle quality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pliant.config.overrides import Overrides
from pliant.configure import absolute_paths, load_config
from pliant.data.inspect import inspect_dataset
from pliant.elastic.policy import best_size, useful_workers
from pliant.registry import PipelineRef, find_pipeline
from pliant.settings import RunConfig
from pliant.train.capacity import Room, Rooms
from pliant.train.memory import RankMemory
from pliant.train.plan import Datasets, RunPlan, find_datasets, make_plan
from pliant.train.sizing import Sizing, local_rooms
from pliant.train.trial import try_pipeline


@dataclass(frozen=True)
class AtWorkers:
    """One worker count.

    Attributes:
        micro_batches: of a step, on the busiest rank.
        step_time: relative to the smallest worker count, communication left out.
        memory: None where the model cannot be measured.
        host_room, device_room: what a worker may take; None where it is not known from here.
    """

    workers: int
    micro_batches: int
    step_time: float
    memory: RankMemory | None
    host_room: Room | None
    device_room: Room | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values; every size in bytes."""
        memory = self.memory

        def place(moment: Any, room: Room | None) -> dict[str, Any] | None:
            if moment is None:
                return None
            return {
                "bytes": moment.bytes,
                "moment": moment.name,
                "parts_bytes": dict(moment.parts),
                "room_bytes": room.bytes if room else None,
                "room_source": room.source if room else None,
            }

        return {
            "workers": self.workers,
            "micro_batches_per_step": self.micro_batches,
            "relative_step_time": round(self.step_time, 4),
            "host_memory": place(memory.host if memory else None, self.host_room),
            "device_memory": place(memory.device if memory else None, self.device_room),
        }


@dataclass(frozen=True)
class Forecast:
    """A run before it is started.

    Attributes:
        plan: for the worker count that it would start with.
        parameters: of the model; None where it cannot be measured.
        variance_ratio: how uneven batches are at most; see ``pliant.data.inspect``.
        at: the fewest workers and every count from which a step gets shorter.
        notes: what is assumed or not known.
        sizing, room, ref, config, datasets: to ask for more.
    """

    pipeline: str
    plan: RunPlan
    plan_lines: tuple[str, ...]
    parameters: int | None
    pool_row_groups: int
    variance_ratio: float
    at: tuple[AtWorkers, ...]
    notes: tuple[str, ...]
    sizing: Sizing
    room: Callable[[int], Rooms]
    ref: PipelineRef
    config: RunConfig
    datasets: Datasets

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        plan = self.plan
        return {
            "pipeline": self.pipeline,
            "rows": plan.rows,
            "validation_rows": plan.validation_rows,
            "lanes": plan.lanes,
            "steps": plan.steps,
            "workers": plan.workers,
            "parameters": self.parameters,
            "data_stream_bytes": plan.data_memory,
            "shuffle": {"pool_row_groups": self.pool_row_groups, "variance_ratio": round(self.variance_ratio, 4)},
            "by_workers": [each.to_dict() for each in self.at],
            "notes": list(self.notes),
        }


def forecast(pipeline: str, overrides: Overrides = ()) -> Forecast:
    """Looks at settings, dataset and model; starts nothing and writes nothing.

    Raises:
        ConfigError, DamageError, UserCodeError: as a run with these settings would.
    """
    ref = find_pipeline(pipeline)
    config = absolute_paths(load_config(ref, overrides).config)
    loaded, datasets, lanes = ref.load(), find_datasets(config), config.data.lanes or 1
    columns = config.data.columns or loaded.columns
    elastic = config.elastic
    start = best_size(lanes, elastic.min_workers, elastic.max_workers)
    plan = make_plan(config, datasets, tuple(columns) if columns else None, workers=start)
    sizing, room = Sizing(config, loaded, datasets), local_rooms(config, in_process=False)
    (shape,) = inspect_dataset(
        datasets.train.root, lanes=lanes, window=config.data.window, look_ahead=config.data.read.look_ahead,
        global_batch=config.train.global_batch, workers=elastic.min_workers,
    ).values()  # fmt: skip
    at: list[AtWorkers] = []
    for workers in useful_workers(lanes, elastic.min_workers, elastic.max_workers):
        micro_batches, free = sizing.work(workers).micro_batches, room(workers)
        shorter = micro_batches / at[0].micro_batches if at else 1.0
        at.append(AtWorkers(workers, micro_batches, shorter, sizing.at(workers), free.host, free.device))
    notes = at[0].memory.notes if at[0].memory else (f"memory not known: {sizing.unknown}",)
    return Forecast(
        pipeline=ref.name,
        plan=plan,
        plan_lines=tuple(plan.lines(config)),
        parameters=sizing.parameters,
        pool_row_groups=shape.stream.pool,
        variance_ratio=shape.stream.variance_ratio,
        at=tuple(at),
        notes=notes,
        sizing=sizing,
        room=room,
        ref=ref,
        config=config,
        datasets=datasets,
    )


def refuse_what_does_not_fit(found: Forecast) -> None:
    """As a run with these settings would be refused. Raises UnschedulableError."""
    found.sizing.refuse_what_does_not_fit((found.at[0].workers, found.plan.workers), found.room)


def try_its_code(found: Forecast) -> None:
    """As a run with these settings would fail at its start. Raises UserCodeError, ConfigError."""
    try_pipeline(found.ref, found.config, found.datasets, found.sizing)
