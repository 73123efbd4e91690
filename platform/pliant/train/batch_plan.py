"""How a step's rows become micro-batches on each rank. Pure.

    global batch ─► share of each lane ─► micro-batches (lane, index) ─► ranks (lane j on rank j mod W)

A micro-batch never mixes lanes and its rows never depend on the number of workers; that is what makes the
per-micro-batch gradients, and with exact sums the whole step, independent of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pliant.data.plan import Share, Tail, batch_shares, owned_lanes


@dataclass(frozen=True)
class MicroBatch:
    """Rows of one lane that go through the model together; ``index`` counts within the lane's share of the step."""

    lane: int
    index: int
    shares: tuple[Share, ...]

    @property
    def rows(self) -> int:
        return sum(share.stop - share.start for share in self.shares)


@dataclass(frozen=True)
class StepPlan:
    """What one rank does in one step.

    Attributes:
        micro_batches: in order; all ranks have equally many, those past a rank's own have no shares and 0 rows.
        rows: rows of the whole global batch (below G only where an epoch ends with ``pad``).
        epoch, position: the data position after the step.
        skipped: rows that ``drop`` left out just before the step.
    """

    micro_batches: tuple[MicroBatch, ...]
    rows: int
    epoch: int
    position: int
    skipped: int = 0


def cut_lane(lane: int, shares: Sequence[Share], micro_batch: int) -> list[MicroBatch]:
    """Cuts a lane's share of a step into micro-batches of at most ``micro_batch`` rows, in row order."""
    pieces: list[list[Share]] = []
    room = 0
    for share in shares:
        start = share.start
        while start < share.stop:
            if room == 0:
                pieces.append([])
                room = micro_batch
            stop = min(share.stop, start + room)
            pieces[-1].append(replace(share, start=start, stop=stop))
            room -= stop - start
            start = stop
    return [MicroBatch(lane, index, tuple(piece)) for index, piece in enumerate(pieces)]


def plan_step(
    *,
    rows: int,
    lanes: int,
    global_batch: int,
    micro_batch: int,
    tail: Tail,
    epoch: int,
    position: int,
    rank: int,
    world_size: int,
) -> StepPlan:
    """Plans the step that starts at (epoch, position) of a dataset of ``rows`` rows, for one rank of ``world_size``."""
    shares, next_epoch, next_position, taken = batch_shares(
        rows=rows, lanes=lanes, global_batch=global_batch, epoch=epoch, position=position, tail=tail
    )
    by_lane = [cut_lane(lane, shares[lane], micro_batch) for lane in range(lanes)]
    counts = [sum(len(by_lane[lane]) for lane in owned_lanes(r, world_size, lanes)) for r in range(world_size)]
    own = [micro for lane in owned_lanes(rank, world_size, lanes) for micro in by_lane[lane]]
    filler = [MicroBatch(lane=-1, index=i, shares=()) for i in range(max(counts) - len(own))]
    skipped = rows - position if tail == "drop" and rows - position < global_batch else 0
    return StepPlan(tuple(own + filler), taken, next_epoch, next_position, skipped)


def micro_batch_seed(seed: int, step: int, lane: int, index: int) -> int:
    """Seed of the random numbers drawn in one micro-batch's forward pass (dropout), in [0, 2**63)."""
    words = b"".join(int(value).to_bytes(8, "little", signed=True) for value in (seed, step, lane, index))
    return int.from_bytes(hashlib.blake2b(words, digest_size=8, person=b"pliant-dropout").digest(), "little") >> 1
