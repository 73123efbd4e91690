"""Calling a pipeline's own code: what it raises names the user's lines, the rank, the step and the rows it was given.

Nothing is kept for it while all goes well: which rows a micro-batch has is worked out when there is an error.
"""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import groupby
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from pliant.data.manifest import Manifest
from pliant.data.order import EpochOrder
from pliant.data.places import RowPlace, RowPlaces
from pliant.data.plan import DataState, Share
from pliant.elastic.peers import lost_peer
from pliant.errors import PliantError, UserCodeError
from pliant.registry import PipelineRef
from pliant.train.batch_plan import MicroBatch
from pliant.train.protocols import Loss, Pipeline
from pliant.train.settings import ModelGuards

ROWS_SHOWN = 20
_MEND = "mend the pipeline"
_MEMORY = "lower train.micro_batch, or switch train.activation_checkpointing on"


@contextmanager
def user_code(what: str, *, place: str = "", about: str = "") -> Iterator[None]:
    """Blames a pipeline's code for what it raises.

    Args:
        what: what of the pipeline is called (``model``, ``loss``).
        place: where this happens (``rank 1, step 7``).
        about: lines for the end of the message.

    Raises:
        UserCodeError: ``pipeline.raised``. Errors of Pliant, and of the connection to other workers, pass.
    """
    try:
        yield
    except PliantError:
        raise
    except Exception as error:
        if lost_peer(error):
            raise
        hint = _MEMORY if isinstance(error, torch.OutOfMemoryError) else _MEND
        message = f"{what} raised {type(error).__name__}: {error}{about}"
        raise UserCodeError("pipeline.raised", message, hint=hint, location=place) from error


class Blame:
    """Names the rows of this rank's micro-batches in errors.

    Args:
        manifest: of the dataset.
        state: of its stream; what the order depends on is looked at, not the place.
        rank: this worker's.
        unit: what batches are counted in (``step``, ``evaluation batch``).
        shuffle: whether the rows are shuffled.
    """

    def __init__(self, manifest: Manifest, state: DataState, *, rank: int, unit: str, shuffle: bool = True) -> None:
        self._manifest, self._state, self._rank, self._unit, self._shuffle = manifest, state, rank, unit, shuffle

    @contextmanager
    def __call__(self, what: str, micro: MicroBatch, number: int) -> Iterator[None]:
        """``user_code`` over one micro-batch of the batch with this number."""
        try:
            with user_code(what):
                yield
        except PliantError as error:
            place = f"rank {self._rank}, {self._unit} {number}"
            location = f"{place}, {error.location}" if error.location else place
            message = f"{error.message}\n  {self.rows(micro)}"
            raise type(error)(error.code, message, hint=error.hint, location=location) from error.__cause__

    def rows(self, micro: MicroBatch) -> str:
        """The rows of a micro-batch, by file: ``its 3 rows: part-00000.parquet 5, 8; part-00001.parquet 0``."""
        places = RowPlaces(self._manifest)
        return describe_rows([place for share in micro.shares for place in places.of_share(self._epoch(share), share)])

    def _epoch(self, share: Share) -> EpochOrder:
        state = self._state
        return EpochOrder(
            self._manifest.group_rows, seed=state.seed, epoch=share.epoch, lanes=state.lanes, window=state.window,
            shuffle=self._shuffle,
        )  # fmt: skip


def describe_rows(rows: Sequence[RowPlace]) -> str:
    """Rows by file, ``ROWS_SHOWN`` at most."""
    if not rows:
        return "it has no rows: other workers have more micro-batches in this step"
    by_file = groupby(sorted(rows[:ROWS_SHOWN]), key=lambda place: place.file)
    shown = "; ".join(f"{file} {', '.join(str(place.row) for place in places)}" for file, places in by_file)
    more = f"; and {len(rows) - ROWS_SHOWN} more" if len(rows) > ROWS_SHOWN else ""
    return f"its {len(rows)} rows: {shown}{more}"


@contextmanager
def unseen() -> Iterator[None]:
    """What is printed in the block is printed by the run itself, and breakpoints are for it too; after an error it is
    shown, since there will be no run."""
    printed, hook = io.StringIO(), sys.breakpointhook
    sys.breakpointhook = lambda *args, **kwargs: None
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            yield
    except Exception:
        sys.stderr.write(printed.getvalue())
        raise
    finally:
        sys.breakpointhook = hook


def build_pipeline(ref: PipelineRef, settings: ModelGuards) -> Pipeline[Any]:
    """An instance of a pipeline's class.

    Raises:
        UserCodeError: its constructor fails, or its main metric is none of its metrics.
    """
    kind = ref.load()
    with user_code(kind.__name__):
        pipeline = kind(settings)
    if pipeline.main_metric not in pipeline.metrics:
        raise UserCodeError(
            "pipeline.metrics",
            f"{kind.__name__}.main_metric is {pipeline.main_metric!r}; its metrics are {', '.join(pipeline.metrics)}",
            location=_class_line(kind) or str(ref.file),
        )
    return pipeline


def _class_line(kind: type) -> str:
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):  # not from a file
        return ""


def collated(pipeline: Pipeline[Any], table: pa.Table) -> Mapping[str, Tensor]:
    """``pipeline.collate``; UserCodeError when it gives something else than tensors by name."""
    batch = pipeline.collate(table)
    if not isinstance(batch, Mapping) or not all(isinstance(tensor, Tensor) for tensor in batch.values()):
        found = (
            {name: type(value).__name__ for name, value in batch.items()}
            if isinstance(batch, Mapping)
            else type(batch).__name__
        )
        raise UserCodeError(
            "pipeline.collate",
            f"collate must return a dict of tensors; found {found}",
            location=defined(pipeline, "collate"),
        )
    return batch


def loss_of(pipeline: Pipeline[Any], model: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
    """``pipeline.loss``; UserCodeError when it is no ``Loss`` of scalar tensors with a sum for every metric."""
    loss = pipeline.loss(model, batch)
    if (problem := _problem_of(loss, pipeline)) is not None:
        problem.location = defined(pipeline, "loss")
        raise problem
    return loss


def _problem_of(loss: Any, pipeline: Pipeline[Any]) -> UserCodeError | None:
    """What is wrong with a loss, if something is."""
    if not isinstance(loss, Loss):
        return UserCodeError("pipeline.loss", f"loss must return a Loss; found {type(loss).__name__}")
    for name, value in (("total", loss.total), ("weight", loss.weight), *loss.sums.items()):
        if not isinstance(value, Tensor) or value.ndim != 0:
            found = f"Loss.{name} must be a scalar tensor, a sum over rows; found {value!r}"
            return UserCodeError("pipeline.loss", found)
    for name, count in loss.counts.items():
        if not isinstance(count, Tensor) or count.dtype != torch.int64:
            kind = count.dtype if isinstance(count, Tensor) else type(count).__name__
            found = f"Loss.counts[{name!r}] must be a tensor of int64, whole numbers; found {kind}"
            return UserCodeError("pipeline.counts", found)
    missing = sorted(set(pipeline.metrics) - {"loss"} - set(loss.sums))
    if missing:
        found = f"the loss reports no sum for the declared metrics {', '.join(missing)}"
        return UserCodeError("pipeline.metrics", found)
    return None


def defined(pipeline: Pipeline[Any], method: str) -> str:
    """Where a pipeline's method stands: ``file:line``; empty where Python does not know."""
    code = getattr(inspect.unwrap(getattr(type(pipeline), method)), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""
