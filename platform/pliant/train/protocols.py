"""What a pipeline supplies: data preparation, model, collate, loss and metrics.

A pipeline never learns how many workers there are. Its loss returns *sums* over rows (or tokens), weighted,
and the weight they belong to; Pliant divides once, by the weight of the whole global batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

import pyarrow as pa
from torch import Tensor, nn

from pliant.train.settings import ModelGuards

Batch = Mapping[str, Tensor]
S = TypeVar("S", bound=ModelGuards)


@dataclass(frozen=True)
class Loss:
    """Sums over one micro-batch.

    Attributes:
        total: scalar, the weighted sum of the per-row (or per-token) losses; has a graph in training.
        weight: scalar, the sum of the weights (number of rows or unmasked tokens where all weigh 1).
        sums: further weighted sums by metric name, scalars without graph, e.g. ``{"accuracy": correct}``.
            Each metric is reported as its sum divided by the global weight.
        counts: int64 tensors by name, e.g. a histogram of scores; the same names and shapes for any rows. Those of an
            evaluation are added up and go to the pipeline's ``from_counts``; in training they are not looked at.
        tokens: number of tokens in the micro-batch; 0 where the word has no meaning.
    """

    total: Tensor
    weight: Tensor
    sums: Mapping[str, Tensor] = field(default_factory=dict)
    tokens: int = 0
    counts: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Split:
    """One split that a pipeline prepares: its Arrow schema and its rows as a stream of record batches."""

    name: str
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    row_group_rows: int = 1024
    rows_per_file: int = 8192


class Pipeline(Generic[S]):
    """Base class of pipelines. One instance per process; ``settings`` is the validated ``model`` section.

    Class attributes:
        columns: columns the collate reads; None for all.
        metrics: every reported metric with its better direction; ``loss`` is always there.
        main_metric: the metric that decides which checkpoint is best (measured in evaluation).
    """

    columns: ClassVar[Sequence[str] | None] = None
    metrics: ClassVar[Mapping[str, Literal["min", "max"]]] = {"loss": "min"}
    main_metric: ClassVar[str] = "loss"

    def __init__(self, settings: S) -> None:
        self.settings = settings

    def prepare(self) -> Iterator[Split]:
        """Yields the splits to write, ``train`` first. Must stream: a split may be larger than memory."""
        raise UnpreparedPipeline(type(self).__name__)

    def model(self) -> nn.Module:
        """Builds the model, on CPU and in float32. Called under a fixed seed.

        What a sharded module returns must not be changed in place (``out = out + y``, not ``out += y``) where it is a
        view, as after ``squeeze`` or ``view``: FSDP2 would not see its backward, which then fails.
        """
        raise NotImplementedError

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        """Modules that FSDP2 shards as units; default: the direct children of every ``ModuleList``."""
        return [child for m in model.modules() if isinstance(m, nn.ModuleList) for child in m]

    def parameter_groups(self, model: nn.Module) -> Iterable[Mapping[str, Any]]:
        """Groups of the (sharded) model's trainable parameters, each of them in exactly one.

        A group is a dict with ``params``, and where it is not as the settings say ``lr_scale`` (a factor on the
        learning rate that the schedule gives) and ``weight_decay``. Default: biases, norms and embedding tables without
        decay, everything else with ``optim.weight_decay``.
        """
        from pliant.train.optim import default_groups

        return default_groups(model)

    def collate(self, table: pa.Table) -> dict[str, Tensor]:
        """Turns rows into CPU tensors, one leading dimension of ``table.num_rows`` each; 0 rows must work.

        Called in a background thread. Default: numeric columns and fixed-length lists become tensors of
        their own type; strings, nulls and ragged lists are refused with the column's name.
        """
        from pliant.data.collate import collate_numeric

        return collate_numeric(table)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Forward pass and weighted sums of one micro-batch. Rows must not influence each other."""
        raise NotImplementedError

    def from_counts(self, counts: Mapping[str, Tensor]) -> dict[str, float]:
        """Figures of an evaluation that are no sums over rows, from ``Loss.counts`` added up over all of them."""
        return {}

    def summarize(self, values: Mapping[str, float]) -> dict[str, float]:
        """Further figures from reported ones, e.g. bits per byte from nats per token."""
        return dict(values)

    def baseline(self, train_path: str, validation_path: str) -> Mapping[str, Any]:
        """Figures of a simple reference model on the same shards, for the summary; empty if there is none."""
        return {}


class UnpreparedPipeline(NotImplementedError):
    """Raised by pipelines that have no data preparation of their own."""
