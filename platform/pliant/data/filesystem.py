"""Opens the filesystem a dataset lies on: a local path, ``s3://``, ``gs://``, ``az://`` or any URI fsspec knows."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyarrow import ArrowInvalid, fs

from pliant.errors import ConfigError

_CONNECT_TIMEOUT_S = 10
_REQUEST_TIMEOUT_S = 30


def dataset_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """Opens the filesystem of a dataset and names its root there. Does not look whether the dataset exists.

    S3 takes endpoint, region and credentials from the usual environment: ``AWS_ENDPOINT_URL_S3`` or
    ``AWS_ENDPOINT_URL`` (http is allowed), ``AWS_REGION`` or ``AWS_DEFAULT_REGION``, ``AWS_ACCESS_KEY_ID`` ….

    Args:
        uri: a local path (``~`` and relative ones too), ``file://``, ``s3://``, ``gs://``, ``az://`` or another URI.

    Returns:
        The filesystem (safe to share between threads, picklable) and the dataset's path on it, without a
        trailing slash.

    Raises:
        ConfigError: no filesystem is known for the URI.
    """
    if "://" not in uri:
        return fs.LocalFileSystem(), str(Path(uri).expanduser().absolute())
    parts = urlsplit(uri)
    path = parts.netloc + parts.path.rstrip("/")
    if parts.scheme == "file":
        return fs.LocalFileSystem(), str(Path(unquote(parts.path)))
    if parts.scheme in ("s3", "s3a"):
        return _s3(parts.netloc), path
    if parts.scheme in ("gs", "gcs"):
        return fs.GcsFileSystem(), path
    return _by_fsspec(uri, parts.scheme), path


def _s3(bucket: str) -> fs.FileSystem:
    env = os.environ.get
    return _s3_client(
        bucket,
        endpoint=env("AWS_ENDPOINT_URL_S3") or env("AWS_ENDPOINT_URL"),
        region=env("AWS_REGION") or env("AWS_DEFAULT_REGION"),
        access_key=env("AWS_ACCESS_KEY_ID"),
        secret_key=env("AWS_SECRET_ACCESS_KEY"),
        session_token=env("AWS_SESSION_TOKEN"),
    )


@lru_cache(maxsize=16)
def _s3_client(
    bucket: str, *, endpoint: str | None, region: str | None, access_key: str | None, **secrets: str | None
) -> fs.FileSystem:
    """One client a process and account, so that reads share its connections."""
    keys = {"access_key": access_key, **secrets} if access_key else {}  # none: roles, profiles and metadata services
    options = {**keys, "connect_timeout": _CONNECT_TIMEOUT_S, "request_timeout": _REQUEST_TIMEOUT_S}
    if not endpoint:
        return fs.S3FileSystem(region=region or fs.resolve_s3_region(bucket), **options)
    scheme, _, address = endpoint.rpartition("://")
    # Servers with an endpoint of their own have no regions to ask for; the signature still needs a name.
    return fs.S3FileSystem(
        region=region or "us-east-1", endpoint_override=address.rstrip("/"), scheme=scheme or "https", **options
    )


def _by_fsspec(uri: str, scheme: str) -> fs.FileSystem:
    """Azure and the rest through fsspec: pyarrow has no Azure in all of its builds."""
    import fsspec  # type: ignore[import-untyped]

    try:
        return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme)))
    except (ValueError, ImportError, ArrowInvalid) as error:
        raise ConfigError(
            "data.filesystem",
            f"no filesystem is known for {scheme}:// ({error})",
            hint="use a local path, s3://, gs:// or az://, or install the fsspec package of that storage",
            location=uri,
        ) from error
