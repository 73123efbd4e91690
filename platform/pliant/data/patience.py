"""Calls storage again while its faults pass: the one-off calls, such as listing and reading footers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import tenacity as tn

from pliant.data.faults import classify
from pliant.data.settings import ReadSettings
from pliant.errors import PliantError, StorageError

T = TypeVar("T")
_LONGEST_WAIT_S = 30.0
_DEFAULTS = ReadSettings()
_log = logging.getLogger("pliant.data")


def patiently(call: Callable[[], T], path: str, location: str, read: ReadSettings = _DEFAULTS) -> T:
    """Calls, and calls again after a wait that doubles, as long as the fault is one that passes.

    Args:
        call: reads something and changes nothing.
        path: as the filesystem knows it; its letters are no sign of a fault.
        location: for errors and the log.
        read: how many times, and how long the first wait is.

    Raises:
        StorageError: the fault did not pass, or reading is refused. Every other exception passes through.
    """

    def fault(error: BaseException) -> str:
        known = isinstance(error, Exception) and not isinstance(error, PliantError)
        return classify(error, path) if known else "other"

    retrying = tn.Retrying(
        retry=tn.retry_if_exception(lambda error: fault(error) == "passing"),
        wait=tn.wait_exponential(multiplier=read.backoff, max=_LONGEST_WAIT_S) + tn.wait_random(0, read.backoff),
        stop=tn.stop_after_attempt(read.retries + 1),
        before_sleep=lambda state: _log.warning("trying again in %.1f s  (%s)", state.upcoming_sleep, location),
        reraise=True,
    )
    try:
        return retrying(call)
    except Exception as error:
        if (kind := fault(error)) not in ("passing", "refused"):
            raise
        if kind == "passing":
            raise StorageError("data.passing", f"storage does not answer: {error}", location=location) from error
        raise StorageError("data.refused", f"storage refuses access: {error}", location=location) from error
