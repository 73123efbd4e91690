"""Whether checkpoints are what their manifests say: sizes and digests of completed reads. No torch here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from pliant.checkpoint.manifest import CheckpointManifest, FileEntry
from pliant.errors import DamageError, StorageError
from pliant.storage.layout import MANIFEST, CheckpointRef
from pliant.storage.store import Store

_PIECE = 16 * 2**20
_AHEAD = 4


@dataclass(frozen=True)
class CheckpointReport:
    """What reading all of a checkpoint has shown.

    Attributes:
        status: ``intact``; ``damaged``; ``uncommitted``, it has no manifest; or ``unreadable``, storage failed, which
            says nothing about the bytes.
        problems: one line each, naming the file.
        bytes: size of its files by the manifest.
        stray: files that the manifest does not name; they do no harm.
    """

    ref: CheckpointRef
    status: Literal["intact", "damaged", "uncommitted", "unreadable"]
    problems: tuple[str, ...] = ()
    bytes: int = 0
    stray: tuple[str, ...] = ()


def verify_checkpoints(store: Store, refs: Iterable[CheckpointRef]) -> Iterator[CheckpointReport]:
    """Reads every byte of the given checkpoints of a run, one after the other, and reports on each when done.

    Args:
        store: the run's storage.
        refs: which ones, e.g. from ``View.verdicts()``.
    """
    for ref in refs:
        try:
            yield _verify(store, ref)
        except StorageError as error:
            yield CheckpointReport(ref, "unreadable", (str(error),))


def _verify(store: Store, ref: CheckpointRef) -> CheckpointReport:
    names = {info.key.removeprefix(f"{ref.prefix}/") for info in store.list(ref.prefix)}
    if MANIFEST not in names:
        return CheckpointReport(ref, "uncommitted", ("it has no manifest: its save did not finish",))
    try:
        manifest = read_manifest(store, ref)
    except DamageError as error:
        return CheckpointReport(ref, "damaged", (f"{MANIFEST}: {error.message}",))
    problems = tuple(p for name, entry in sorted(manifest.files.items()) if (p := check_file(store, ref, name, entry)))
    stray = tuple(sorted(names - manifest.files.keys() - {MANIFEST}))
    return CheckpointReport(ref, "damaged" if problems else "intact", problems, manifest.total_bytes, stray)


def read_manifest(store: Store, ref: CheckpointRef) -> CheckpointManifest:
    """A checkpoint's manifest; DamageError when it is none, StorageError when it cannot be read."""
    try:
        return CheckpointManifest.from_bytes(store.get(ref.manifest), ref)
    except FileNotFoundError as error:
        raise DamageError("checkpoint.manifest", "it is missing", location=ref.manifest) from error


def best_checkpoint(store: Store, newest_first: Iterable[CheckpointRef]) -> CheckpointManifest | None:
    """The checkpoint that measured the best value of the run so far; None when there is none or it was not kept."""
    manifests: list[CheckpointManifest] = []
    for ref in newest_first:
        with suppress(DamageError):  # damaged, or removed at this moment
            manifests.append(read_manifest(store, ref))
    best = manifests[0].state.get("best") if manifests else None
    return next((m for m in manifests if best is not None and best in m.metrics.values()), None)


def check_file(store: Store, ref: CheckpointRef, name: str, entry: FileEntry) -> str | None:
    """What is wrong with a file, or None. Reads all of it, unless its size says it already.

    Raises:
        StorageError: the file cannot be read; that is no damage.
    """
    key = f"{ref.prefix}/{name}"
    info = store.head(key)
    if info is None:
        return f"{name} is missing"
    if info.size != entry.size:
        return f"{name} has {info.size} bytes where the manifest says {entry.size}"
    digest = hashlib.blake2b()
    try:
        for piece in pieces(store, key, entry.size):
            digest.update(piece)
    except FileNotFoundError:
        return f"{name} is missing"
    return None if digest.hexdigest() == entry.blake2b else f"{name} differs from its digest"


def pieces(store: Store, key: str, size: int) -> Iterator[bytes]:
    """A file in pieces, the next ones being read while one is used."""
    with ThreadPoolExecutor(_AHEAD) as pool:
        pending: list[Future[bytes]] = []
        for start in range(0, size, _PIECE):
            pending.append(pool.submit(store.get_range, key, start, min(start + _PIECE, size)))
            if len(pending) > _AHEAD:
                yield pending.pop(0).result()
        for future in pending:
            yield future.result()
