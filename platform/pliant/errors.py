"""Errors a user can meet: what was found, where, what is allowed and what to do.

Every error carries the process's exit code, so that the command line has nothing to decide:

    0 done · 1 the user's code failed · 2 bad usage or config · 3 cannot be scheduled ·
    4 infrastructure or damage · 75 stopped but resumable · 130 interrupted after a checkpoint

Whoever raises one has tried again already where that could help, so that it ends the run, resumable. The one
exception is a background save: that of a checkpoint which storage refused is tried again from its copy.
All of them survive pickling, because they cross process borders inside Ray.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

EXIT_DONE = 0
EXIT_USER = 1
EXIT_USAGE = 2
EXIT_UNSCHEDULABLE = 3
EXIT_INFRASTRUCTURE = 4
EXIT_STOPPED = 75
EXIT_INTERRUPTED = 130


class PliantError(Exception):
    """Base of every error Pliant raises on purpose.

    Args:
        code: stable machine-readable name, ``area.problem`` (``config.unknown-key``).
        message: what was found and what is allowed, one sentence or a short list.
        hint: what to do about it; empty when the message says it.
        location: file:line:column, key, URI or object name; empty when there is none.
    """

    exit_code: int = EXIT_INFRASTRUCTURE

    def __init__(self, code: str, message: str, *, hint: str = "", location: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.hint = hint
        self.location = location

    def __str__(self) -> str:
        where = f"{self.location}  " if self.location else ""
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"error[{self.code}] {where}{self.message}{hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.code, self.message, self.hint, self.location))


def _rebuild(kind: type[PliantError], code: str, message: str, hint: str, location: str) -> PliantError:
    return kind(code, message, hint=hint, location=location)


class ConfigError(PliantError):
    """Settings or arguments that cannot be used. Exit code 2."""

    exit_code = EXIT_USAGE


class UsageError(PliantError):
    """A command that cannot be carried out as given (unknown run, live owner, frozen setting). Exit code 2."""

    exit_code = EXIT_USAGE


class UnschedulableError(PliantError):
    """The cluster can never hold what was asked for. Exit code 3."""

    exit_code = EXIT_UNSCHEDULABLE


class DamageError(PliantError):
    """Bytes that are provably wrong: shard, checkpoint, manifest or record. Exit code 4."""


class StorageError(PliantError):
    """Storage that could not be read or written within its time limit. Exit code 4."""


class FencedError(PliantError):
    """A newer attempt has claimed the run: this process must stop writing. Exit code 75."""

    exit_code = EXIT_STOPPED


class BudgetError(PliantError):
    """A run that has come back too often, or too often without getting on. Exit code 75, or 4."""

    exit_code = EXIT_STOPPED


class UserCodeError(PliantError):
    """An exception raised inside a pipeline's own code, which is its ``__cause__``. Exit code 1."""

    exit_code = EXIT_USER
    _carried: str | None = None

    @property
    def frames(self) -> str:
        """The cause's traceback, the user's frames alone; empty when the error was raised without a cause. It crosses
        process borders, where the cause itself may not: its type may be known to the pipeline alone."""
        if self._carried is not None:
            return self._carried
        return user_frames(self.__cause__) if self.__cause__ is not None else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), {"_carried": self.frames})


def user_frames(error: BaseException) -> str:
    """The traceback of an error in user code, without what Pliant and the libraries that call it did around it.

    Empty when nothing is left: then the error's own line says all there is.
    """
    shown = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = shown
    frames = 0
    while link is not None:
        own = [frame for frame in link.stack if not frame.filename.startswith(_callers()) and not _is_compiled(frame)]
        # Where user code was called by a library alone (in backward, say), that library's lines are all there is.
        outside = [frame for frame in link.stack if not frame.filename.startswith(_OURS)]
        link.stack = traceback.StackSummary.from_list(own or outside)
        frames += len(link.stack)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return "".join(shown.format()) if frames else ""


_OURS = (f"{Path(__file__).resolve().parent}/", "<frozen ")


def _is_compiled(frame: traceback.FrameSummary) -> bool:
    """Whether it is a line of a Cython module, whose file is not there to look at."""
    return frame.filename.endswith((".pyx", ".pxi", ".pxd"))


@cache
def _callers() -> tuple[str, ...]:
    """Path prefixes of the code that calls user code, and that user code is called through."""
    specs = [find_spec(name) for name in ("torch", "ray")]
    return (*_OURS, *(f"{Path(spec.origin).parent}/" for spec in specs if spec is not None and spec.origin))


def listed(lines: Sequence[str], most: int) -> str:
    """Lines for the end of a message, each on its own, at most so many; how many more there are is said."""
    more = [f"… and {len(lines) - most} more"] if len(lines) > most else []
    return "".join(f"\n  {line}" for line in [*lines[:most], *more])
