"""The manifest: exactly which rows a dataset has. Its digest is the dataset's identity.

The digest covers paths, sizes, row groups, columns and footers. Times of change are a hint that a footer
needs reading again, nothing more: a copied dataset is the same dataset.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import fs
from pydantic import BaseModel, ConfigDict, ValidationError

from pliant.data.filesystem import dataset_filesystem
from pliant.data.footer import BadShard, read_footer
from pliant.data.listing import MANIFEST_NAME, Listed, list_shards, partition_of
from pliant.data.patience import patiently
from pliant.data.schemas import Columns, canonical_columns, drift, fingerprint, partition_type
from pliant.errors import ConfigError, DamageError, StorageError, listed
from pliant.units import format_bytes

MANIFEST_VERSION: Literal[1] = 1
_MOST_SHOWN = 20
Problems = dict[str, str]
"""What is wrong with each bad file, by relative path."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ShardFile(_Strict):
    """One shard.

    Attributes:
        path: relative to the dataset's root.
        size: bytes.
        modified_ns: time of change in ns, a hint only; no part of the identity.
        footer: blake2b (hex) of the footer.
        rows: rows of each row group, empty ones included.
        bytes: uncompressed bytes of each row group as encoded.
    """

    path: str
    size: int
    modified_ns: int | None
    footer: str
    rows: tuple[int, ...]
    bytes: tuple[int, ...]


class _Document(_Strict):
    version: Literal[1]
    digest: str
    root: str
    columns: str
    partitions: tuple[str, ...]
    files: tuple[ShardFile, ...]


@dataclass(frozen=True)
class Manifest:
    """All shards of a dataset in the order of their paths' bytes.

    Attributes:
        version: of this format.
        root: URI of the dataset; no part of its identity.
        files: the shards.
        schema: every column, all nullable and without metadata; partition columns (``year=2024/``) stand last.
        partitions: names of the partition columns, whose values ``partition_values`` gives.
    """

    version: int
    root: str = field(compare=False)
    files: tuple[ShardFile, ...]
    schema: pa.Schema
    partitions: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Identity of the dataset: blake2b (hex) of everything but its root and times."""
        identity = {
            "version": self.version,
            "columns": fingerprint({f.name: f.type for f in self.schema}),
            "partitions": self.partitions,
            "files": [(f.path, f.size, f.footer, f.rows, f.bytes) for f in self.files],
        }
        text = json.dumps(identity, separators=(",", ":"), ensure_ascii=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @cached_property
    def rows(self) -> int:
        """Rows of the dataset."""
        return int(self.group_rows.sum())

    @cached_property
    def group_rows(self) -> NDArray[np.int64]:
        """Rows of each non-empty row group, in (file, index) order, int64; so are the three arrays below."""
        return self._groups[2]

    @cached_property
    def group_file(self) -> NDArray[np.int64]:
        """Index into ``files`` of each non-empty row group."""
        return self._groups[0]

    @cached_property
    def group_index(self) -> NDArray[np.int64]:
        """Index of each non-empty row group within its file."""
        return self._groups[1]

    @cached_property
    def group_bytes(self) -> NDArray[np.int64]:
        """Uncompressed bytes, as encoded, of each non-empty row group."""
        return self._groups[3]

    @cached_property
    def _groups(self) -> tuple[NDArray[np.int64], ...]:
        counts = [len(f.rows) for f in self.files]
        rows = np.fromiter((n for f in self.files for n in f.rows), np.int64, sum(counts))
        sizes = np.fromiter((n for f in self.files for n in f.bytes), np.int64, sum(counts))
        file = np.repeat(np.arange(len(counts)), counts)
        index = np.arange(sum(counts)) - np.repeat(np.cumsum(counts) - counts, counts)
        return tuple(array[rows > 0].astype(np.int64) for array in (file, index, rows, sizes))

    def partition_values(self, file: int) -> dict[str, int | str | None]:
        """Values of the partition columns in the shard ``files[file]``, as ``schema`` types them."""
        text = partition_of(self.files[file].path)
        numeric = {name for name in self.partitions if self.schema.field(name).type == pa.int64()}
        return {n: int(v) if (v := text[n]) is not None and n in numeric else v for n in self.partitions}

    def to_bytes(self) -> bytes:
        """One JSON document, UTF-8."""
        document = _Document(
            version=MANIFEST_VERSION,
            digest=self.digest,
            root=self.root,
            columns=base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            partitions=self.partitions,
            files=self.files,
        )
        return document.model_dump_json().encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Reads what ``to_bytes`` wrote. Raises DamageError when it is anything else or its digest is wrong."""
        try:
            document = _Document.model_validate_json(data)
            schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(document.columns, validate=True)))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "document"
            raise DamageError("data.manifest", f"the manifest cannot be read: {where}: {first['msg']}") from error
        except (ValueError, OSError) as error:
            raise DamageError("data.manifest", f"the manifest cannot be read: columns: {error}") from error
        manifest = cls(document.version, document.root, document.files, schema, document.partitions)
        if manifest.digest != document.digest:
            raise DamageError("data.manifest", f"its digest is {manifest.digest}, it says {document.digest}")
        return manifest

    def diff(self, other: Manifest) -> list[str]:
        """What changed from this dataset to the other, one line of words each; empty when they are the same."""
        return list(_differences(self, other))


