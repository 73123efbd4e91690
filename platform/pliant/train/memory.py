"""How much memory a rank takes, part by part. Pure: sizes in, bytes out.

    parameters   this rank's shards, what FSDP2 gathers of the others' while it computes, buffers
    gradients    sums that accumulate unsharded, what one reduction needs, the reduced shards
    optimizer    its state, and the temporaries of an update
    activations  of one micro-batch
    checkpoint   the copy that is written beside training, always in host memory
    data         the stream's bound, and batches collated ahead
    allocator    what the C library does not hand out again
    process      interpreter and libraries

Not all of it is there at once. A rank passes through moments (start, backward, update, evaluation), and the fullest
one counts. What stands here was measured with torch 2.13, gloo, 1 to 3 workers and 1 to 50 million parameters; the
test of it is tests/train/test_memory_measured.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pliant.units import format_bytes

MIB = 2**20
IMPORTED_BYTES = 400 * MIB
"""Resident after importing torch (218 MiB), Ray Train, Ray Data and pyarrow (measured: 404 MiB together)."""
FIRST_STEP_BYTES = 64 * MIB
"""What the first step adds whatever the model: modules loaded late, kernels compiled (measured: 63 MiB)."""
CUDA_BYTES = 1024 * MIB
"""CUDA context, cuBLAS workspaces and NCCL buffers of a process on its device. Not measured by us."""
HELD_ALONE, HELD_IN_GROUP = 4, 6
"""Copies of the unsharded model that glibc's heap keeps although they were freed: it seldom finds an aligned block
again that it was given back (measured with glibc 2.36: 2.5 to 4.1 copies with one worker, 4.3 to 5.7 with several,
which gather into and reduce from further buffers; none where MALLOC_TOP_PAD_ is set, but each step then waits for
fresh pages, 30 % of its time with small micro-batches)."""
HELD_ACTIVATIONS, HELD_RECOMPUTED = 0.9, 2.0
"""Share of a micro-batch's activations that it keeps in the same way, and where blocks recompute theirs, making and
freeing them twice (measured: 0.65 to 0.75 of 84 to 506 MiB; 1.5 to 2.1 of 44 and 163 MiB)."""
MAPPED_BYTES = 32 * MIB
"""Blocks from this size on are always handed back when they are freed (glibc's DEFAULT_MMAP_THRESHOLD_MAX)."""
CACHING = 0.1
"""Share that the CUDA caching allocator may hold beyond what is allocated. Not measured by us."""
_FLOAT32, _FLOAT64 = 4, 8

MomentName = Literal["start", "backward", "update", "evaluation"]
Parts = dict[str, int]
PARTS = ("parameters", "gradients", "optimizer", "activations", "checkpoint", "data", "allocator", "process")


@dataclass(frozen=True)
class Parameter:
    """One parameter: its shape, bytes of an element, whether it is trained."""

    shape: tuple[int, ...]
    element_bytes: int = _FLOAT32
    trained: bool = True

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def shard_numel(self, workers: int) -> int:
        """Elements on the rank with most of them: FSDP2 cuts the first dimension into ⌈n/W⌉ and pads the last cut."""
        return -(-self.shape[0] // workers) * math.prod(self.shape[1:]) if self.shape else 1


@dataclass(frozen=True)
class ModelSize:
    """What of a model takes memory.

    Attributes:
        root: parameters outside of blocks: gathered for the whole of forward and backward.
        blocks: parameters of each block: gathered and reduced block by block.
        buffers_bytes: of buffers, which every rank holds whole.
    """

    root: tuple[Parameter, ...]
    blocks: tuple[tuple[Parameter, ...], ...] = ()
    buffers_bytes: int = 0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (*self.root, *(p for block in self.blocks for p in block))


@dataclass(frozen=True)
class Activations:
    """Bytes alive at once in forward and backward besides parameters and their gradients; measured.

    Attributes:
        train_bytes: of a micro-batch in training.
        train_small_bytes: of those, in blocks below MAPPED_BYTES.
        evaluation_bytes: of one in evaluation.
        row_bytes: of a collated row.
        unknown: why they are not known; the figures are then 0. Empty where they are.
    """

    train_bytes: int = 0
    train_small_bytes: int = 0
    evaluation_bytes: int = 0
    row_bytes: float = 0.0
    unknown: str = ""


@dataclass(frozen=True)
class Work:
    """What settings make of a model at one worker count.

    Attributes:
        workers: W.
        micro_batches: of a step, on the busiest rank.
        micro_batch: most rows of one.
        rows, evaluation_rows: of a step and of an evaluation's batch, on the busiest rank.
        prefetch: batches collated ahead.
        reduction: ``exact`` sums in 8 bytes, ``fast`` in 4.
        compute_bytes: of an element in forward and backward.
        recomputes: blocks recompute their activations in backward.
        optimizer: as ``optim.kind``.
        momentum: whether SGD keeps one.
        gpu: computes on a device with memory of its own.
        stream_bytes, evaluation_stream_bytes: bounds of the data streams.
    """

    workers: int
    micro_batches: int
    micro_batch: int
    rows: int
    evaluation_rows: int
    prefetch: int
    reduction: Literal["exact", "fast"]
    compute_bytes: int
    recomputes: bool
    optimizer: str
    momentum: bool
    gpu: bool
    stream_bytes: int
    evaluation_stream_bytes: int


@dataclass(frozen=True)
class Moment:
    """The fullest moment of one memory: bytes by part, in the order of this module's docstring."""

    name: MomentName
    parts: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class RankMemory:
    """Memory of the fullest rank.

    Attributes:
        workers: W.
        host: of its process; on a CPU, where everything is there, the only one.
        device: of its GPU.
        notes: what is assumed or not known.
    """

    workers: int
    host: Moment
    device: Moment | None = None
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For people: a line for each memory, and the notes."""
        lines = [f"memory {_in_words(self.host)}"]
        if self.device is not None:
            lines = [
                f"device memory {_in_words(self.device)}",
                f"host memory {_in_words(self.host)}",
            ]
        return [*lines, *(f"note: {note}" for note in self.notes)]


def rank_memory(model: ModelSize, work: Work, activations: Activations) -> RankMemory:
    """Adds up what the fullest rank holds at its fullest moment."""
    near, host = _where_it_computes(model, work, activations), _in_host_memory(model, work, activations)
    process = {"process": IMPORTED_BYTES + FIRST_STEP_BYTES}
    notes = _notes(work, activations)
    if not work.gpu:
        process["allocator"] = _held_bytes(model, work, activations)
        return RankMemory(work.workers, _fullest({m: [near[m], host[m], process] for m in near}), None, notes)
    device = {
        m: [parts, {"allocator": int(CACHING * sum(parts.values())), "process": CUDA_BYTES}]
        for m, parts in near.items()
    }
    return RankMemory(work.workers, _fullest({m: [host[m], process] for m in host}), _fullest(device), notes)


def _where_it_computes(model: ModelSize, work: Work, activations: Activations) -> dict[MomentName, Parts]:
    w, compute, total = work.workers, work.compute_bytes, _FLOAT64 if work.reduction == "exact" else _FLOAT32
    root, block = _numel(model.root), max(map(_numel, model.blocks), default=0)
    shards = sum(p.shard_numel(w) * p.element_bytes for p in model.parameters) + model.buffers_bytes
    trained = sum(p.shard_numel(w) for p in model.parameters if p.trained)
    state = trained * _FLOAT32 * _state_copies(work)
    # FSDP2 gathers into one flat buffer and copies out of it; the next block's buffer fills while a block computes.
    gathered = compute * (root + block if w == 1 else max(2 * root, root + 2 * block))
    # Sums over micro-batches stay unsharded until the last one reduces them, block by block.
    summed = total * _trained(model.parameters) if work.micro_batches > 1 else trained * _FLOAT32
    root, block = _trained(model.root), max(map(_trained, model.blocks), default=0)
    reducing = int(total * max(root, block) * (2 if w == 1 else 1 + 1 / w)) + compute * (root + block)
    on_device = int(activations.row_bytes * work.micro_batch) if work.gpu else 0
    temporaries = trained * _FLOAT32 if work.optimizer != "sgd" else 0  # the square roots of AdamW's second moment
    return {
        "start": {"parameters": shards + (_whole_bytes(model) if work.gpu else 0)},
        "backward": {
            "parameters": shards + gathered,
            "gradients": summed + reducing,
            "optimizer": state,
            "activations": activations.train_bytes + on_device,
        },
        "update": {"parameters": shards, "gradients": trained * _FLOAT32, "optimizer": state + temporaries},
        "evaluation": {
            "parameters": shards + gathered,
            "optimizer": state,
            "activations": activations.evaluation_bytes,
        },
    }


def _in_host_memory(model: ModelSize, work: Work, activations: Activations) -> dict[MomentName, Parts]:
    """What lies there whatever computes."""
    copies = 2 if work.reduction == "exact" else 1  # the unsharded model, and the one that its checks try
    trained = sum(p.shard_numel(work.workers) for p in model.parameters if p.trained)
    shards = sum(p.shard_numel(work.workers) * p.element_bytes for p in model.parameters)
    copy = shards + model.buffers_bytes + trained * _FLOAT32 * _state_copies(work)
    # In the queue, one being collated, one in the step's hands.
    data = work.stream_bytes + int(activations.row_bytes * work.rows * (max(work.prefetch, 1) + 2))
    more = work.evaluation_stream_bytes + int(activations.row_bytes * work.evaluation_rows * 4)
    return {
        "start": {"parameters": copies * _whole_bytes(model)},
        "backward": {"checkpoint": copy, "data": data},
        "update": {"checkpoint": copy, "data": data},
        "evaluation": {"checkpoint": copy, "data": data + more},
    }


def _numel(parameters: Iterable[Parameter]) -> int:
    return sum(p.numel for p in parameters)


def _trained(parameters: Iterable[Parameter]) -> int:
    return sum(p.numel for p in parameters if p.trained)


def _whole_bytes(model: ModelSize) -> int:
    return sum(p.numel * p.element_bytes for p in model.parameters) + model.buffers_bytes


def _state_copies(work: Work) -> int:
    """Numbers that the optimizer keeps for each trained one; an unknown optimizer counts as AdamW."""
    return int(work.momentum) if work.optimizer == "sgd" else 2


def _held_bytes(model: ModelSize, work: Work, activations: Activations) -> int:
    small = sum(p.numel * _FLOAT32 for p in model.parameters if p.numel * _FLOAT32 < MAPPED_BYTES)
    share = HELD_RECOMPUTED if work.recomputes else HELD_ACTIVATIONS
    return small * (HELD_ALONE if work.workers == 1 else HELD_IN_GROUP) + int(share * activations.train_small_bytes)


def _fullest(moments: Mapping[MomentName, Iterable[Mapping[str, int]]]) -> Moment:
    merged = [Moment(name, _sum(parts)) for name, parts in moments.items()]
    return max(merged, key=lambda moment: moment.bytes)


def _sum(several: Iterable[Mapping[str, int]]) -> Parts:
    total = dict.fromkeys(PARTS, 0)
    for parts in several:
        for name, value in parts.items():
            total[name] += value
    return {name: value for name, value in total.items() if value}


def _in_words(moment: Moment) -> str:
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in moment.parts.items())
    return f"about {format_bytes(moment.bytes)} a worker, fullest in {moment.name}: {parts}"


def _notes(work: Work, activations: Activations) -> tuple[str, ...]:
    notes = []
    if activations.unknown:
        notes.append(f"activations not known and not counted: {activations.unknown}")
    if work.optimizer not in ("adamw", "sgd"):
        notes.append(f"the state of {work.optimizer} is not known and counted as AdamW's")
    return tuple(notes)
