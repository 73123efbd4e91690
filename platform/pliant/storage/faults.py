"""What kind of fault an operation met: one that passes, or one that waiting does not mend. Pure."""

from __future__ import annotations

import errno
import re

from pliant.errors import StorageError

# Faults of a network file system or of a machine short of handles; they pass.
_PASSING_ERRNOS = frozenset(
    (
        errno.EIO,
        errno.EAGAIN,
        errno.EINTR,
        errno.EBUSY,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.ENOTCONN,
        errno.EPIPE,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOLCK,
    )
)
# 408 request timeout, 425 too early, 429 too many requests.
_PASSING_STATUS = frozenset((408, 425, 429))
# Where obstore looks for credentials when none are set.
_METADATA_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
_STATUS = re.compile(r"(?:status code: |status: )(\d{3})")


class PassingFault(Exception):
    """A fault that may be gone at the next try.

    Args:
        reason: one line for people.
        maybe_done: whether the operation may have been carried out although its answer was lost.
    """

    def __init__(self, reason: str, *, maybe_done: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.maybe_done = maybe_done


def full(location: str) -> StorageError:
    """There is no space left."""
    hint = "free space, or remove superseded checkpoints with `pliant gc`"
    return StorageError("storage.full", "no space is left for writing", hint=hint, location=location)


def denied(location: str, detail: str) -> StorageError:
    """Reading or writing is not permitted."""
    hint = "check the credentials and permissions of this process"
    return StorageError("storage.denied", f"access was denied: {detail}", hint=hint, location=location)


def from_os_error(error: OSError, location: str) -> Exception:
    """Classifies an error of the local file system.

    Returns:
        The error itself for FileNotFoundError and FileExistsError, else a PassingFault or a StorageError.
    """
    if isinstance(error, FileNotFoundError | FileExistsError):
        return error
    detail = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full(location)
    if error.errno == errno.EROFS:
        hint = "remount the file system for writing, or put the run elsewhere"
        return StorageError("storage.read-only", "the file system is read-only", hint=hint, location=location)
    if error.errno in (errno.EACCES, errno.EPERM):
        return denied(location, detail)
    if error.errno in _PASSING_ERRNOS:
        return PassingFault(detail)
    hint = "check the path: a folder where a file is expected, or a name that is too long"
    return StorageError("storage.refused", f"the file system refused: {detail}", hint=hint, location=location)


def from_object_error(error: Exception, location: str) -> Exception:
    """Classifies an error of an object store, which obstore reports as text with the HTTP status in it.

    Returns:
        FileNotFoundError, FileExistsError, a PassingFault or a StorageError.
    """
    text = str(error)
    detail = text.split("\n\nDebug source", 1)[0].replace("\n", " ")[:400]
    found = _STATUS.search(text)
    status = int(found.group(1)) if found else None
    if "NoSuchBucket" in text:
        hint = "create the bucket, or correct run.storage and the endpoint"
        return StorageError("storage.no-bucket", "the bucket does not exist", hint=hint, location=location)
    if isinstance(error, FileNotFoundError) or status == 404:
        return FileNotFoundError(f"{location} does not exist")
    if "ConditionalRequestConflict" in text or "OperationAborted" in text:
        return PassingFault(f"conflict with another request: {detail}", maybe_done=False)
    if status in (409, 412) or type(error).__name__ == "AlreadyExistsError":
        return FileExistsError(f"{location} exists")
    if status == 507 or "XMinioStorageFull" in text or "QuotaExceeded" in text:
        return full(location)
    if "ExpiredToken" in text or "RequestTimeTooSkewed" in text:
        return PassingFault(f"credentials are not valid now: {detail}", maybe_done=False)
    if status in (401, 403) or type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return denied(location, detail)
    if status is not None and status < 500 and status not in _PASSING_STATUS:
        hint = "check run.storage, the endpoint and the region"
        return StorageError("storage.refused", f"the object store refused: {detail}", hint=hint, location=location)
    if any(service in text for service in _METADATA_SERVICES):
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or the like, unless this machine has a role"
        return PassingFault(f"no credentials: the metadata service of a cloud machine does not answer; {hint}")
    # 503 and 429 say that nothing was done; other server errors and lost connections leave that open.
    return PassingFault(detail, maybe_done=status not in (429, 503))