def build_manifest(
    uri: str, *, threads: int = 16, previous: Manifest | None = None, unfinished: bool = False
) -> Manifest:
    """Reads every footer below a dataset's root.

    Args:
        uri: the dataset's directory.
        threads: footers read at once.
        previous: an older manifest: footers of files with the same size and time are not read again, and its
            columns are the ones that every file must have (otherwise those that most files have).
        unfinished: for the writer: take the dataset although writing it is not finished.

    Raises:
        DamageError: some files cannot be used; lists all of them, each with its reason.
        ConfigError: there is no dataset, or it has no rows.
        StorageError: storage does not answer.
    """
    manifest, problems = survey(uri, threads=threads, previous=previous, unfinished=unfinished)
    refuse(uri, problems)
    _refuse_empty(manifest)
    return manifest


def load_or_build_manifest(uri: str, *, threads: int = 16) -> Manifest:
    """The manifest of a dataset; one that Pliant wrote is held to the manifest beside its shards.

    Footers are read only of files whose time has changed, and of all files where no manifest was written.

    Raises:
        DamageError: as ``build_manifest``, and for files that are missing, extra or changed against the
            written manifest.
        ConfigError, StorageError: as ``build_manifest``.
    """
    recorded = recorded_manifest(uri)
    if recorded is None:
        return build_manifest(uri, threads=threads)
    found, problems = survey(uri, threads=threads, previous=recorded)
    refuse(uri, departures(recorded, found, problems), recorded=True)
    _refuse_empty(found)
    return found


def recorded_manifest(uri: str) -> Manifest | None:
    """The manifest that Pliant wrote beside the shards; None where there is none.

    Raises:
        DamageError: it is not what Pliant wrote.
        StorageError: storage does not answer.
    """
    filesystem, root = dataset_filesystem(uri)
    path = f"{root}/{MANIFEST_NAME}"
    try:
        data = patiently(lambda: _read_file(filesystem, path), path, uri)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError("data.manifest", f"cannot be read: {error}", location=f"{uri}/{MANIFEST_NAME}") from error
    try:
        return replace(Manifest.from_bytes(data), root=uri)
    except DamageError as error:
        raise DamageError(error.code, error.message, location=f"{uri}/{MANIFEST_NAME}") from error


def _read_file(filesystem: fs.FileSystem, path: str) -> bytes:
    with filesystem.open_input_file(path) as file:
        return bytes(file.read())


def departures(recorded: Manifest, found: Manifest, problems: Problems) -> Problems:
    """Adds to ``problems`` every file that is missing, extra or changed against the recorded manifest. Pure."""
    there, listed = {f.path: f for f in found.files}, {f.path: f for f in recorded.files}
    all_problems = dict(problems)
    for path in {**listed, **there}.keys() - problems.keys():
        if path not in there:
            all_problems[path] = "is missing"
        elif path not in listed:
            all_problems[path] = "is not in the manifest beside the shards"
        elif words := _change(listed[path], there[path]):
            all_problems[path] = f"is not the file in the manifest: {words}"
    return all_problems


