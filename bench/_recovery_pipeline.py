"""The peers' job as a pipeline: the same network, rows of the same size, as many rows a step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import torch.nn.functional as F
from _recovery_job import CLASSES, FEATURES, Net
from torch import nn

from pliant.train.protocols import Batch, Loss, Pipeline, Split
from pliant.train.settings import ModelGuards

ROWS = 2400
SCHEMA = pa.schema({"features": pa.list_(pa.float32(), FEATURES), "label": pa.int64()})


class Recovery(Pipeline[ModelGuards]):
    """Random rows; the loss is of no interest."""

    def prepare(self) -> Iterator[Split]:
        random = np.random.default_rng(0)
        features = random.standard_normal(ROWS * FEATURES, dtype=np.float32)
        labels = random.integers(CLASSES, size=ROWS)
        columns = [pa.FixedSizeListArray.from_arrays(pa.array(features), FEATURES), pa.array(labels)]
        yield Split("train", SCHEMA, iter([pa.record_batch(columns, schema=SCHEMA)]), row_group_rows=100)

    def model(self) -> nn.Module:
        return Net()

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        nats = F.cross_entropy(model(batch["features"]), batch["label"], reduction="none")
        return Loss(total=nats.sum(), weight=nats.new_tensor(len(nats)))


pipeline = Recovery
