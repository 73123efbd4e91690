"""One way to read and write objects, on a local path, S3, GCS or Azure alike.

Every call is retried while its fault is one that passes, for ``retry_for`` seconds, then raises StorageError
(``storage.unavailable``). What waiting does not mend raises StorageError at once: no space, read-only, denied.
"""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from pliant.errors import ConfigError, StorageError
from pliant.storage.faults import PassingFault
from pliant.storage.local import LocalBackend
from pliant.storage.objects import ObjectBackend
from pliant.storage.settings import OBJECT_SCHEMES, StorageSettings
from pliant.storage.types import Backend, ObjectInfo, Sink

__all__ = ["ObjectInfo", "Store", "StoreReader", "StoreWriter"]

T = TypeVar("T")
OnWait = Callable[[str, float], None]

_KEY = re.compile(r"[A-Za-z0-9_.=+@,:-]+(/[A-Za-z0-9_.=+@,:-]+)*")
_LONGEST_PAUSE = 5.0
"""Seconds between two tries at most, so that work goes on soon after storage is back."""
_READ_AHEAD = 4 * 2**20
_WARN_AFTER_S, _WARN_EVERY_S = 1.0, 10.0
_log = logging.getLogger(__name__)


class Store:
    """Objects under a URI. Safe to use from several threads; pickles as URI and settings, without ``on_wait``.

    Args:
        uri: a path, ``file://``, ``s3://BUCKET/PREFIX``, ``gs://…`` or ``az://CONTAINER/…``.
        settings: how long to retry.
        on_wait: called with (reason, seconds waited so far) before every pause of a call that waits; default: a warning
            in the log of Python, every 10 s.

    Raises:
        ConfigError: the URI is none of these.
    """

    def __init__(self, uri: str, settings: StorageSettings, *, on_wait: OnWait | None = None) -> None:
        self.uri = normalize(uri)
        self._settings = settings
        self._on_wait = on_wait or _warn
        self._backend = _backend(self.uri, settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Store, (self.uri, self._settings))

    def __repr__(self) -> str:
        return f"Store({self.uri!r})"

    @property
    def settings(self) -> StorageSettings:
        """The settings it was made with."""
        return self._settings

    def child(self, prefix: str) -> Store:
        """The store of everything under ``prefix``."""
        below = object.__new__(Store)
        below.uri = f"{self.uri}/{_checked(prefix)}"
        below._settings, below._on_wait = self._settings, self._on_wait
        below._backend = self._backend.child(prefix)
        return below

    @property
    def is_local(self) -> bool:
        """Whether objects are files here."""
        return isinstance(self._backend, LocalBackend)

    def local_path(self, key: str = "") -> Path:
        """The file of an object in a local store."""
        return Path(self.uri) / key

    def put(self, key: str, data: bytes) -> None:
        """Writes an object, replacing any. Durable when it returns."""
        self._try(lambda: self._backend.put(_checked(key), data, create=False), key)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Creates an object; False when it exists already, then nothing is changed.

        A create whose answer was lost may have succeeded. When the next try finds an object, its bytes tell
        whose it is: ``data`` must therefore differ from what any other writer of the key may write.
        """
        _checked(key)
        unanswered = False

        def create() -> bool:
            nonlocal unanswered
            try:
                self._backend.put(key, data, create=True)
            except FileExistsError:
                return unanswered and self._backend.get(key) == data
            except PassingFault as fault:
                unanswered = unanswered or fault.maybe_done
                raise
            return True

        return self._try(create, key)

    def extend(self, key: str, size: int, data: bytes) -> None:
        """Local stores only: makes an object consist of its first ``size`` bytes and ``data``, durably.

        Readers may see part of it meanwhile.
        """
        backend = self._backend
        if not isinstance(backend, LocalBackend):
            raise TypeError("objects on object storage cannot be extended")
        self._try(lambda: backend.extend(_checked(key), size, data), key)

    def get(self, key: str) -> bytes:
        """An object's bytes; FileNotFoundError when there is none."""
        return self._try(lambda: self._backend.get(_checked(key)), key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of an object, fewer at its end. ``start`` must lie within it."""
        if stop <= start:
            return b""
        return self._try(lambda: self._backend.get_range(_checked(key), start, stop), key)

    def head(self, key: str) -> ObjectInfo | None:
        """Size and time of an object; None when there is none."""
        try:
            return self._try(lambda: self._backend.head(_checked(key)), key)
        except FileNotFoundError:
            return None

    def list(self, prefix: str = "", after: str | None = None) -> list[ObjectInfo]:
        """All objects in the folder ``prefix`` and below, sorted by key; keys are relative to the store.

        Args:
            prefix: a folder, with or without a slash at its end; empty for everything.
            after: only keys above this one.
        """
        folder = _checked(prefix.rstrip("/")) if prefix else ""
        found = self._try(lambda: self._backend.list(folder), folder)
        return sorted((o for o in found if after is None or o.key > after), key=lambda o: o.key)

    def folders(self) -> Sequence[str]:
        """Names of the folders at the top, sorted; on object storage without listing what is in them."""
        return sorted(name for name in self._try(self._backend.folders, "") if _KEY.fullmatch(name))

    def delete(self, key: str) -> None:
        """Removes an object; nothing happens when there is none."""
        self._try(lambda: self._backend.delete(_checked(key)), key)

    def open_reader(self, key: str, *, read_ahead: int = _READ_AHEAD) -> io.BufferedReader:
        """A seekable binary file of an object; FileNotFoundError when there is none."""
        size = self._try(lambda: self._backend.head(_checked(key)), key).size
        return io.BufferedReader(StoreReader(self, key, size), read_ahead)

    def open_writer(self, key: str) -> StoreWriter:
        """A binary file that becomes the object, replacing any, when it is closed."""
        return StoreWriter(self, key, self._try(lambda: self._backend.writer(_checked(key)), key))

    def _try(self, call: Callable[[], T], key: str) -> T:
        start = time.monotonic()

        def waiting(state: RetryCallState) -> None:
            if state.outcome is not None:
                self._on_wait(str(state.outcome.exception()), time.monotonic() - start)

        retrying = Retrying(
            retry=retry_if_exception_type(PassingFault),
            wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE),
            stop=stop_after_delay(self._settings.retry_for),
            before_sleep=waiting,
            reraise=True,
        )
        try:
            return retrying(call)
        except PassingFault as fault:
            raise self._unavailable(key, fault, time.monotonic() - start) from fault

    def _unavailable(self, key: str, fault: PassingFault, seconds: float) -> StorageError:
        message = f"storage did not answer usefully for {seconds:.0f} s: {fault.reason}"
        hint = "resume the run when the storage is back; run.store.retry_for sets how long to wait"
        return StorageError("storage.unavailable", message, hint=hint, location=f"{self.uri}/{key}")


class StoreReader(io.RawIOBase):
    """Reads an object by ranges, each of them retried."""

    def __init__(self, store: Store, key: str, size: int) -> None:
        super().__init__()
        self._store, self._key, self._size, self._position = store, key, size, 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Bytes from the start."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves; returns the new position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"position {base + offset} is before the start")
        self._position = base + offset
        return self._position

    def readall(self) -> bytes:
        """Everything from here to the end."""
        data = self._store.get_range(self._key, self._position, self._size)
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer; returns the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        stop = min(self._position + len(view), self._size)
        if stop <= self._position:
            return 0
        data = self._store.get_range(self._key, self._position, stop)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


class StoreWriter:
    """Writes an object; leaving a ``with`` by an exception, or dropping the writer, leaves nothing visible.

    A fault in the middle of a large upload raises StorageError: the caller writes the object anew.
    """

    def __init__(self, store: Store, key: str, sink: Sink) -> None:
        self._store, self._key, self._sink = store, key, sink
        self._written = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Appends bytes or any buffer; returns their number. Raises StorageError."""
        try:
            count = self._sink.write(data)
        except PassingFault as fault:
            raise self._store._unavailable(self._key, fault, 0.0) from fault
        self._written += count
        return count

    def tell(self) -> int:
        """Bytes written so far."""
        return self._written

    def writable(self) -> bool:
        """True."""
        return True

    def flush(self) -> None:
        """Does nothing: an object is visible when it is complete."""

    def close(self) -> None:
        """Publishes the object, durably. Raises StorageError."""
        if self.closed:
            return
        self.closed = True
        try:
            if self._sink.repeatable:
                self._store._try(self._sink.close, self._key)
            else:
                self._sink.close()
        except PassingFault as fault:
            raise self._store._unavailable(self._key, fault, 0.0) from fault
        finally:
            self._sink.abort()

    def abort(self) -> None:
        """Discards what was written; does nothing after ``close``."""
        self.closed = True
        self._sink.abort()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def normalize(uri: str) -> str:
    """The one spelling of a storage URI: an absolute path, or ``scheme://bucket/prefix`` without a slash at its end.

    Raises:
        ConfigError: unknown scheme, or a bucket is missing.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return str(Path(uri).expanduser().absolute())
    if scheme == "file":
        return str(Path(unquote(urlsplit(uri).path)).absolute())
    bucket, _, prefix = rest.partition("/")
    if scheme not in OBJECT_SCHEMES or not bucket:
        allowed = "a local path, file:///PATH, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
        raise ConfigError("storage.uri", f"{uri!r} cannot be used as storage; allowed is {allowed}", location=uri)
    prefix = prefix.strip("/")
    return f"{scheme}://{bucket}" + (f"/{_checked(prefix)}" if prefix else "")


def _backend(uri: str, settings: StorageSettings) -> Backend:
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return LocalBackend(uri)
    bucket, _, prefix = rest.partition("/")
    return ObjectBackend(f"{scheme}://{bucket}", prefix, settings)


_warned_at = float("-inf")


def _warn(reason: str, waited_s: float) -> None:
    """Says that something waits, once for all that wait at the same time."""
    global _warned_at
    if waited_s >= _WARN_AFTER_S and time.monotonic() - _warned_at > _WARN_EVERY_S:
        _warned_at = time.monotonic()
        _log.warning("waiting for storage since %.0f s: %s", waited_s, reason)


def _checked(key: str) -> str:
    """A key means the same on every storage: plain characters, no empty or relative parts."""
    if not _KEY.fullmatch(key) or any(part in (".", "..") for part in key.split("/")):
        allowed = "letters, digits and _ . = + @ , : - in parts separated by single slashes"
        raise ConfigError("storage.key", f"{key!r} cannot be a name in storage; allowed are {allowed}", location=key)
    return key
