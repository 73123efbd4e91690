"""A byte-level GPT that learns the source code of the Python standard library.

    pliant prepare stdlib_lm && pliant train stdlib_lm

Every machine that can run this has the data: the running interpreter's own library, about 31 MB in 1,800
files. A split is one stream of bytes, cut into rows:

    stream   import os\\n ... \\0 import sys\\n ... \\0        each file, then a zero byte
    row      tokens (context + 1 bytes), length             targets are tokens[1 : length + 1]

Neighbouring rows share one byte, so that every byte of the stream is a target exactly once.
"""

from __future__ import annotations

import math
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipelines.stdlib_lm_settings import ModelSettings
from pliant.data.filesystem import dataset_filesystem
from pliant.errors import ConfigError
from pliant.train.protocols import Batch, Loss, Pipeline, Split

VOCABULARY = 256  # a token is a byte; no source file contains byte 0, so it separates documents
SEPARATOR = b"\0"
VALIDATION_SHARE = 0.02
ROWS_PER_BATCH = 1024


# --- data -----------------------------------------------------------------------------------------------------


def source_files(root: Path) -> list[Path]:
    """The library's own ``.py`` files below ``root``, sorted by relative path; installed packages are left out."""
    foreign = {"site-packages", "dist-packages", "__pycache__"}
    files = (path for path in root.rglob("*.py") if path.is_file())
    kept = (path for path in files if foreign.isdisjoint(path.relative_to(root).parts))
    return sorted(kept, key=lambda path: path.relative_to(root).as_posix())


