"""Reading and writing torch's distributed checkpoint format through a Store.

The files are those that torch's own FileSystemWriter makes, so that torch's FileSystemReader can load a
checkpoint from a local path. Size and digest of each file are computed while it is written.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import zipfile
from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from pliant.checkpoint.manifest import METADATA_NAME, FileEntry
from pliant.checkpoint.pace import Pace
from pliant.checkpoint.ranks import Ranks
from pliant.checkpoint.staging import HostShard
from pliant.errors import StorageError
from pliant.storage.store import Store

_COALESCE = 32 * 2**20
"""Neighbouring tensors are read together up to this many bytes."""


class HashingFile:
    """A binary file for writing that counts and digests what passes through. Holds no data."""

    def __init__(self, raw: Any, pace: Pace) -> None:
        self._raw = raw
        self._pace = pace
        self._digest = hashlib.blake2b()
        self._size = 0

    def save(self, data: Any) -> None:
        """``torch.save``. Its writer hides what storage raised behind an error of its own: storage's is raised."""
        failures: list[BaseException] = []

        class Sink:
            @staticmethod
            def write(buffer: Any) -> int:
                try:
                    return self.write(buffer)
                except BaseException as error:
                    failures.append(error)
                    raise

            @staticmethod
            def flush() -> None:
                """Nothing is visible before the file is closed."""

        try:
            torch.save(data, Sink())
        except Exception:
            if failures:
                raise failures[0] from None
            raise

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for piece in self._pace.pieces(view):
            self._digest.update(piece)  # lets other threads run while it computes
            self._raw.write(piece)
        self._size += len(view)
        return len(view)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing is kept back."""

    def entry(self) -> FileEntry:
        return FileEntry(self._size, self._digest.hexdigest())


class HostSavePlanner(DefaultSavePlanner):
    """Plans a state whose tensors are HostShards."""

    def create_local_plan(self) -> SavePlan:
        items = [item for fqn, value in self.state_dict.items() for item in _write_items(fqn, value)]
        self.plan = SavePlan(items, planner_data=self.mappings)
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        value = self.state_dict[index.fqn]
        return value.data if isinstance(value, HostShard) else value


def _write_items(fqn: str, value: Any) -> list[WriteItem]:
    if not isinstance(value, HostShard):
        return [WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)]
    if value.data.numel() == 0 and 0 not in value.shape:
        return []  # an empty part of a tensor that other ranks hold
    offsets = torch.Size(value.offsets if value.data.numel() else [0] * len(value.shape))
    chunk = ChunkStorageMetadata(offsets, value.data.shape)
    written = TensorWriteData(chunk, TensorProperties(dtype=value.data.dtype), torch.Size(value.shape))
    kind = WriteItemType.SHARD if value.sharded else WriteItemType.TENSOR
    return [WriteItem(MetadataIndex(fqn, offsets), kind, tensor_data=written)]


class ShardWriter(StorageWriter):
    """Writes one file per rank, and ``.metadata`` from rank 0.

    The same state gives the same bytes, so that writing it again over what a failed try left is harmless.

    Args:
        store: where the files go, directly below its root.
        rank: this rank, for the file's name.
        pace: at which it writes.
    """

    def __init__(self, store: Store, rank: int, pace: Pace) -> None:
        super().__init__()
        self._store = store
        self._rank = rank
        self._pace = pace
        self.files: dict[str, FileEntry] = {}

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        name = f"__{self._rank}_0.distcp"
        results = []
        if plan.items:
            with self._store.open_writer(name) as raw:
                file = HashingFile(raw, self._pace)
                for item in plan.items:
                    start, data = file.tell(), planner.resolve_data(item)
                    if isinstance(data, io.BytesIO):
                        file.write(data.getbuffer())
                    else:
                        file.save(data)
                    length = file.tell() - start
                    results.append(WriteResult(item.index, length, _StorageInfo(name, start, length)))
            self.files[name] = file.entry()
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.storage_data = {r.index: r.storage_data for rank_results in results for r in rank_results}
        metadata.storage_meta = StorageMeta()
        metadata.version = CURRENT_DCP_VERSION
        with self._store.open_writer(METADATA_NAME) as raw:
            file = HashingFile(raw, self._pace)
            file.write(pickle.dumps(metadata))
        self.files[METADATA_NAME] = file.entry()

    def reset(self, checkpoint_id: Any = None) -> None:
        self.files = {}

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing to set up."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return False  # a Store is given, never derived from an id


class ShardReader(StorageReader):
    """Reads what ShardWriter wrote, in range requests.

    Every piece is checked again: the metadata against its digest before it is unpickled, tensors against
    their CRC, because they are read a second time after the checkpoint was verified.

    Args:
        store: where the files lie, directly below its root.
        files: sizes and digests from the manifest.
    """

    def __init__(self, store: Store, files: Mapping[str, FileEntry]) -> None:
        super().__init__()
        self._store = store
        self._files = files
        self._where: dict[MetadataIndex, _StorageInfo] = {}
        self.bytes_read = 0

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Raises StorageError when the bytes are not those that were verified."""
        data = self._store.get(METADATA_NAME)
        entry = self._files[METADATA_NAME]
        if len(data) != entry.size or hashlib.blake2b(data).hexdigest() != entry.blake2b:
            raise self._unstable(METADATA_NAME, "digest")
        return pickle.loads(data)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._where = metadata.storage_data

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        wanted = sorted(plan.items, key=self._position)
        while wanted:
            name, start, stop = self._position(wanted[0])
            count = 1
            while count < len(wanted) and self._position(wanted[count])[0] == name:
                _, _, end = self._position(wanted[count])
                if max(stop, end) - start > _COALESCE:
                    break
                stop, count = max(stop, end), count + 1
            data = memoryview(self._store.get_range(name, start, stop))
            self.bytes_read += len(data)
            for item in wanted[:count]:
                _, begin, end = self._position(item)
                self._hand_over(item, data[begin - start : end - start], planner, name)
            del wanted[:count]
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _position(self, item: ReadItem) -> tuple[str, int, int]:
        where = self._where[item.storage_index]
        return where.relative_path, where.offset, where.offset + where.length

    def _hand_over(self, item: ReadItem, data: memoryview, planner: LoadPlanner, name: str) -> None:
        file = io.BytesIO(data)
        self._check_crc(file, name)
        if item.type == LoadItemType.BYTE_IO:
            planner.load_bytes(item, file)
            return
        source = torch.load(file, map_location="cpu", weights_only=True)
        for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            source = source.narrow(dim, offset, length)
        target = planner.resolve_tensor(item).detach()
        target.copy_(source)
        planner.commit_tensor(item, target)

    def _check_crc(self, file: io.BytesIO, name: str) -> None:
        try:
            bad = zipfile.ZipFile(file).testzip()
        except Exception as error:  # a wrong header makes zipfile raise almost anything
            bad = f"{type(error).__name__}: {error}"
        if bad is not None:
            raise self._unstable(name, bad)
        file.seek(0)

    def _unstable(self, name: str, what: str) -> StorageError:
        message = f"reading it again after it was verified gave other bytes ({what})"
        return StorageError("checkpoint.unstable", message, location=f"{self._store.uri}/{name}")

    def reset(self, checkpoint_id: Any = None) -> None:
        self._where = {}

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return False  # a Store is given, never derived from an id


