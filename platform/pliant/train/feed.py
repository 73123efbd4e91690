"""Hands each rank its share of successive global batches, collated ahead of the step in a thread.

    plan (pure) ─► LaneStream.take ─► collate ─► queue ─► step

The position is the step's to advance: what lies in the queue has not been consumed.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pliant.data.lanes import LaneStream
from pliant.data.order import position_of
from pliant.data.plan import DataState
from pliant.data.reading import ROW_COLUMN, ROW_GROUP_COLUMN
from pliant.elastic.gate import Gate
from pliant.train.batch_plan import MicroBatch, StepPlan, plan_step
from pliant.train.protocols import Pipeline
from pliant.train.step import RankBatch
from pliant.train.usercode import Blame, collated

_GATE_S = 0.1
"""Between two looks at the gate, while a batch is waited for."""


class BatchFeed:
    """Batches of the steps after ``state``, in order; at most ``steps`` of them.

    Args:
        stream: rows of the lanes that this rank owns, from the state's position on.
        empty: zero rows of the same schema, for micro-batches that only other ranks fill.
        rows: rows of the dataset, N.
        batch_at: rows of the step that starts after so many samples; default: the state's for all.
        pin: collate into pinned memory, for asynchronous copies to a GPU.
        blame: names the rows of a micro-batch when the pipeline's own code fails over it.
        first: number of the first batch, for errors.
    """

    def __init__(
        self,
        stream: LaneStream,
        empty: pa.Table,
        pipeline: Pipeline[Any],
        state: DataState,
        *,
        rows: int,
        micro_batch: int,
        rank: int,
        world_size: int,
        steps: int,
        prefetch: int,
        pin: bool = False,
        blame: Blame,
        first: int = 1,
        batch_at: Callable[[int], int] | None = None,
    ) -> None:
        self._stream, self._empty, self._pipeline, self._state = stream, empty, pipeline, state
        self._rows, self._micro_batch, self._steps, self._pin = rows, micro_batch, steps, pin
        self._rank, self._world_size = rank, world_size
        self._blame, self._first = blame, first
        self._batch_at = batch_at or (lambda samples: state.global_batch)
        self._queue: queue.Queue[RankBatch | BaseException] = queue.Queue(maxsize=max(prefetch, 1))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="pliant-feed", daemon=True)
        self._thread.start()

    def next(self, gate: Gate | None = None) -> RankBatch | None:
        """The next step's share. Raises what reading or collating it raised.

        Returns:
            None when the group is to leave before the step.
        """
        while gate is None or not gate.leaving:
            with contextlib.suppress(queue.Empty):
                item = self._queue.get(timeout=None if gate is None else _GATE_S)
                if isinstance(item, BaseException):
                    raise item
                return item
        return None

    def close(self) -> None:
        self._stop.set()
        with contextlib.suppress(queue.Empty):
            while True:
                self._queue.get_nowait()
        self._stream.close()
        self._thread.join()

    def _fill(self) -> None:
        try:
            epoch, position, samples = self._state.epoch, self._state.position, self._state.samples
            for number in range(self._first, self._first + self._steps):
                plan = plan_step(
                    rows=self._rows,
                    lanes=self._state.lanes,
                    global_batch=self._batch_at(samples),
                    micro_batch=self._micro_batch,
                    tail=self._state.tail,
                    epoch=epoch,
                    position=position,
                    rank=self._rank,
                    world_size=self._world_size,
                )
                if not self._put(self._load(plan, partial(self._blame, number=number))):
                    return
                epoch, position, samples = plan.epoch, plan.position, samples + plan.rows
        except BaseException as error:
            self._put(error)

    def _put(self, item: RankBatch | BaseException) -> bool:
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=0.1)
                return True
        return False

    def _load(self, plan: StepPlan, blame: Callable[[str, MicroBatch], AbstractContextManager[None]]) -> RankBatch:
        tensors, ids = [], []
        for micro in plan.micro_batches:
            table = self._take(micro)
            if ROW_COLUMN in table.column_names:
                ids.append(self._row_ids(micro, table))
                table = table.drop_columns([ROW_GROUP_COLUMN, ROW_COLUMN])
            with blame("collate", micro):
                tensors.append(self._collate(table))
        return RankBatch(plan, tensors, torch.from_numpy(np.concatenate(ids)) if ids else None, blame)

    def _take(self, micro: MicroBatch) -> pa.Table:
        if not micro.shares:
            return self._empty
        return pa.concat_tables([self._stream.take(share) for share in micro.shares])

    def _row_ids(self, micro: MicroBatch, table: pa.Table) -> np.ndarray:
        """Where each row stands in the stream, by the plan, and which row it is, as it was read: int64 (rows, 4)."""
        places = [
            (share.epoch, position_of(self._rows, self._state.lanes, share.lane, row))
            for share in micro.shares
            for row in range(share.start, share.stop)
        ]
        read = [table.column(ROW_GROUP_COLUMN).to_numpy(), table.column(ROW_COLUMN).to_numpy()]
        return np.column_stack([np.array(places, dtype=np.int64).reshape(-1, 2), *read])

    def _collate(self, table: pa.Table) -> Mapping[str, Tensor]:
        batch = collated(self._pipeline, table)
        return {name: tensor.pin_memory() for name, tensor in batch.items()} if self._pin else batch
