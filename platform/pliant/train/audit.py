"""Which rows a run has really seen, from its audit log. No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pliant.data.manifest import Manifest
from pliant.data.places import RowPlaces
from pliant.storage.record import RunRecord
from pliant.train.plan import DATA_MANIFESTS


def samples(record: RunRecord, entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One entry per sample in stream order: step, attempt, epoch, position, file, and row in the file, from 0.

    Args:
        entries: of the log ``audit``, with rows as (epoch, position, row group, row in the row group).
    """
    manifest = Manifest.from_bytes(record.store.get(DATA_MANIFESTS["train"]))
    places = RowPlaces(manifest)
    for entry in entries:
        for epoch, position, group, row in entry["rows"]:
            yield {
                "step": entry["step"],
                "attempt": entry["attempt"],
                "epoch": epoch,
                "position": position,
                **places.of(group, row)._asdict(),
            }
