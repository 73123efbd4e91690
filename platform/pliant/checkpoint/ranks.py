"""The ranks that save or restore together. No rank is left alone in a collective when another one fails.

Every step below ends on all ranks in the same way: with the same result, or with the same error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch.distributed as dist

from pliant.errors import FencedError, PliantError, StorageError

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)


class Ranks:
    """The members of one gloo group; a process alone needs none.

    Args:
        group: group of all ranks with CPU collectives, used by one thread at a time; None for a single process.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        self.rank = dist.get_rank(group) if group is not None else 0
        self.size = dist.get_world_size(group) if group is not None else 1

    @property
    def root(self) -> bool:
        return self.rank == 0

    def gather(self, name: str, work: Callable[[], T]) -> list[T]:
        """Runs ``work`` on every rank and gives every rank all results, in rank order.

        Raises:
            PliantError: the gravest error of any rank, on every rank.
        """
        outcome = _attempt(name, self.rank, work)
        outcomes: list[Any] = [outcome]
        if self.group is not None:
            outcomes = [None] * self.size
            dist.all_gather_object(outcomes, outcome, group=self.group)
        _raise_gravest(outcomes)
        return outcomes

    def reduce(self, name: str, work: Callable[[], T], combine: Callable[[list[T]], R]) -> R:
        """Runs ``work`` on every rank and ``combine`` over the results on rank 0; every rank gets its result.

        Raises:
            PliantError: the gravest error of any rank, on every rank.
        """
        outcome = _attempt(name, self.rank, work)
        outcomes: list[Any] | None = [outcome]
        if self.group is not None:
            outcomes = [None] * self.size if self.root else None
            dist.gather_object(outcome, outcomes, group=self.group, group_dst=0)
        combined: list[Any] = [None]
        if outcomes is not None:
            values = outcomes
            failed = [o for o in values if isinstance(o, _Failure)]
            combined = [_gravest(failed) if failed else _attempt(name, self.rank, lambda: combine(values))]
        if self.group is not None:
            dist.broadcast_object_list(combined, group=self.group, group_src=0)
        _raise_gravest(combined)
        return combined[0]

    def at_root(self, name: str, work: Callable[[], R]) -> R:
        """Runs ``work`` on rank 0; every rank gets its result or its error."""
        return self.reduce(name, lambda: None, lambda _: work())


class _Failure:
    """An error on its way to the other ranks."""

    def __init__(self, error: PliantError) -> None:
        self.error = error


def _attempt(name: str, rank: int, work: Callable[[], T]) -> T | _Failure:
    try:
        return work()
    except PliantError as error:
        return _Failure(error)
    except Exception as error:
        _log.exception("checkpoint: %s failed on rank %d", name, rank)
        message = f"{name} failed on rank {rank}: {type(error).__name__}: {error}"
        return _Failure(PliantError("checkpoint.failed", message))


def _gravest(failures: Sequence[_Failure]) -> _Failure:
    """Fencing ends everything; an error that waiting may mend counts only where there is no other."""

    def gravity(failure: _Failure) -> int:
        return 2 if isinstance(failure.error, FencedError) else 0 if isinstance(failure.error, StorageError) else 1

    return max(failures, key=gravity)


def _raise_gravest(outcomes: Sequence[Any]) -> None:
    failures = [o for o in outcomes if isinstance(o, _Failure)]
    if failures:
        raise _gravest(failures).error
