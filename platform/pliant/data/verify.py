"""Checks a dataset in full: every page of every shard is read, and held to its checksum and to the manifest."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pliant.data.filesystem import dataset_filesystem
from pliant.data.listing import MANIFEST_NAME, find_splits
from pliant.data.manifest import (
    Manifest,
    Problems,
    ShardFile,
    departures,
    recorded_manifest,
    refuse,
    survey,
)
from pliant.data.rowgroups import has_page_checksums, open_shard, read_group
from pliant.errors import DamageError


@dataclass(frozen=True)
class Verified:
    """What was found to be whole.

    Attributes:
        uri: dataset or split.
        digest: its identity.
        files, rows, bytes: how much was read; bytes as stored.
        recorded: whether a manifest beside the shards agrees with them; without one, only the shards speak.
        unchecked: files without page checksums: they decode, and a changed value would not show.
    """

    uri: str
    digest: str
    files: int
    rows: int
    bytes: int
    recorded: bool
    unchecked: tuple[str, ...]


def verify_dataset(uri: str, *, threads: int = 4) -> dict[str, Verified]:
    """Verifies all splits of a dataset (``""`` is one without splits); a row group per thread is in memory.

    Raises:
        DamageError: lists every damaged, missing, extra or changed file, with row group and column where it has them.
        ConfigError: there is no dataset.
        StorageError: storage does not answer.
    """
    found: dict[str, Verified] = {}
    problems: Problems = {}
    for name, split in find_splits(uri).items():
        found[name], bad = _verify_split(split, threads)
        problems |= {f"{name}/{path}" if name else path: words for path, words in bad.items()}
    refuse(uri, problems, recorded=any(split.recorded for split in found.values()))
    return found


def _verify_split(uri: str, threads: int) -> tuple[Verified, Problems]:
    try:
        recorded = recorded_manifest(uri)
        problems: Problems = {}
    except DamageError as error:
        recorded, problems = None, {MANIFEST_NAME: error.message}
    manifest, bad = survey(uri, previous=recorded, trust_times=False)
    problems |= departures(recorded, manifest, bad) if recorded else bad
    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(lambda file: _verify_file(manifest, file), manifest.files))
    for file, (words, _) in zip(manifest.files, results, strict=True):
        if words:
            problems[file.path] = "; ".join([problems[file.path], words] if file.path in problems else [words])
    unchecked = tuple(f.path for f, (_, checked) in zip(manifest.files, results, strict=True) if not checked)
    size = sum(f.size for f in manifest.files)
    read = Verified(uri, manifest.digest, len(manifest.files), manifest.rows, size, recorded is not None, unchecked)
    return read, problems


def _verify_file(manifest: Manifest, file: ShardFile) -> tuple[str, bool]:
    """What is wrong with a file, empty if nothing is, and whether its pages have checksums."""
    filesystem, root = dataset_filesystem(manifest.root)
    path, location = f"{root}/{file.path}", f"{manifest.root.rstrip('/')}/{file.path}"
    words: list[str] = []
    try:
        with open_shard(filesystem, path, location) as shard:
            checked = has_page_checksums(filesystem, path, shard.metadata, location)
            for index, rows in enumerate(file.rows):
                try:
                    got = read_group(shard, index, path, location).num_rows
                    words += [f"row group {index} has {got} rows, its footer says {rows}"] if got != rows else []
                except DamageError as error:
                    words.append(error.message)
    except DamageError as error:
        return error.message, True
    return "; ".join(words), checked
