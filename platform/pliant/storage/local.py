"""The local file system as an object store: whole objects, visible at once or not at all, and durable.

obstore's local store renames without syncing, so after a power loss a name may stand without its bytes; here
data is synced before it gets its name, and the folder after.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from pliant.errors import StorageError
from pliant.storage.faults import PassingFault, from_os_error
from pliant.storage.types import ObjectInfo

_STAGING = ".staging-"
"""Files that have no name of their own yet; what a killed process leaves is never listed."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class LocalBackend:
    """Objects as files under ``root``."""

    def __init__(self, root: str) -> None:
        self.root = root

    def child(self, prefix: str) -> LocalBackend:
        """The objects below a folder."""
        return LocalBackend(self.path(prefix))

    def path(self, key: str) -> str:
        """Where the object lies, existing or not."""
        return os.path.join(self.root, key)

    def put(self, key: str, data: bytes, *, create: bool) -> None:
        """Writes an object; FileExistsError when ``create`` and it exists."""
        file = self.writer(key, create=create)
        try:
            file.write(data)
            file.close()
        finally:
            file.abort()

    def writer(self, key: str, *, create: bool = False) -> LocalWriter:
        """A file that gets its name when it is closed."""
        with _faults(self.path(key)):
            try:
                return LocalWriter(self.path(key), create=create)
            except FileNotFoundError as error:
                raise PassingFault("the folder was removed at this moment", maybe_done=False) from error

    def extend(self, key: str, size: int, data: bytes) -> None:
        """Makes an object consist of its first ``size`` bytes and ``data``, durably; not at once, unlike ``put``."""
        with _faults(self.path(key)), open(self.path(key), "r+b") as file:
            found = file.seek(0, os.SEEK_END)
            if found < size:
                hint = "nothing but Pliant may write into a run's directory"
                message = f"the file has {found} bytes where {size} were written"
                raise StorageError("storage.shrunk", message, hint=hint, location=self.path(key))
            # What a failed write left behind goes first: its rest must not follow shorter data.
            file.truncate(size)
            file.seek(size)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def get(self, key: str) -> bytes:
        with _reading(self.path(key)), open(self.path(key), "rb") as file:
            return file.read()

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        with _reading(self.path(key)), open(self.path(key), "rb") as file:
            file.seek(start)
            return file.read(stop - start)

    def head(self, key: str) -> ObjectInfo:
        with _reading(self.path(key)):
            if os.path.isdir(self.path(key)):
                raise FileNotFoundError(f"{self.path(key)} is a folder")
            stat = os.stat(self.path(key))
        return ObjectInfo(key, stat.st_size, stat.st_mtime)

    def list(self, prefix: str) -> list[ObjectInfo]:
        with _faults(self.path(prefix)):
            return list(_files(self.path(prefix), prefix))

    def folders(self) -> Sequence[str]:
        with _faults(self.root):
            try:
                return [entry.name for entry in os.scandir(self.root) if entry.is_dir()]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def delete(self, key: str) -> None:
        with _faults(self.path(key)), suppress(FileNotFoundError):
            os.unlink(self.path(key))
            # An empty folder is no object; another writer may use the folder at this moment, hence no force.
            with suppress(OSError):
                os.rmdir(os.path.dirname(self.path(key)))


class LocalWriter:
    """A binary file under construction: ``close`` gives it its name, ``abort`` discards it."""

    repeatable = False

    def __init__(self, path: str, *, create: bool) -> None:
        self._path = path
        self._create = create
        self._folder = os.path.dirname(path)
        self._staged = os.path.join(self._folder, f"{_STAGING}{secrets.token_hex(8)}")
        try:
            self._file = self._open()
        except FileNotFoundError:
            make_folders(self._folder)
            self._file = self._open()
        self.closed = False

    def _open(self) -> BinaryIO:
        return open(self._staged, "xb")

    def write(self, data: Any) -> int:
        """Appends bytes or any buffer; returns their number."""
        with _faults(self._path):
            return self._file.write(data)

    def close(self) -> None:
        """Syncs the data, then publishes it under its name; FileExistsError when creating and it exists."""
        if self.closed:
            return
        self.closed = True
        try:
            with _faults(self._path):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                self._publish()
                sync_path(self._folder)
        finally:
            self._discard()

    def _publish(self) -> None:
        if not self._create:
            os.replace(self._staged, self._path)
            return
        try:
            os.link(self._staged, self._path)
        except FileExistsError:
            # A network file system may repeat a link whose answer was lost: two names mean that it was ours.
            if os.stat(self._staged).st_nlink != 2:
                raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            hint = "use another file system for run.storage, or an object store"
            message = f"the file system has no hard links, which creating without overwriting needs: {error.strerror}"
            raise StorageError("storage.no-links", message, hint=hint, location=self._path) from error

    def abort(self) -> None:
        """Discards what was written."""
        if not self.closed:
            self.closed = True
            self._discard()

    def _discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            os.unlink(self._staged)


@contextmanager
def _faults(location: str) -> Iterator[None]:
    """Turns OSErrors into passing faults and storage errors."""
    try:
        yield
    except OSError as error:
        classified = from_os_error(error, location)
        if classified is error:
            raise
        raise classified from error


@contextmanager
def _reading(location: str) -> Iterator[None]:
    """As _faults; a folder, or a name below a file, is no object."""
    try:
        with _faults(location):
            yield
    except StorageError as error:
        if isinstance(error.__cause__, IsADirectoryError | NotADirectoryError):
            raise FileNotFoundError(f"{location} does not exist") from error
        raise


def _files(folder: str, prefix: str) -> Iterator[ObjectInfo]:
    """All objects below a folder, in no order. Files that vanish meanwhile are not there."""
    pending = [(folder, prefix.rstrip("/"))]
    while pending:
        path, key = pending.pop()
        try:
            entries = list(os.scandir(path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            name = f"{key}/{entry.name}" if key else entry.name
            with suppress(FileNotFoundError):
                if entry.is_dir():
                    pending.append((entry.path, name))
                elif not entry.name.startswith(_STAGING):
                    stat = entry.stat()
                    yield ObjectInfo(name, stat.st_size, stat.st_mtime)


def make_folders(folder: str) -> None:
    """Creates a folder and its parents where they are missing, each of them durable. Raises OSError."""
    missing = []
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(missing):
        with suppress(FileExistsError):
            Path(path).mkdir()
        sync_path(os.path.dirname(path))


def sync_path(path: str) -> None:
    """Makes what a file holds, or the names in a folder, survive a crash of the machine. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:  # some file systems sync no folders; they have nothing better to offer
            raise
    finally:
        os.close(handle)
