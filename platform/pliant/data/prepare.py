"""Writes datasets: checksummed shards of small row groups, and a manifest that stands for the whole."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs

from pliant.data.filesystem import dataset_filesystem
from pliant.data.listing import INCOMPLETE_NAME, MANIFEST_NAME, written_splits
from pliant.data.manifest import Manifest, build_manifest
from pliant.data.shards import (
    Comparison,
    Sink,
    make_directory,
    make_durable,
    remove_empty_directory,
    row_groups,
    storage_errors,
    write_shards,
)
from pliant.errors import UsageError, UserCodeError

if TYPE_CHECKING:
    from pliant.train.protocols import Split

_SHARD = re.compile(r"part-[0-9]{5,}\.parquet")
_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def write_dataset(splits: Iterable[Split], out: str, *, overwrite: bool = False) -> dict[str, Manifest]:
    """Writes each split to ``OUT/NAME/`` as shards, with a manifest beside them.

    One row group is in memory at a time. Nothing reads a dataset before all its splits are whole: a mark stands
    beside the shards until then, and an interrupted dataset is written anew by the next call.

    Args:
        splits: the splits, each a stream of record batches; consumed one after the other.
        out: a directory or URI.
        overwrite: replace the dataset: what splits of these names hold, and take away the splits that Pliant wrote
            before and are not written now. Without it, an existing split must hold exactly the bytes that would be
            written; it is compared, not touched.

    Returns:
        The manifest of each split by name.

    Raises:
        UsageError: a split exists and is another one, or foreign shards lie in its directory.
        UserCodeError: there is no split, or one has a bad name or sizes, no rows, or batches unlike its schema.
        StorageError: storage cannot be written.
    """
    targets: dict[str, DatasetTarget] = {}
    for split in splits:
        if not _SPLIT_NAME.fullmatch(split.name) or split.name in targets:
            raise UserCodeError("data.split-name", f"{split.name!r} is no new split name of letters, digits, - and _")
        target = DatasetTarget(f"{out.rstrip('/')}/{split.name}", overwrite=overwrite)
        target.write(row_groups(split.batches, split.schema, split.row_group_rows, split.rows_per_file), split.schema)
        targets[split.name] = target
    if not targets:
        raise UserCodeError("data.no-splits", "the pipeline prepares no split")
    return finish(targets, out, overwrite=overwrite)


def finish(targets: dict[str, DatasetTarget], out: str, *, overwrite: bool) -> dict[str, Manifest]:
    """Puts all manifests, then takes all marks away: no split is readable before the last one is whole.

    In between go the splits that are not written anew: when overwriting all of Pliant's, else what was left unfinished.
    """
    for target in targets.values():
        target.seal()
    for name, whole in written_splits(out).items():
        if name not in targets and (overwrite or not whole):
            DatasetTarget(f"{out.rstrip('/')}/{name}", overwrite=True).remove()
    return {name: target.release() for name, target in targets.items()}


class DatasetTarget:
    """One directory of shards that is being written: ``write``, ``seal``, ``release``, once each in this order.

    Args:
        uri: the directory.
        overwrite: whether an existing dataset of other contents is replaced.

    Raises:
        UsageError: shards that Pliant has not written lie in the directory.
        StorageError: storage does not answer.
    """

    def __init__(self, uri: str, *, overwrite: bool = False) -> None:
        self.uri = uri
        self._filesystem, self._root = dataset_filesystem(uri)
        with storage_errors(uri):
            found = self._filesystem.get_file_info(fs.FileSelector(self._root, recursive=True, allow_not_found=True))
        files = {info.path[len(self._root) :].lstrip("/") for info in found if info.type == fs.FileType.File}
        self._old = sorted(path for path in files if _SHARD.fullmatch(path))
        foreign = sorted(path for path in files if path.endswith((".parquet", ".parq")) and path not in self._old)
        whole = INCOMPLETE_NAME not in files
        if foreign or (self._old and whole and MANIFEST_NAME not in files):
            raise UsageError(
                "data.foreign-shards",
                f"here lie shards that Pliant has not written, the first {(foreign or self._old)[0]}",
                hint="write to another directory",
                location=uri,
            )
        self._compares = bool(self._old) and whole and not overwrite

    def write(self, groups: Iterable[tuple[int, pa.Table]], schema: pa.Schema) -> None:
        """Writes row groups, each given with the number of its shard, or compares them with an existing dataset.

        Raises:
            UsageError: the existing dataset is another one.
            UserCodeError: there is not one row.
            StorageError: storage cannot be written.
        """
        if not self._compares:
            self._clear()
        shards = write_shards(groups, schema, self._compare if self._compares else self._create, self.uri)
        if not shards:
            raise UserCodeError("data.empty", "the split has no rows", location=self.uri)
        if self._compares and shards != len(self._old):
            raise self._exists(f"it has {len(self._old)} shards, not {shards}")

    def seal(self) -> None:
        """Puts the manifest beside the shards, which are still marked as unfinished."""
        if not self._compares:
            manifest = build_manifest(self.uri, unfinished=True)
            for file in manifest.files:
                self._make_durable(file.path)
            self._put(MANIFEST_NAME, replace(manifest, root="").to_bytes())

    def release(self) -> Manifest:
        """Takes the mark away, and returns the manifest."""
        if not self._compares:
            self._delete(INCOMPLETE_NAME)
            self._make_durable()
        return build_manifest(self.uri)

    def remove(self) -> None:
        """Takes the dataset away, instead of writing it; files that are not Pliant's stay."""
        self._clear()
        self._delete(INCOMPLETE_NAME)
        with storage_errors(self.uri):
            remove_empty_directory(self._filesystem, self._root)

    def _clear(self) -> None:
        """Marks the directory as unfinished, then takes away the manifest and shards that Pliant wrote before."""
        with storage_errors(self.uri):
            make_directory(self._filesystem, self._root)
        self._put(INCOMPLETE_NAME, b"")
        for name in (MANIFEST_NAME, *self._old):
            self._delete(name)

    def _create(self, name: str) -> Sink:
        return self._filesystem.open_output_stream(f"{self._root}/{name}")

    def _compare(self, name: str) -> Sink:
        if name not in self._old:
            raise self._exists(f"it has {len(self._old)} shards, and more are to be written")
        existing = self._filesystem.open_input_file(f"{self._root}/{name}")
        return Comparison(existing, on_difference=lambda: self._exists(f"{name} has other bytes"))

    def _exists(self, how: str) -> UsageError:
        return UsageError(
            "data.exists",
            f"another dataset lies here: {how}",
            hint="give --overwrite to replace it, or write to another directory",
            location=self.uri,
        )

    def _put(self, name: str, data: bytes) -> None:
        with storage_errors(f"{self.uri}/{name}"), self._filesystem.open_output_stream(f"{self._root}/{name}") as sink:
            sink.write(data)
        self._make_durable(name)
        self._make_durable()

    def _delete(self, name: str) -> None:
        with storage_errors(f"{self.uri}/{name}"):
            if self._filesystem.get_file_info(f"{self._root}/{name}").type != fs.FileType.NotFound:
                self._filesystem.delete_file(f"{self._root}/{name}")

    def _make_durable(self, name: str = "") -> None:
        """A file of the directory, or its list of names. What is written next may then say that it is there."""
        with storage_errors(f"{self.uri}/{name}".rstrip("/")):
            make_durable(self._filesystem, f"{self._root}/{name}")
