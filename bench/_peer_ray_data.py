"""Ray Data as it comes: ``read_parquet`` with shuffled files, ``iter_batches`` with a shuffle buffer.

It runs in Pliant's own environment, with the Ray that Pliant uses. The buffer is an eighth of the rows that Pliant
shuffles over with the bench's settings; without one at all, the rows of a file stay in their order.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data
from _peer_common import BATCH, Mapped, epoch, places, report

BUFFER = 8192


def main() -> None:
    parquet, _ = places()
    folder = tempfile.mkdtemp(prefix="pliant-ray-")
    ray.init(
        address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
        _temp_dir=folder,
    )  # fmt: skip
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    try:
        report(
            {
                "shuffled": partial(_epoch, parquet, BUFFER, ordered=False),
                "shuffled, preserve_order": partial(_epoch, parquet, BUFFER, ordered=True),
                "files shuffled only": partial(_epoch, parquet, None, ordered=False),
            }
        )
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.flush()
    os._exit(0)  # threads of the last epoch, which was only begun, run into the closed Ray and abort the process


def _epoch(parquet: Path, buffer: int | None, *, ordered: bool) -> dict[str, float]:
    rows = sum(pq.ParquetFile(path).metadata.num_rows for path in parquet.glob("*.parquet"))
    dataset = ray.data.read_parquet(str(parquet), shuffle="files", file_extensions=["parquet"])
    dataset.context.execution_options.preserve_order = ordered
    batches = dataset.iter_batches(
        batch_size=BATCH, batch_format="pyarrow", local_shuffle_buffer_size=buffer, local_shuffle_seed=0
    )
    return epoch(Mapped(batches, _dense), rows)


def _dense(batch: pa.Table) -> np.ndarray:
    """Ray's own numpy batches would hold one object a row."""
    tokens = batch["tokens"]
    return tokens.combine_chunks().flatten().to_numpy().reshape(len(tokens), -1)


if __name__ == "__main__":
    main()