def survey(
    uri: str,
    *,
    threads: int = 16,
    previous: Manifest | None = None,
    trust_times: bool = True,
    unfinished: bool = False,
) -> tuple[Manifest, Problems]:
    """The manifest of the good files, and what is wrong with the bad ones.

    Args and errors as ``build_manifest``; without ``trust_times`` every footer is read.
    """
    filesystem, root = dataset_filesystem(uri)
    listed = list_shards(filesystem, root, uri, unfinished=unfinished)
    known = {f.path: f for f in previous.files} if previous and trust_times else {}
    expected = {f.name: f.type for f in previous.schema if f.name not in previous.partitions} if previous else {}

    def scan(entry: Listed) -> tuple[ShardFile, Columns] | str:
        old = known.get(entry.path)
        if old and old.modified_ns is not None and (old.size, old.modified_ns) == (entry.size, entry.modified_ns):
            return old, expected
        path, location = f"{root}/{entry.path}", f"{uri.rstrip('/')}/{entry.path}"
        try:
            footer = patiently(lambda: read_footer(filesystem, path, entry.size), path, location)
            columns = canonical_columns(footer.schema)
        except (BadShard, ValueError) as error:
            return str(error)
        except OSError as error:
            raise StorageError("data.footer", f"cannot be read: {error}", location=location) from error
        return ShardFile(**vars(entry), footer=footer.digest, rows=footer.rows, bytes=footer.bytes), columns

    with ThreadPoolExecutor(threads) as pool:
        scanned = list(pool.map(scan, listed))
    problems = {e.path: s for e, s in zip(listed, scanned, strict=True) if isinstance(s, str)}
    good = [s for s in scanned if not isinstance(s, str)]
    reference = expected or _most_common([columns for _, columns in good])
    like = next((f.path for f, columns in good if not drift(columns, reference)), "the manifest beside the shards")
    problems |= {f.path: f"{words}; unlike {like}" for f, columns in good if (words := drift(columns, reference))}
    files = tuple(f for f, _ in good if f.path not in problems)
    values = [{k: v for k, v in partition_of(f.path).items() if k not in reference} for f in files]
    keys = Counter(tuple(v) for v in values).most_common(1)[0][0] if values else ()
    for f, v in zip(files, values, strict=True):
        if tuple(v) != keys:
            problems[f.path] = f"lies in partitions of {_names(tuple(v))}, the others in {_names(keys)}"
    kinds = {key: partition_type(v.get(key) for v in values) for key in keys}
    schema = pa.schema(list({**reference, **kinds}.items()))
    return Manifest(MANIFEST_VERSION, uri, tuple(f for f in files if f.path not in problems), schema, keys), problems


def _most_common(columns: list[Columns]) -> Columns:
    """The columns that most files have; with a tie, those of the first by path."""
    if not columns:
        return {}
    prints = [fingerprint(c) for c in columns]
    return columns[prints.index(Counter(prints).most_common(1)[0][0])]


def refuse(uri: str, problems: Problems, *, recorded: bool = False) -> None:
    """Raises one DamageError that lists every bad file with its reason; does nothing when there is none."""
    if problems:
        changed = f"restore them from their source; if they were changed on purpose, delete {MANIFEST_NAME}"
        # Reasons come from libraries, too; each stays on its line.
        lines = [f"{path}: {' '.join(problems[path].split())}" for path in sorted(problems, key=str.encode)]
        raise DamageError(
            "data.bad-files",
            f"{len(problems)} file{'s' * (len(problems) > 1)} cannot be used:{listed(lines, _MOST_SHOWN)}",
            hint=changed if recorded else "restore these files from their source, or take them away",
            location=uri,
        )


def _refuse_empty(manifest: Manifest) -> None:
    if manifest.rows == 0:
        raise ConfigError("data.empty", "the dataset has no rows", location=manifest.root)


def _differences(old: Manifest, new: Manifest) -> Iterator[str]:
    words = drift({f.name: f.type for f in new.schema}, {f.name: f.type for f in old.schema})
    if words:
        yield f"schema: the dataset now {words}"
    before, after = {f.path: f for f in old.files}, {f.path: f for f in new.files}
    for path in sorted({**before, **after}, key=str.encode):
        if path not in after:
            yield f"removed: {path} ({sum(before[path].rows)} rows)"
        elif path not in before:
            yield f"added: {path} ({sum(after[path].rows)} rows)"
        elif change := _change(before[path], after[path]):
            yield f"changed: {path}: {change}"


def _change(old: ShardFile, new: ShardFile) -> str:
    """How a file changed, in words; empty when it did not."""
    words = []
    if old.size != new.size:
        words.append(f"{format_bytes(old.size)} ({old.size}) → {format_bytes(new.size)} ({new.size})")
    if old.rows != new.rows:
        words.append(f"{sum(old.rows)} rows in {len(old.rows)} row groups → {sum(new.rows)} in {len(new.rows)}")
    if not words and (old.footer, old.bytes) != (new.footer, new.bytes):
        words.append("same size and rows, other contents (its footer differs)")
    return ", ".join(words)


def _names(keys: tuple[str, ...]) -> str:
    return ", ".join(keys) or "no column"
