"""MosaicML Streaming over its own MDS copy of the rows, read in place, shuffled as its defaults say."""

from __future__ import annotations

import sys
import types
from functools import partial
from operator import itemgetter

from _peer_common import BATCH, Mapped, epoch, places, report

# Its vision datasets, which play no part here, import torchvision, which runs with no other torch than its own.
sys.modules["streaming.vision"] = types.ModuleType("streaming.vision")

import pyarrow.parquet as pq  # noqa: E402
from streaming import MDSWriter, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402


def main() -> None:
    parquet, work = places()
    copy = work / "mds"
    if not copy.exists():
        with MDSWriter(out=str(copy), columns={"tokens": "ndarray:int32:256"}) as writer:
            for path in sorted(parquet.glob("*.parquet")):
                values = pq.read_table(path)["tokens"].combine_chunks().flatten().to_numpy()
                for row in values.reshape(-1, 256):
                    writer.write({"tokens": row})
    clean_stale_shared_memory()
    report({f"{workers} workers": partial(_epoch, str(copy), workers) for workers in (0, 2)})


def _epoch(copy: str, workers: int) -> dict[str, float]:
    dataset = StreamingDataset(local=copy, shuffle=True, batch_size=BATCH)
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0)
    return epoch(Mapped(loader, itemgetter("tokens")), dataset.size)


if __name__ == "__main__":
    main()
