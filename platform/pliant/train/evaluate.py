"""Evaluation: every validation row exactly once, the same figures at every worker count."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pliant.data.lanes import LaneStream
from pliant.data.plan import DataState
from pliant.elastic.gate import Gate
from pliant.errors import UserCodeError
from pliant.train.feed import BatchFeed
from pliant.train.parallel import Workers
from pliant.train.protocols import Loss, Pipeline
from pliant.train.step import Sums, to_device
from pliant.train.usercode import Blame, loss_of, user_code


def evaluate(
    pipeline: Pipeline[Any],
    model: nn.Module,
    workers: Workers,
    *,
    rows: int,
    state: DataState,
    micro_batch: int,
    empty: pa.Table,
    stream: LaneStream,
    blame: Blame,
    gate: Gate,
) -> dict[str, float] | None:
    """Runs the model over one unshuffled epoch of the validation rows. Collective.

    Args:
        rows: rows of the validation set.
        state: a position at the epoch's start, tail ``pad``; its lanes spread the rows over ranks.
        stream: this rank's lanes of the validation set from the start; it is closed at the end.
        blame: names its rows when the pipeline's own code fails over them.
        gate: passed before each batch.

    Returns:
        Each metric as its sum over all rows divided by their weight, and what the pipeline derives from them. None
        when the group is to leave: on all ranks alike.
    """
    names = [name for name in pipeline.metrics if name != "loss"]
    sums, counts = Sums(names, workers.host_group), Counts(workers.host_group)
    batches = -(-rows // state.global_batch)
    feed = BatchFeed(
        stream, empty, pipeline, state,
        rows=rows, micro_batch=micro_batch, rank=workers.rank, world_size=workers.world_size,
        steps=batches, prefetch=2, pin=workers.device.type == "cuda", blame=blame,
    )  # fmt: skip
    totals: list[list[float]] = []
    weights: list[float] = []
    model.eval()
    try:
        with torch.no_grad():
            for _ in range(batches):
                batch = feed.next(gate)
                if batch is None or not gate.enter():
                    return None
                for micro, tensors in zip(batch.plan.micro_batches, batch.tensors, strict=True):
                    with batch.blame("loss", micro):
                        loss = loss_of(pipeline, model, to_device(tensors, workers.device))
                        counts.add(loss)
                    sums.add(micro, loss)
                # Gathered per batch: the order of additions is then the same at every worker count.
                total, weight, _, _ = sums.gather()
                totals.append(total)
                weights.append(weight)
    finally:
        feed.close()
    weight = sum(weights)
    values = {
        name: sum(total[column] for total in totals) / weight if weight else float("nan")
        for column, name in enumerate(("loss", *names))
    }
    total_counts = counts.gather()
    with user_code("from_counts"):
        values |= pipeline.from_counts(total_counts)
    with user_code("summarize"):
        return pipeline.summarize(values)


class Counts:
    """Whole numbers of micro-batches, added over all of them and then over ranks: exact in any order."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._sums: dict[str, Tensor] | None = None

    def add(self, loss: Loss) -> None:
        """Raises UserCodeError when a count has come or gone, or has another shape than before."""
        if self._sums is None:
            self._sums = {name: torch.zeros_like(count) for name, count in loss.counts.items()}
        before = {name: list(count.shape) for name, count in self._sums.items()}
        found = {name: list(count.shape) for name, count in loss.counts.items()}
        if found != before:
            raise UserCodeError(
                "pipeline.counts", f"Loss.counts must have the same shapes for any rows; found {found} after {before}"
            )
        for name, count in loss.counts.items():
            self._sums[name] += count

    def gather(self) -> dict[str, Tensor]:
        """The counts of all ranks, on the CPU. Collective."""
        totals = {name: count.cpu() for name, count in sorted((self._sums or {}).items())}
        for total in totals.values():
            dist.all_reduce(total, group=self._group)
        return totals
