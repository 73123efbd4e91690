"""Tells a read that may succeed next time from one that never will. Pure."""

from __future__ import annotations

import errno
import re
from typing import Literal

import pyarrow as pa

Fault = Literal["passing", "missing", "refused", "damage", "other"]

_PASSING = re.compile(
    r"""\b(status|code|error)\W{0,3}(429|500|502|503|504)\b | slow.?down | too.?many.?requests | rate.?limit | throttl
    | \bunavailable\b | exhausted | internal.?(failure|server|error) | bad.gateway | time[sd]?.?out
    | deadline.?exceeded | connection | disconnect | network | broken.pipe | curl | try.again | incomplete.?read
    | \breset\b""",
    re.IGNORECASE | re.VERBOSE,
)
_MISSING = re.compile(r"\bstatus.404\b|no.?such.?(file|key|bucket)|path does not exist", re.IGNORECASE)
_REFUSED = re.compile(
    r"\bstatus.40[13]\b|(access|permission).?denied|forbidden|unauthenticated|unauthori[sz]ed|credential|signature",
    re.IGNORECASE,
)
_BY_STATUS: dict[object, Fault] = {401: "refused", 403: "refused", 404: "missing"}
_BY_STATUS |= dict.fromkeys((429, 500, 502, 503, 504), "passing")
_PASSING_ERRNO = {
    errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH,
    errno.EINTR, errno.EIO, errno.EMFILE, errno.ENETDOWN, errno.ENETUNREACH, errno.ENFILE, errno.EPIPE,
    errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip


def classify(error: BaseException, path: str) -> Fault:
    """What an exception from reading ``path`` means.

    Libraries wrap storage's answers in types of their own (pyarrow: OSError with the S3 error's name in its text;
    fsspec: aiohttp's and the clouds' own), so that the text decides where type and errno do not.

    Returns:
        ``passing``: storage was busy, slow or cut off. ``missing``: there is no such object. ``refused``: it may
        not be read. ``damage``: as far as the text can tell, the bytes came and are wrong. ``other``: none of
        these, such as too little memory.
    """
    if isinstance(error, MemoryError):
        return "other"
    if isinstance(error, FileNotFoundError):
        return "missing"
    if isinstance(error, PermissionError):
        return "refused"
    if isinstance(error, TimeoutError | ConnectionError):
        return "passing"
    if isinstance(error, OSError) and error.errno in _PASSING_ERRNO:
        return "passing"
    for name in ("status", "status_code", "code"):  # aiohttp's, requests' and gcsfs' errors
        if (fault := _BY_STATUS.get(getattr(error, name, None))) is not None:
            return fault
    text = f"{type(error).__name__} {error}".replace(path, "")  # a file may be called timeout-503.parquet
    if _MISSING.search(text):
        return "missing"
    if _REFUSED.search(text):
        return "refused"
    if _PASSING.search(text):
        return "passing"
    return "damage" if isinstance(error, OSError | pa.ArrowException) else "other"
