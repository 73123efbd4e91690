"""One HTTP request to a metadata service: no proxy, no redirect, no long answers, never longer than it may take."""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pliant.cluster.notices import MetadataError

_MOST_BYTES = 256 * 1024


@dataclass(frozen=True)
class Answer:
    """What a service said."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    text: str


def ask(
    method: str, url: str, headers: Mapping[str, str], *, timeout_s: float, body: str | None = None, wait_s: float = 0.0
) -> Answer:
    """The answer to one request, whatever its status.

    Args:
        method: GET, PUT or POST.
        url: of http alone: metadata services have no certificates.
        headers: of the request.
        timeout_s: for the connection, and for the answer.
        body: of the request.
        wait_s: how much longer than ``timeout_s`` the service may be silent first, when it was asked to wait.

    Raises:
        MetadataError: no connection, no answer in time, none that is HTTP, or one that is no text or too long.
    """
    try:
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
        try:
            connection.connect()
            if wait_s:
                connection.sock.settimeout(timeout_s + wait_s)
            connection.request(method, path, body=body, headers=dict(headers))
            response = connection.getresponse()
            data = _read(response, until=time.monotonic() + timeout_s)
        finally:
            connection.close()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, data.decode("utf-8"))
    except UnicodeDecodeError:
        raise MetadataError("the answer is no text") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise MetadataError(_reason(error)) from None


def _read(response: http.client.HTTPResponse, *, until: float) -> bytes:
    data = b""
    while chunk := response.read1(_MOST_BYTES):
        data += chunk
        if len(data) > _MOST_BYTES:
            raise MetadataError(f"the answer is longer than {_MOST_BYTES // 1024} KiB")
        if time.monotonic() > until:
            raise MetadataError("the answer does not end")
    return data


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    return str(error) or type(error).__name__
