"""What the peers of the data bench share: an epoch in batches of 256 rows, the time to the first apart.

Each peer is a script of its own, ``python bench/_peer_NAME.py PARQUET WORK``: it reads the shards in PARQUET, keeps a
converted copy in WORK where the loader wants one, and prints a line of JSON with the rates of all its variants. The
bench compares with the fastest. It imports nothing of Pliant.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

BATCH = 256


def places() -> tuple[Path, Path]:
    """PARQUET and WORK of the command line."""
    return Path(sys.argv[1]), Path(sys.argv[2])


def epoch(batches: Iterable[Any], rows: int) -> dict[str, float]:
    """Takes a whole epoch, whose batches are arrays or tensors of shape (rows, 256), and begins the next.

    The clock runs from an epoch's first batch to the next one's, since what a loader does before an epoch's first
    batch is part of an epoch: Ray Data reads all of these rows then.

    Returns:
        Seconds to the first batch of all, and rows per second after it.
    """
    start = time.perf_counter()
    iterator = iter(batches)
    first_batch = next(iterator)
    first_at = time.perf_counter()
    taken = len(first_batch) + sum(len(batch) for batch in iterator)
    again = iter(batches)
    next(again)
    seconds = time.perf_counter() - first_at
    if tuple(first_batch.shape) != (BATCH, 256) or "int32" not in str(first_batch.dtype):
        raise SystemExit(f"a batch of shape {tuple(first_batch.shape)} and {first_batch.dtype}, not of 256 × 256 int32")
    if taken != rows:
        raise SystemExit(f"{taken} rows came in an epoch of {rows}")
    return {"first_batch_s": first_at - start, "rows_per_s": taken / seconds}


class Mapped:
    """Batches that are made from others, epoch after epoch."""

    def __init__(self, batches: Iterable[Any], make: Callable[[Any], Any]) -> None:
        self._batches, self._make = batches, make

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._batches)


def report(variants: dict[str, Callable[[], dict[str, float]]]) -> None:
    """Measures each variant once and prints the rates."""
    print(json.dumps({name: measure() for name, measure in variants.items()}))
