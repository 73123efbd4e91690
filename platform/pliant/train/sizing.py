"""The whole-rank memory of a configuration at any worker count, and the refusal of what does not fit.

model, one micro-batch ─► activations.py ─┐
dataset ─► data/memory.py ────────────────┴► memory.py (pure) ─► against capacity.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from pliant.data.memory import memory_bound
from pliant.elastic.policy import lane_steps, useful_workers
from pliant.errors import UnschedulableError
from pliant.settings import RunConfig
from pliant.train.activations import Measured, Probe, measure
from pliant.train.capacity import Room, Rooms, machine_room, rooms
from pliant.train.memory import IMPORTED_BYTES, Moment, RankMemory, Work, rank_memory
from pliant.train.phases import largest_batch
from pliant.train.plan import Datasets
from pliant.train.precision import resolve_precision
from pliant.train.protocols import Pipeline
from pliant.train.usercode import unseen
from pliant.train.work import first_rows
from pliant.units import format_bytes

_WORTH = 0.05
"""Share of the whole from which a saving is worth naming."""


class Sizing:
    """Measures the model once, and adds up at any worker count.

    Args:
        config: complete settings.
        pipeline: its class.
        datasets: manifests.
    """

    def __init__(self, config: RunConfig, pipeline: type[Pipeline[Any]], datasets: Datasets) -> None:
        self._config, self._datasets = config, datasets
        self._columns = config.data.columns or pipeline.columns
        self._validation_micro_batch = config.eval.micro_batch or config.train.micro_batch
        self._measured = self._measure(pipeline)
        self._at: dict[int, RankMemory | None] = {}

    @property
    def unknown(self) -> str:
        """Why nothing can be said; empty where something can."""
        return "" if self._measured.size else self._measured.activations.unknown

    @property
    def parameters(self) -> int | None:
        """Number of the model's parameters."""
        return sum(p.numel for p in self._measured.size.parameters) if self._measured.size else None

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the model's parameters; 0 where the model cannot be built without values."""
        return sum(p.numel * p.element_bytes for p in self._measured.size.parameters) if self._measured.size else 0

    def at(self, workers: int) -> RankMemory | None:
        """The fullest rank of ``workers``, or None where the model could not be built."""
        if workers not in self._at:  # the stream's bound may have to read a row group
            self._at[workers] = self._sum(self._measured, self.work(workers))
        return self._at[workers]

    def work(self, workers: int) -> Work:
        """What the settings come to at a worker count."""
        config, data, train = self._config, self._config.data, self._config.train
        lanes = data.lanes or 1
        owned, per_lane = lane_steps(lanes, workers), largest_batch(config) // lanes
        precision = resolve_precision(train)
        return Work(
            workers=workers,
            micro_batches=owned * -(-per_lane // train.micro_batch),
            micro_batch=train.micro_batch,
            rows=owned * per_lane,
            evaluation_rows=owned * self._validation_micro_batch if self._datasets.validation else 0,
            prefetch=data.prefetch_batches,
            reduction=train.reduction,
            compute_bytes=(precision.compute or torch.float32).itemsize,
            recomputes=train.activation_checkpointing,
            optimizer=config.optim.kind,
            momentum=config.optim.momentum > 0,
            gpu=uses_gpu(config),
            stream_bytes=self._stream_bytes(workers, lanes),
            evaluation_stream_bytes=self._evaluation_stream_bytes(workers, lanes),
        )

    def refuse_what_does_not_fit(self, counts: Iterable[int], room: Callable[[int], Rooms]) -> None:
        """Refuses worker counts at which a rank does not fit.

        Args:
            counts: to check.
            room: what a worker may take, by worker count.

        Raises:
            UnschedulableError: ``plan.memory``, with the parts and what to change.
        """
        for workers in dict.fromkeys(counts):
            memory = self.at(workers)
            found = memory and _excess(memory, room(workers))
            if memory and found:
                moment, free, where = found
                of = "a worker" if workers == 1 else f"each of {workers} workers"
                raise UnschedulableError(
                    "plan.memory",
                    f"{of} needs {format_bytes(moment.bytes)} of {where} and has {format_bytes(free.bytes)}"
                    f" ({free.source}); fullest in {moment.name}:"
                    + "".join(f"\n  {name:<12} {format_bytes(size)}" for name, size in moment.parts.items())
                    + "".join(f"\n  note: {note}" for note in memory.notes),
                    hint="\n  ".join(self._advice(memory, room)),
                )

    def _advice(self, memory: RankMemory, room: Callable[[int], Rooms]) -> list[str]:
        """What would help, the most helpful first."""
        config, work = self._config, self.work(memory.workers)
        moment, _, _ = _excess(memory, room(memory.workers)) or (memory.host, None, "")
        words: list[tuple[int, str]] = []
        fast = self._sum(self._measured, replace(work, reduction="fast"))
        if fast is not None:
            saved = _of_same(fast, memory, moment).bytes
            if work.reduction == "exact" and moment.bytes - saved > _WORTH * moment.bytes:
                words.append((moment.bytes - saved, "train.reduction=fast, in a new run: sums of 4 bytes instead of 8"))
        activations = moment.parts.get("activations", 0)
        if activations > _WORTH * moment.bytes:
            if config.train.micro_batch > 1:
                words.append((activations // 2, f"a train.micro_batch below {config.train.micro_batch}"))
            if not config.train.activation_checkpointing:
                words.append((activations // 2, "train.activation_checkpointing=true"))
        lines = [f"{text} (saves about {format_bytes(saved)})" for saved, text in sorted(words, reverse=True)]
        counts = useful_workers(config.data.lanes or 1, 1, config.elastic.max_workers)
        fitting = [w for w in counts if (m := self.at(w)) is not None and not _excess(m, room(w))]
        if more := [w for w in fitting if w > memory.workers]:
            lines.append(f"elastic.min_workers={min(more)}: it fits from there")
        if less := [w for w in fitting if w < memory.workers]:
            lines.append(f"elastic.max_workers={max(less)}: it fits up to there")
        return ["what helps:", *(f"- {line}" for line in [*lines, "workers or machines with more memory"])]

    def _measure(self, pipeline: type[Pipeline[Any]]) -> Measured:
        config = self._config
        probe = Probe(
            train_rows=config.train.micro_batch,
            evaluation_rows=self._validation_micro_batch if self._datasets.validation else 0,
            compute=resolve_precision(config.train).compute,
            checkpointing=config.train.activation_checkpointing,
        )
        rows = first_rows(self._datasets.train, config, self._columns, count=max(probe.train_rows, 1))
        with unseen():
            return measure(pipeline(config.model), rows, probe)

    def _sum(self, measured: Measured, work: Work) -> RankMemory | None:
        return rank_memory(measured.size, work, measured.activations) if measured.size else None

    def _stream_bytes(self, workers: int, lanes: int) -> int:
        return memory_bound(
            manifest=self._datasets.train, data=self._config.data, lanes=lanes, world_size=workers,
            global_batch=largest_batch(self._config), columns=self._columns, row_ids=self._config.train.audit,
        )  # fmt: skip

    def _evaluation_stream_bytes(self, workers: int, lanes: int) -> int:
        if self._datasets.validation is None:
            return 0
        return memory_bound(
            manifest=self._datasets.validation, data=self._config.data.model_copy(update={"reader": "local"}),
            lanes=lanes, world_size=workers, global_batch=lanes * self._validation_micro_batch, columns=self._columns,
        )  # fmt: skip


def uses_gpu(config: RunConfig) -> bool:
    """Whether workers compute on a GPU."""
    wanted = config.elastic.resources_per_worker.get("GPU", 0) > 0
    return config.train.device == "cuda" or (config.train.device == "auto" and wanted)


def local_rooms(config: RunConfig, *, in_process: bool) -> Callable[[int], Rooms]:
    """What a worker may take where all of them run on this machine; of another cluster, what its settings say."""
    here = in_process or config.cluster.address == "local"
    machine = machine_room() if here else None
    device_bytes = None
    if here and uses_gpu(config) and torch.cuda.is_available():
        device_bytes = int(torch.cuda.get_device_properties(0).total_memory)
    spare = config.elastic.spares and not in_process and not config.elastic.resources_per_worker.get("GPU")
    spare_bytes = IMPORTED_BYTES if spare else 0
    return lambda workers: rooms(config, workers, machine=machine, device_bytes=device_bytes, spare_bytes=spare_bytes)


def _excess(memory: RankMemory, free: Rooms) -> tuple[Moment, Room, str] | None:
    """The moment that does not fit, if one does not, and where."""
    if free.device is not None and memory.device is not None and memory.device.bytes > free.device.bytes:
        return memory.device, free.device, "device memory"
    if free.host is not None and memory.host.bytes > free.host.bytes:
        return memory.host, free.host, "memory"
    return None


def _of_same(other: RankMemory, memory: RankMemory, moment: Moment) -> Moment:
    return other.device if moment is memory.device and other.device is not None else other.host
