"""Which row of which file stands where in the stream: by arithmetic, without reading anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pliant.data.manifest import Manifest
from pliant.data.order import EpochOrder
from pliant.data.plan import Share


class RowPlace(NamedTuple):
    """A row as a user finds it: path of the file relative to the dataset's root, and row in the file, from 0."""

    file: str
    row: int


class RowPlaces:
    """Finds the rows of a dataset in its files."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._before = np.cumsum(manifest.group_rows) - manifest.group_rows  # rows of the dataset before a row group
        files, first_groups = np.unique(manifest.group_file, return_index=True)
        self._first_of_file = dict(zip(files.tolist(), self._before[first_groups].tolist(), strict=True))

    def of(self, row_group: int, row: int) -> RowPlace:
        """Where a row of a (non-empty) row group is."""
        file = int(self._manifest.group_file[row_group])
        return RowPlace(self._manifest.files[file].path, int(self._before[row_group]) - self._first_of_file[file] + row)

    def of_share(self, order: EpochOrder, share: Share) -> Iterator[RowPlace]:
        """Where the rows of a share are, in the order in which they are taken.

        Args:
            order: of the share's epoch, over this dataset.
            share: what a lane gives to a batch.
        """
        for window in order.windows(share.lane, share.start):
            if window.start >= share.stop:
                return
            rows = [(piece.row_group, row) for piece in window.pieces for row in range(piece.start, piece.stop)]
            permutation = order.permutation(window)
            for row in range(max(share.start, window.start), min(share.stop, window.stop)):
                yield self.of(*rows[permutation[row - window.start]])
