"""Types that the parts of storage share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class ObjectInfo:
    """One object in a listing.

    Attributes:
        key: name relative to the store.
        size: bytes.
        modified: seconds since 1970 by the storage's own clock; whole seconds on some object stores.
    """

    key: str
    size: int
    modified: float


class Sink(Protocol):
    """An object under construction: visible after ``close``, gone after ``abort``."""

    @property
    def repeatable(self) -> bool:
        """Whether ``close`` may be tried again after a passing fault."""
        ...

    def write(self, data: Any) -> int: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Backend(Protocol):
    """One try of each operation.

    All raise FileNotFoundError for a missing object, FileExistsError for a refused create, PassingFault for
    what another try may mend, and StorageError for what it cannot.
    """

    def child(self, prefix: str) -> Backend: ...
    def put(self, key: str, data: bytes, *, create: bool) -> None: ...
    def writer(self, key: str) -> Sink: ...
    def get(self, key: str) -> bytes: ...
    def get_range(self, key: str, start: int, stop: int) -> bytes: ...
    def head(self, key: str) -> ObjectInfo: ...
    def list(self, prefix: str) -> list[ObjectInfo]: ...
    def folders(self) -> Sequence[str]: ...
    def delete(self, key: str) -> None: ...
