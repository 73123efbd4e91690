"""A small pipeline with everything that makes sums hard: dropout, masks that weigh rows unequally, odd shards."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from pliant.train.protocols import Loss, Pipeline, Split
from tests.train.pipelines.masked_settings import ModelSettings

ROWS, LENGTH, WORDS = 203, 7, 17
SCHEMA = pa.schema({"tokens": pa.list_(pa.int64(), LENGTH), "mask": pa.list_(pa.float32(), LENGTH)})


def table(rows: int, seed: int) -> pa.Table:
    random = np.random.Generator(np.random.Philox(seed))
    tokens = random.integers(0, WORDS, (rows, LENGTH))
    mask = random.random((rows, LENGTH), dtype=np.float32)
    mask[np.arange(LENGTH) >= random.integers(1, LENGTH + 1, (rows, 1))] = 0
    arrays = [pa.FixedSizeListArray.from_arrays(pa.array(a.reshape(-1)), LENGTH) for a in (tokens, mask)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


class Net(nn.Module):
    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width = settings.width
        self.embedding = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, width + 9),
                nn.GELU(),
                nn.Dropout(settings.dropout),
                nn.Linear(width + 9, width),
            )
            for _ in range(2)
        )
        self.head = nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Masked(Pipeline[ModelSettings]):
    metrics: ClassVar = {"loss": "min", "accuracy": "max"}

    def prepare(self) -> Iterator[Split]:
        yield Split("train", SCHEMA, iter(table(ROWS, 1).to_batches()), row_group_rows=13, rows_per_file=60)
        yield Split("validation", SCHEMA, iter(table(61, 2).to_batches()), row_group_rows=9, rows_per_file=40)

    def model(self) -> nn.Module:
        return Net(self.settings)

    _forwards = 0

    def _wait_where_told(self) -> None:
        """Waits before the forward pass that HOLD_BEFORE_FORWARD names, so that a test can act there: for ever, or
        until the file HOLD_UNTIL exists."""
        if torch.is_grad_enabled():
            self._forwards += 1
            if self._forwards == int(os.environ.get("HOLD_BEFORE_FORWARD", "0")):
                while not os.path.exists(os.environ.get("HOLD_UNTIL", "")):
                    time.sleep(0.02)

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> Loss:
        self._wait_where_told()
        target = (batch["tokens"] * 3 + 1) % WORDS
        logits = model(batch["tokens"]).float()
        mask = batch["mask"]
        losses = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
        correct = (logits.argmax(-1) == target) * mask
        total = (losses * mask.flatten()).sum()
        words = torch.bincount(target.flatten(), minlength=WORDS)
        return Loss(
            total, mask.sum(), {"accuracy": correct.sum()}, tokens=int(mask.count_nonzero()), counts={"words": words}
        )

    def from_counts(self, counts: Mapping[str, torch.Tensor]) -> dict[str, float]:
        return {"threes": float(counts["words"][3])}


pipeline = Masked
