"""Removing a checkpoint, so that at no moment a half removed one exists."""

from __future__ import annotations

from collections.abc import Callable

from pliant.storage.layout import CheckpointRef
from pliant.storage.store import Store


def remove_checkpoint(store: Store, ref: CheckpointRef, check: Callable[[], None]) -> None:
    """Deletes the manifest, with which the checkpoint ceases to exist, then its files. May be repeated.

    Args:
        store: the run's storage.
        check: raises FencedError when a newer attempt has claimed the run; called before every delete.

    Raises:
        FencedError, StorageError.
    """
    check()
    store.delete(ref.manifest)
    for info in store.list(ref.prefix):
        check()
        store.delete(info.key)
