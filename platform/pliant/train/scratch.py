"""Temporary directories that name their owner, so that what a killed process has left can be taken away."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pliant.storage.layout import encode
from pliant.storage.owner import process_identity, process_lives

OWNER_FILE = "owner.json"
"""In each such directory: the process that made it, as ``process_identity``."""


@contextmanager
def scratch_directory(prefix: str) -> Iterator[str]:
    """A directory under the system's temporary one that ends with the block.

    First goes what processes of this machine that are gone have left under the same prefix.
    """
    _remove_abandoned(prefix)
    folder = tempfile.mkdtemp(prefix=prefix)
    Path(folder, OWNER_FILE).write_bytes(encode(process_identity()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(prefix: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if not _is_abandoned(folder):
            continue
        with suppress(OSError):  # another start may be at it too; what is left now is left to the next one
            for path in folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != OWNER_FILE:
                    path.unlink()
            # The owner's name goes last: its own processes may take seconds to end, and write meanwhile.
            if os.listdir(folder) == [OWNER_FILE]:
                shutil.rmtree(folder)


def _is_abandoned(folder: Path) -> bool:
    """Only what certainly was a directory of ours, of a process that certainly is gone."""
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return False
        return process_lives(json.loads((folder / OWNER_FILE).read_bytes())) is False
    except (OSError, ValueError, KeyError, AttributeError):
        return False
