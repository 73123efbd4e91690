"""Which rows a run has really seen, from its audit log. No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pliant.data.manifest import Manifest
from pliant.storage.record import RunRecord
from pliant.train.plan import DATA_MANIFESTS


def samples(record: RunRecord, entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One entry per sample in stream order: step, attempt, epoch, position, file, and row in the file, from 0.

    Args:
        entries: of the log ``audit``, with rows as (epoch, position, row group, row in the row group).
    """
    manifest = Manifest.from_bytes(record.store.get(DATA_MANIFESTS["train"]))
    before = np.cumsum(manifest.group_rows) - manifest.group_rows
    first_of_file: dict[int, int] = {}
    for group, file in enumerate(manifest.group_file):
        first_of_file.setdefault(int(file), int(before[group]))
    for entry in entries:
        for epoch, position, group, row in entry["rows"]:
            file = int(manifest.group_file[group])
            yield {
                "step": entry["step"],
                "attempt": entry["attempt"],
                "epoch": epoch,
                "position": position,
                "file": manifest.files[file].path,
                "row": int(before[group]) - first_of_file[file] + row,
            }