def in_validation(relative_path: str) -> bool:
    """Splits by file, so that no validation text continues a training one. Depends on the path alone."""
    digest = blake2b(relative_path.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < VALIDATION_SHARE * 2**64


def pack(documents: Iterable[bytes], context: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cuts documents into rows, a bounded number at a time.

    Yields:
        tokens: (rows, context + 1) uint8. The last row of the split is padded with zeros.
        length: (rows,) int32, how many targets of each row count.
    """
    chunk = context * ROWS_PER_BATCH
    pending = bytearray(SEPARATOR)  # context of the very first byte
    for document in documents:
        pending += document + SEPARATOR
        while len(pending) > chunk:
            yield _rows(pending[: chunk + 1], context)
            del pending[:chunk]  # the byte at the cut stays: last target here, first input of the next row
    if len(pending) > 1:
        yield _rows(pending, context)


def _rows(stream: bytearray, context: int) -> tuple[np.ndarray, np.ndarray]:
    targets = len(stream) - 1
    rows = -(-targets // context)
    flat = np.zeros(rows * context + 1, np.uint8)
    flat[: len(stream)] = stream
    length = np.full(rows, context, np.int32)
    length[-1] = targets - (rows - 1) * context
    return flat[np.arange(rows)[:, None] * context + np.arange(context + 1)], length


def bigram_bits_per_byte(train: Iterable[pa.RecordBatch], validation: Iterable[pa.RecordBatch]) -> float:
    """Cross-entropy of an add-one-smoothed byte-bigram model, in bits, over every target of the validation rows."""
    fitted = _pair_counts(train) + 1
    bits = np.log2(fitted.sum(axis=1, keepdims=True)) - np.log2(fitted)
    seen = _pair_counts(validation)
    return float((seen * bits).sum() / seen.sum())


def _pair_counts(batches: Iterable[pa.RecordBatch]) -> np.ndarray:
    """Counts of (byte, next byte), shape (256, 256) int64, over the targets that count."""
    counts = np.zeros(VOCABULARY**2, np.int64)
    for batch in batches:
        tokens = batch.column("tokens").flatten().to_numpy().reshape(batch.num_rows, -1)
        counted = np.arange(tokens.shape[1] - 1) < batch.column("length").to_numpy()[:, None]
        pairs = tokens[:, :-1].astype(np.int64) * VOCABULARY + tokens[:, 1:]
        counts += np.bincount(pairs[counted], minlength=VOCABULARY**2)
    return counts.reshape(VOCABULARY, VOCABULARY)


# --- model ----------------------------------------------------------------------------------------------------
# Shape suffixes: B rows, T positions, H heads, E size of a head (width = H × E).


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        rows, positions, width = x.shape
        qkv = self.qkv(x).view(rows, positions, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, T, E)
        y = F.scaled_dot_product_attention(rotate(q, rotation), rotate(k, rotation), v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(rows, positions, width))


class Block(nn.Module):
    """Pre-norm transformer block: the unit that FSDP2 shards and that activation checkpointing recomputes."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x), rotation))
        return x + self.dropout(self.mlp(self.norm2(x)))


class ByteGPT(nn.Module):
    """tokens (B, T) int64, T ≤ context → logits (B, T, 256)."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width, heads = settings.width, settings.heads
        self.history = settings.history
        self.embedding = nn.Embedding((1 + settings.history) * VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, heads, settings.dropout) for _ in range(settings.depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.register_buffer("rotation", rotation_table(settings.context, width // heads), persistent=False)
        self.initialize()

    def initialize(self) -> None:
        """Embeddings as large as what the blocks add to them, or they drown; logits near 0, a uniform start."""
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue  # biases and norms keep their 0 and 1
            std = self.norm.normalized_shape[0] ** -0.5
            if name.endswith(("out.weight", "mlp.2.weight")):
                std /= math.sqrt(2 * len(self.blocks))  # that many of them add up in the residual stream
            nn.init.normal_(parameter, std={"embedding.weight": 0.5, "head.weight": 0.02}.get(name, std))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for back in range(1, self.history + 1):  # the byte before, and the one before that; zeros before the row
            earlier = F.pad(tokens, (back, 0))[:, : tokens.shape[1]]
            x = x + self.embedding(earlier + back * VOCABULARY)
        rotation = self.rotation[:, : tokens.shape[1]].to(x.dtype)
        for block in self.blocks:
            x = block(x, rotation)
        return self.head(self.norm(x))


def rotation_table(context: int, size: int) -> Tensor:
    """Cosines and sines of rotary positions, (2, context, size / 2) float32."""
    frequencies = 1e4 ** -(torch.arange(size // 2) / (size // 2))
    angles = torch.arange(context)[:, None] * frequencies
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turns each pair of values (i, i + E/2) of x (B, H, T, E) by its position's angle."""
    cos, sin = rotation
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


# --- pipeline -------------------------------------------------------------------------------------------------


class StdlibLM(Pipeline[ModelSettings]):
    """Next-byte prediction; the loss is in nats per byte."""

    columns = ("tokens", "length")

    def prepare(self) -> Iterator[Split]:
        context = self.settings.context
        schema = pa.schema({"tokens": pa.list_(pa.uint8(), context + 1), "length": pa.int32()})
        root = Path(sysconfig.get_paths()["stdlib"])
        files = source_files(root)
        held_out = {path for path in files if in_validation(path.relative_to(root).as_posix())}
        splits = {"train": [f for f in files if f not in held_out], "validation": [f for f in files if f in held_out]}
        for name, paths in splits.items():
            batches = record_batches((path.read_bytes() for path in paths), context, schema)
            # Rows of one row group come from two or three files: small groups are what makes shuffling work.
            yield Split(name, schema, batches, row_group_rows=128, rows_per_file=8192)

    def model(self) -> nn.Module:
        return ByteGPT(self.settings)

    def collate(self, table: pa.Table) -> dict[str, Tensor]:
        found = table.schema.field("tokens").type.list_size
        if found != self.settings.context + 1:
            raise ConfigError(
                "model.context",
                f"rows of {found} bytes found, model.context = {self.settings.context} needs one byte more than that",
                hint=f"set model.context={found - 1}, or prepare the dataset again",
            )
        return super().collate(table)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        tokens = batch["tokens"].long()
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        counted = torch.arange(targets.shape[1], device=tokens.device) < batch["length"][:, None]
        logits = model(inputs).float()
        nats = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")  # (B × T)
        count = counted.sum()
        return Loss(total=(nats * counted.flatten()).sum(), weight=count.float(), tokens=int(count))

    def summarize(self, values: Mapping[str, float]) -> dict[str, float]:
        return {**values, "bits_per_byte": values["loss"] / math.log(2)}

    def baseline(self, train_path: str, validation_path: str) -> Mapping[str, float]:
        return {"bigram_bits_per_byte": bigram_bits_per_byte(read_batches(train_path), read_batches(validation_path))}


def read_batches(uri: str) -> Iterator[pa.RecordBatch]:
    """The rows of one split's shards, streamed, in any order."""
    filesystem, path = dataset_filesystem(uri)
    return ds.dataset(path, filesystem=filesystem, format="parquet").to_batches(columns=["tokens", "length"])


def record_batches(documents: Iterable[bytes], context: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Packed rows as record batches, streamed: one chunk of rows and one document in memory."""
    for tokens, length in pack(documents, context):
        flat = pa.array(tokens.reshape(-1))
        yield pa.record_batch([pa.FixedSizeListArray.from_arrays(flat, context + 1), pa.array(length)], schema=schema)


pipeline = StdlibLM
