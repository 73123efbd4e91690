"""Handwritten digits: 1,797 images of 8 × 8 pixels that come with scikit-learn. Small enough for smoke tests.

    pliant prepare digits && pliant train digits

The smallest complete pipeline: start from a copy of it to write your own. One row is one image:

    pixels   64 float32 in [0, 1]
    label    int64, 0 to 9
    weight   float32, optional: how much the row counts in loss, gradient and accuracy; 1 where it is missing
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipelines.digits_settings import ModelSettings
from pliant.train.protocols import Batch, Loss, Pipeline, Split

PIXELS, CLASSES = 64, 10
TRAIN_ROWS = 1500  # the other 297 are for validation
SCHEMA = pa.schema({"pixels": pa.list_(pa.float32(), PIXELS), "label": pa.int64()})


class Block(nn.Module):
    """Residual MLP block on features (B, width). LayerNorm, not BatchNorm: rows must not influence each other."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class DigitNet(nn.Module):
    """pixels (B, 64) float → logits (B, 10)."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.stem = nn.Linear(PIXELS, settings.width)
        self.blocks = nn.ModuleList(Block(settings.width, settings.dropout) for _ in range(settings.depth))
        self.head = nn.Sequential(nn.LayerNorm(settings.width), nn.Linear(settings.width, CLASSES))

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.stem(pixels)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Digits(Pipeline[ModelSettings]):
    """Classification with cross-entropy. Loss and accuracy are weighted sums; Pliant divides them once."""

    metrics: ClassVar = {"loss": "min", "accuracy": "max"}

    def prepare(self) -> Iterator[Split]:
        from sklearn.datasets import load_digits  # needed here only: training runs without scikit-learn

        data = load_digits()
        # Order by a fixed key, so that both splits hold all writers and classes, on every machine alike.
        order = np.argsort(np.random.Philox(0).random_raw(len(data.target)), kind="stable")
        for name, rows in {"train": order[:TRAIN_ROWS], "validation": order[TRAIN_ROWS:]}.items():
            pixels = (data.data[rows] / 16).astype(np.float32)  # stored as 0 to 16
            batch = pa.record_batch(
                [
                    pa.FixedSizeListArray.from_arrays(pa.array(pixels.reshape(-1)), PIXELS),
                    pa.array(data.target[rows].astype(np.int64)),
                ],
                schema=SCHEMA,
            )
            yield Split(name, SCHEMA, iter([batch]), row_group_rows=100, rows_per_file=500)

    def model(self) -> nn.Module:
        return DigitNet(self.settings)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        label = batch["label"]
        logits = model(batch["pixels"]).float()
        weight = batch["weight"] if "weight" in batch else torch.ones(len(label), device=logits.device)
        nats = F.cross_entropy(logits, label, reduction="none")  # (B,)
        correct = logits.argmax(dim=1) == label
        return Loss(
            total=(nats * weight).sum(),
            weight=weight.sum(),
            sums={"accuracy": (correct * weight).sum()},
        )


pipeline = Digits
