"""Evaluation: every validation row exactly once, the same figures at every worker count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import torch
from torch import nn

from pliant.data.lanes import LaneStream
from pliant.data.plan import DataState
from pliant.train.feed import BatchFeed
from pliant.train.parallel import Workers
from pliant.train.protocols import Pipeline
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
    keep_going: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Runs the model over one unshuffled epoch of the validation rows. Collective.

    Args:
        rows: rows of the validation set.
        state: a position at the epoch's start, tail ``pad``; its lanes spread the rows over ranks.
        stream: this rank's lanes of the validation set from the start; it is closed at the end.
        blame: names its rows when the pipeline's own code fails over them.
        keep_going: called after every batch, so that a watcher sees progress.

    Returns:
        Each metric as its sum over all rows divided by their weight, and what the pipeline derives from them.
    """
    names = [name for name in pipeline.metrics if name != "loss"]
    sums = Sums(names, workers.host_group)
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
                batch = feed.next()
                for micro, tensors in zip(batch.plan.micro_batches, batch.tensors, strict=True):
                    with batch.blame("loss", micro):
                        loss = loss_of(pipeline, model, to_device(tensors, workers.device))
                    sums.add(micro, loss)
                # Gathered per batch: the order of additions is then the same at every worker count.
                total, weight, _, _ = sums.gather()
                totals.append(total)
                weights.append(weight)
                keep_going()
    finally:
        feed.close()
    weight = sum(weights)
    values = {
        name: sum(total[column] for total in totals) / weight if weight else float("nan")
        for column, name in enumerate(("loss", *names))
    }
    with user_code("summarize"):
        return pipeline.summarize(values)
