"""Which files make up a dataset, and what their directories say (``year=2024/``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from pyarrow import fs

from pliant.data.filesystem import dataset_filesystem
from pliant.data.patience import patiently
from pliant.errors import ConfigError, DamageError, StorageError

INCOMPLETE_NAME = "_pliant_incomplete"
"""Stands beside the shards while Pliant writes them; a dataset that has it is not whole."""
MANIFEST_NAME = "_pliant_manifest.json"
"""Stands beside the shards that Pliant has written, and says which rows belong."""
_USUAL_SPLITS = ("train", "validation", "test")
_MARKS = (MANIFEST_NAME, INCOMPLETE_NAME)
_SUFFIXES = (".parquet", ".parq")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_PARTITION = re.compile(r"([^=]+)=(.*)")


@dataclass(frozen=True)
class Listed:
    """One shard as the listing shows it: path relative to the dataset, bytes, time of change (ns, a hint only)."""

    path: str
    size: int
    modified_ns: int | None


def list_shards(filesystem: fs.FileSystem, root: str, uri: str, *, unfinished: bool = False) -> list[Listed]:
    """Lists ``*.parquet`` and ``*.parq`` below a root, sorted by the bytes of the relative path.

    Hidden names (``.crc``, ``_SUCCESS``, ``_temporary/`` …) are no part of a dataset. ``unfinished`` is for
    the writer: it lists a dataset that is still being written, too.

    Raises:
        ConfigError: there is no such directory, or no Parquet file in it.
        DamageError: writing the dataset was interrupted.
        StorageError: storage cannot be listed.
    """
    try:
        found = patiently(lambda: filesystem.get_file_info(fs.FileSelector(root, recursive=True)), root, uri)
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = "`pliant prepare PIPELINE` writes a pipeline's dataset; a relative data.path starts where you are"
        raise ConfigError("data.not-found", "there is no dataset directory here", hint=hint, location=uri) from error
    except OSError as error:
        raise StorageError("data.listing", f"the dataset cannot be listed: {error}", location=uri) from error
    files = {info.path[len(root) :].lstrip("/"): info for info in found if info.type == fs.FileType.File}
    if INCOMPLETE_NAME in files and not unfinished:
        raise DamageError(
            "data.incomplete",
            "writing this dataset was begun and not finished",
            hint="run the command that writes it again",
            location=uri,
        )
    shards = [
        Listed(path, info.size, info.mtime_ns)
        for path, info in files.items()
        if path.endswith(_SUFFIXES) and not any(map(_hidden, path.split("/")))
    ]
    if not shards:
        raise ConfigError("data.no-shards", "there is no *.parquet or *.parq file below this directory", location=uri)
    return sorted(shards, key=lambda shard: shard.path.encode())


def find_splits(uri: str) -> dict[str, str]:
    """Splits of a dataset by name, ``train`` first; a dataset without ``train/`` is the one split ``""``.

    Besides ``validation/`` and ``test/``, every directory that Pliant has written counts.

    Raises:
        StorageError: storage does not answer.
    """
    filesystem, root = dataset_filesystem(uri)

    try:
        marks = patiently(lambda: _marks(filesystem, root), root, uri)
    except NotADirectoryError:
        return {"": uri}
    except OSError as error:
        raise StorageError("data.listing", f"the dataset cannot be listed: {error}", location=uri) from error
    found = [name for name in marks if marks[name] or name in _USUAL_SPLITS]
    if "train" not in found:
        return {"": uri}
    order = sorted(found, key=lambda name: (_USUAL_SPLITS.index(name) if name in _USUAL_SPLITS else 3, name))
    return {name: f"{uri.rstrip('/')}/{name}" for name in order}


def written_splits(uri: str) -> dict[str, bool]:
    """Names of the splits that Pliant has written below a dataset, and whether each is whole.

    Raises:
        StorageError: storage does not answer.
    """
    filesystem, root = dataset_filesystem(uri)
    try:
        marks = patiently(lambda: _marks(filesystem, root), root, uri)
    except OSError as error:
        raise StorageError("data.listing", f"the dataset cannot be listed: {error}", location=uri) from error
    return {name: INCOMPLETE_NAME not in found for name, found in marks.items() if found}


def _marks(filesystem: fs.FileSystem, root: str) -> dict[str, set[str]]:
    """Every directory below a root by name, with those files of Pliant's own that it has."""
    found = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
    names = sorted(info.base_name for info in found if info.type == fs.FileType.Directory)
    marks: dict[str, set[str]] = {name: set() for name in names}
    for info in filesystem.get_file_info([f"{root}/{name}/{mark}" for name in names for mark in _MARKS]):
        if info.type == fs.FileType.File:
            marks[info.path.split("/")[-2]].add(info.base_name)
    return marks


def partition_of(path: str) -> dict[str, str | None]:
    """``year=2024/city=Z%C3%BCrich/part-0.parquet`` → ``{"year": "2024", "city": "Zürich"}``; Hive's null is None."""
    matches = (_PARTITION.fullmatch(part) for part in path.split("/")[:-1])
    values = {unquote(m[1]): unquote(m[2]) for m in matches if m}
    return {key: None if value == _NULL_PARTITION else value for key, value in values.items()}


def _hidden(name: str) -> bool:
    """Spark's rule: a leading dot or underscore, except for a partition directory of a column named ``_x``."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