class TensorLoadPlanner(DefaultLoadPlanner):
    """Loads values other than tensors as plain data, never as arbitrary objects."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        loaded = torch.load(value, weights_only=True)
        *path, last = self.mappings[read_item.dest_index.fqn]
        target: Any = self.original_state_dict
        for key in path:
            target = target[key]
        target[last] = loaded


class StateSaver:
    """Saves states of the same layout one after the other; the layout is planned once.

    Args:
        ranks: all ranks; used by one thread at a time.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._local: SavePlan | None = None
        self._final: SavePlan | None = None
        self._metadata: Metadata | None = None

    def save(self, state: dict[str, Any], store: Store, pace: Pace | None = None) -> dict[str, FileEntry]:
        """Writes all ranks' files and the metadata; a collective.

        Args:
            state: as HostCopy made it; the same keys on every rank.
            store: where the files go, directly below its root.
            pace: at which this rank writes; None: without a rest.

        Returns:
            Every file, on every rank.

        Raises:
            PliantError: the same on every rank.
        """
        planner = HostSavePlanner()
        writer = ShardWriter(store, self._ranks.rank, pace or Pace())
        plan = self._plan(planner, state)

        def write() -> tuple[list[WriteResult], dict[str, FileEntry]]:
            return writer.write_data(planner.finish_plan(plan), planner).value(), writer.files

        def finish(written: list[tuple[list[WriteResult], dict[str, FileEntry]]]) -> dict[str, FileEntry]:
            writer.finish(self._metadata, [results for results, _ in written])
            return {name: entry for _, files in written for name, entry in files.items()} | writer.files

        return self._ranks.reduce("writing the checkpoint", write, finish)

    def _plan(self, planner: HostSavePlanner, state: dict[str, Any]) -> SavePlan:
        def plan_local() -> bool:
            planner.set_up_planner(state, is_coordinator=self._ranks.root)
            return planner.create_local_plan() == self._local

        def plan_all(plans: list[SavePlan]) -> list[SavePlan]:
            final, self._metadata = planner.create_global_plan(plans)
            return final

        if not all(self._ranks.gather("planning the checkpoint", plan_local)):
            self._local = self._final = None
            plans = self._ranks.reduce("planning the checkpoint", lambda: planner.plan, plan_all)
            self._local, self._final = planner.plan, plans[self._ranks.rank]
        return self._final


def load_state(state: dict[str, Any], reader: ShardReader, metadata: Metadata) -> None:
    """Fills a nested dict of tensors (DTensors at any world size) and values in place. Not a collective.

    Every key must be in the checkpoint with the same shape; keys of the checkpoint that are not wanted are
    not read.
    """
    planner = TensorLoadPlanner()
    planner.set_up_planner(state, metadata)
    reader.set_up_storage_reader(metadata, is_coordinator=False)
    reader.read_data(planner.finish_plan(planner.create_local_plan()), planner).wait()
