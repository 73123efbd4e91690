"""S3, GCS and Azure through obstore, which knows create-if-absent on all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url

from pliant.storage.faults import from_object_error
from pliant.storage.settings import StorageSettings
from pliant.storage.types import ObjectInfo

PART = 16 * 2**20
"""Bytes per request of a large transfer: 160 GiB fit into the 10,000 parts that S3 allows."""
_CONCURRENT_PARTS = 4


class ObjectBackend:
    """Objects under ``prefix`` of a bucket or container.

    Args:
        bucket: ``s3://BUCKET``, ``gs://BUCKET`` or ``az://CONTAINER``.
        prefix: key prefix without slashes at its ends, may be empty.
        settings: request timeout, and how long part uploads are retried.
    """

    def __init__(self, bucket: str, prefix: str, settings: StorageSettings) -> None:
        self._base = f"{prefix}/" if prefix else ""
        self._uri = f"{bucket}/{self._base}"
        self._store = _connect(bucket, settings, retries=0)
        # The parts of a multipart upload cannot be repeated from outside, so there alone obstore retries.
        self._uploads = _connect(bucket, settings, retries=8)

    def child(self, prefix: str) -> ObjectBackend:
        """The objects below a folder, over the same connections."""
        below = copy(self)
        below._base = f"{self._base}{prefix}/"
        below._uri = f"{self._uri}{prefix}/"
        return below

    def put(self, key: str, data: bytes, *, create: bool) -> None:
        """Writes an object; FileExistsError when ``create`` and it exists."""
        with self.faults(key):
            if create:
                obstore.put(self._store, self._base + key, data, mode="create", use_multipart=False)
            else:
                obstore.put(self._store, self._base + key, data, chunk_size=PART, max_concurrency=_CONCURRENT_PARTS)

    def writer(self, key: str) -> ObjectWriter:
        """A multipart upload that is visible when it is closed."""
        return ObjectWriter(self, key)

    def open_upload(self, key: str) -> Any:
        """A multipart upload as obstore's file."""
        name = self._base + key
        with self.faults(key):
            return obstore.open_writer(self._uploads, name, buffer_size=PART, max_concurrency=_CONCURRENT_PARTS)

    def get(self, key: str) -> bytes:
        with self.faults(key):
            answer = obstore.get(self._store, self._base + key)
            size = int(answer.meta["size"])
            if size <= PART:
                return bytes(answer.bytes())
        return self.get_range(key, 0, size)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        parts = []
        for offset in range(start, stop, PART):
            with self.faults(key):
                end = min(offset + PART, stop)
                parts.append(bytes(obstore.get_range(self._store, self._base + key, start=offset, end=end)))
            if len(parts[-1]) < end - offset:
                break
        return b"".join(parts)

    def head(self, key: str) -> ObjectInfo:
        with self.faults(key):
            return self._info(obstore.head(self._store, self._base + key))

    def list(self, prefix: str) -> list[ObjectInfo]:
        with self.faults(prefix):
            pages = obstore.list(self._store, (self._base + prefix) or None)
            return [self._info(meta) for page in pages for meta in page]

    def folders(self) -> Sequence[str]:
        with self.faults(""):
            found = obstore.list_with_delimiter(self._store, self._base or None)
            return [str(prefix).rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

    def delete(self, key: str) -> None:
        with self.faults(key):
            try:
                obstore.delete(self._store, self._base + key)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise

    def _info(self, meta: Any) -> ObjectInfo:
        return ObjectInfo(meta["path"][len(self._base) :], meta["size"], meta["last_modified"].timestamp())

    @contextmanager
    def faults(self, key: str) -> Iterator[None]:
        """Turns obstore's errors into passing faults and storage errors."""
        try:
            yield
        except (BaseError, OSError) as error:
            raise from_object_error(error, self._uri + key) from error


class ObjectWriter:
    """Keeps the first part in memory: a small object is one put, which the store repeats as a whole."""

    def __init__(self, backend: ObjectBackend, key: str) -> None:
        self._backend = backend
        self._key = key
        self._head = bytearray()
        self._upload: Any = None
        self.closed = False

    def write(self, data: Any) -> int:
        """Appends bytes or any buffer; returns their number."""
        view = memoryview(data).cast("B")
        if self._upload is None and len(self._head) + len(view) <= PART:
            self._head += view
        else:
            with self._backend.faults(self._key):
                if self._upload is None:
                    self._upload = self._backend.open_upload(self._key)
                    self._upload.write(bytes(self._head))
                    self._head.clear()
                self._upload.write(view)
        return len(view)

    def close(self) -> None:
        """Publishes the object; may be called again when it raised PassingFault and the object is small."""
        if self.closed:
            return
        if self._upload is None:
            self._backend.put(self._key, bytes(self._head), create=False)
        else:
            with self._backend.faults(self._key):
                self._upload.close()
        self.closed = True

    def abort(self) -> None:
        """Discards what was written. Uploaded parts stay invisible until the bucket's lifecycle rule drops them."""
        self._upload = None
        self.closed = True

    @property
    def repeatable(self) -> bool:
        """Whether ``close`` may be tried again."""
        return self._upload is None


def endpoint() -> str:
    """URL of the S3 server that the environment names; empty where it names none."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _connect(bucket: str, settings: StorageSettings, *, retries: int) -> ObjectStore:
    timeout = timedelta(seconds=settings.request_timeout)
    client: dict[str, Any] = {"timeout": timeout, "connect_timeout": min(timeout, timedelta(seconds=5))}
    if urlsplit(endpoint()).scheme == "http":  # whoever writes that means it, as every other S3 client takes it
        client["allow_http"] = True
    retry: Any = {"max_retries": retries, "retry_timeout": timedelta(seconds=min(settings.retry_for, 240.0))}
    return from_url(bucket, client_options=client, retry_config=retry)
