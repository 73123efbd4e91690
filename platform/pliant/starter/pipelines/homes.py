"""Which homes are sold within a month: numbers and texts from a CSV file, some of them missing.

    pliant prepare homes && pliant train homes --in-process

To make it yours: name the columns of your own CSV below, put its path into homes.yaml (``model.csv``), and prepare
again with ``--overwrite``. Rows are stored as they are; what a network needs of them is made in ``collate``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.nn.functional as F
from pyarrow import csv
from torch import Tensor, nn

from pliant.config.base import setting
from pliant.data.collate import collate_numeric, encode_strings
from pliant.train.protocols import Batch, Loss, Pipeline, Split
from pliant.train.settings import ModelGuards

NUMBERS = ("size_m2", "rooms", "age_years", "price_thousand")
TEXTS = ("district", "heating")
TARGET, CLASSES = "sold", ("no", "yes")
MASKS = tuple(
    f"{name}__valid" for name in NUMBERS
)  # added by data.nulls in homes.yaml: false where the CSV has nothing


class ModelSettings(ModelGuards):
    """The CSV file, and the size of the network."""

    csv: str = setting("homes.csv", on_resume="free")
    """The CSV file that ``pliant prepare`` reads, relative to the folder that it is called in."""
    validation: float = setting(0.2, on_resume="free", gt=0, lt=1)
    """Share of the rows that is kept for validation."""
    width: int = setting(32, on_resume="frozen", ge=1)
    """Features between blocks."""
    depth: int = setting(2, on_resume="frozen", ge=0)
    """Number of residual blocks."""
    dropout: float = setting(0.1, on_resume="frozen", ge=0, lt=1)
    """Share of each block's output set to zero in training."""
    buckets: int = setting(1000, on_resume="frozen", ge=1)
    """Embeddings that all texts share, by their hash: no vocabulary, and values that were never seen have one too."""


class Net(nn.Module):
    """numbers (B, 2 × NUMBERS) float, texts (B, TEXTS) int64 → logits (B, CLASSES)."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width = settings.width
        self.stem = nn.Linear(len(NUMBERS) + len(MASKS), width)
        self.table = nn.Embedding(settings.buckets, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),  # not BatchNorm: rows must not influence each other
                nn.Linear(width, 2 * width),
                nn.GELU(),
                nn.Dropout(settings.dropout),
                nn.Linear(2 * width, width),
            )
            for _ in range(settings.depth)
        )
        self.head = nn.Linear(width, len(CLASSES))

    def forward(self, numbers: Tensor, texts: Tensor) -> Tensor:
        x = self.stem(numbers) + self.table(texts).sum(dim=1)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Homes(Pipeline[ModelSettings]):
    """Classification with cross-entropy. Loss and accuracy are sums over rows; Pliant divides them once."""

    columns = (*NUMBERS, *TEXTS, TARGET)
    metrics: ClassVar = {"loss": "min", "accuracy": "max"}

    def prepare(self) -> Iterator[Split]:
        types = {name: pa.float32() for name in NUMBERS} | {name: pa.string() for name in (*TEXTS, TARGET)}
        options = csv.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=True)
        table = csv.read_csv(self.settings.csv, convert_options=options)
        table = table.filter(pc.is_valid(table[TARGET]))
        # An order that is the same on every machine, so that both splits hold the same rows everywhere.
        order = np.argsort(np.random.Philox(0).random_raw(len(table)), kind="stable")
        cut = round(len(table) * (1 - self.settings.validation))
        for name, rows in {"train": order[:cut], "validation": order[cut:]}.items():
            part = table.take(rows).combine_chunks()
            # Small row groups shuffle well, large ones are read fast.
            yield Split(name, part.schema, iter(part.to_batches()), row_group_rows=min(1024, max(8, len(part) // 16)))

    def model(self) -> nn.Module:
        return Net(self.settings)

    def collate(self, table: pa.Table) -> dict[str, Tensor]:
        columns = collate_numeric(table.select([*NUMBERS, *MASKS]))
        numbers = torch.stack([columns[name].float() for name in (*NUMBERS, *MASKS)], dim=1)
        texts = [[bucket(name, value, self.settings.buckets) for value in table[name].to_pylist()] for name in TEXTS]
        return {
            "numbers": numbers.sign() * numbers.abs().log1p(),  # any scale comes down to a few units
            "texts": torch.tensor(texts, dtype=torch.int64).T.contiguous(),
            "label": encode_strings(table, TARGET, CLASSES),
        }

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        logits, label = model(batch["numbers"], batch["texts"]).float(), batch["label"]
        nats = F.cross_entropy(logits, label, reduction="none")  # (B,)
        correct = (logits.argmax(dim=1) == label).float()
        return Loss(total=nats.sum(), weight=torch.ones_like(nats).sum(), sums={"accuracy": correct.sum()})


@lru_cache(maxsize=100_000)
def bucket(column: str, value: str | None, buckets: int) -> int:
    """Place of a text, or of a missing one, among the embeddings: the same in every process."""
    digest = hashlib.blake2b(f"{column}\0{value}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % buckets


pipeline = Homes
