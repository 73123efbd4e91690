"""litData, shuffled: from the Parquet shards, and from converted copies: of items as they are, and of tokens in blocks.

The last is what it recommends for language models, and by far its fastest; rows must all be blocks of one length.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from _peer_common import BATCH, epoch, places, report
from litdata import StreamingDataLoader, StreamingDataset, index_parquet_dataset, optimize
from litdata.streaming.item_loader import ParquetLoader, TokensLoader

TOKENS = 256


def main() -> None:
    parquet, work = places()
    copy, index = work / "litdata", work / "litdata-index"
    if not copy.exists():
        index.mkdir(parents=True)
        index_parquet_dataset(str(parquet), cache_dir=str(index), num_workers=1)
        files = [str(path) for path in sorted(parquet.glob("*.parquet"))]
        options: dict[str, Any] = {"chunk_bytes": "64MB", "num_workers": 1, "verbose": False}
        optimize(_rows, files, output_dir=str(copy / "items"), **options)
        optimize(_rows, files, output_dir=str(copy / "tokens"), item_loader=TokensLoader(TOKENS), **options)
    variants = {}
    for workers in (0, 2):
        variants[f"parquet, {workers} workers"] = partial(_from_parquet, parquet, index, workers)
        variants[f"items, {workers} workers"] = partial(_converted, copy / "items", workers)
        variants[f"tokens, {workers} workers"] = partial(_converted, copy / "tokens", workers, TokensLoader(TOKENS))
    report(variants)


def _rows(path: str) -> Any:
    for row in pq.read_table(path)["tokens"].combine_chunks().flatten().to_numpy().reshape(-1, 256):
        yield torch.from_numpy(row)


def _from_parquet(parquet: Path, index: Path, workers: int) -> dict[str, float]:
    dataset = StreamingDataset(str(parquet), item_loader=ParquetLoader(), shuffle=True, index_path=str(index))
    return epoch(_loader(dataset, workers, collate_fn=_collate), len(dataset))


def _collate(rows: list[dict[str, list[int]]]) -> torch.Tensor:
    return torch.from_numpy(np.array([row["tokens"] for row in rows], np.int32))


def _converted(copy: Path, workers: int, loader: TokensLoader | None = None) -> dict[str, float]:
    dataset = StreamingDataset(str(copy), shuffle=True, item_loader=loader)
    return epoch(_loader(dataset, workers), len(dataset))


def _loader(dataset: StreamingDataset, workers: int, **options: Any) -> StreamingDataLoader:
    return StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0, **options
    )


if __name__ == "__main__":
    main()
