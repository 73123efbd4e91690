"""Why a group ended, from the errors of its workers: the one that explains the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ray

from pliant.elastic.budget import Failure
from pliant.elastic.gate import LeftError
from pliant.elastic.peers import lost_peer
from pliant.errors import PliantError, StorageError, UserCodeError

_BROKEN_OFF = ("checkpoint.broken-off", "checkpoint.peer-silent")
"""What a rank says whose save another rank's loss has ended."""
_OOM = "oom"
SILENT_S = 3.0
"""After which a worker that does not answer is looked into."""


@dataclass(frozen=True)
class Ended:
    """How a group ended.

    Attributes:
        failure: what is charged; None where trying again is no use.
        error: what to end the run with, if it has to end.
        ranks: those that it began with.
    """

    failure: Failure | None
    error: PliantError
    ranks: tuple[int, ...] = ()


def explain(errors: Mapping[int, BaseException], *, step: int | None, gone: Mapping[int, str]) -> Ended:
    """What ended a group.

    Args:
        errors: what each failed rank raised.
        step: that the group was at, for a user's error.
        gone: ranks whose node drains or is lost, and what is to be said of it.
    """
    errors = {rank: error for rank, error in errors.items() if not _has_left(error)} or errors
    own = {rank: found for rank in sorted(errors) if (found := _own(errors[rank])) is not None}
    users = {rank: error for rank, error in own.items() if isinstance(error, UserCodeError)}
    if users:
        rank, error = next(((r, e) for r, e in users.items() if e.location), next(iter(users.items())))
        first = error.message.partition("\n")[0]
        return Ended(Failure("user", f"{error.code}: {first}", step, f"{error.code} {first}"), error, (rank,))
    final = {rank: error for rank, error in own.items() if error.code not in _BROKEN_OFF}
    if final:
        rank, told = next(((r, e) for r, e in final.items() if e.location), next(iter(final.items())))
        return Ended(None, told, (rank,))
    dead = {rank: error for rank, error in errors.items() if is_dead(error)}
    for rank in sorted(errors):
        if rank not in dead and rank not in own and not _of_a_loss(errors[rank]):
            error = UserCodeError("worker.failed", f"rank {rank} raised:\n{errors[rank]}")
            kind = f"{type(errors[rank]).__name__}: {str(errors[rank]).partition(chr(10))[0]}"
            return Ended(Failure("user", f"rank {rank} raised {kind}", step, kind), error, (rank,))
    ranks = tuple(sorted(dead)) or tuple(sorted(errors))
    killed = [rank for rank, error in dead.items() if _out_of_memory(error)]
    text = _lost(ranks, bool(dead), gone)
    lost = StorageError("cluster.worker-lost", text, hint="resume the run")
    if killed:
        text = f"{_named(killed)} took more memory than the node has, and Ray killed it"
        return Ended(Failure("user", text, step, _OOM), UserCodeError("worker.out-of-memory", text), tuple(killed))
    preempted = any(rank in gone and "goes away" in gone[rank] for rank in ranks)
    preempted = preempted or any(_announced(error) for error in dead.values())
    return Ended(Failure("preemption" if preempted else "infrastructure", text, step), lost, ranks)


def left(errors: Mapping[int, BaseException]) -> bool:
    """Whether the group left as it was asked to: one worker that did knows that the checkpoint is committed. Of the
    others some may be gone since, with their machines, or have noticed no more than that."""
    rest = [error for error in errors.values() if not _has_left(error)]
    return len(rest) < len(errors) and all(is_dead(error) or only_noticed(error) for error in rest)


def is_dead(failure: BaseException) -> bool:
    """Whether a worker was killed or answers no more. Ray Train's types for it are no part of its API."""
    return isinstance(failure, ray.exceptions.RayActorError) or type(failure).__name__.startswith("WorkerHealthCheck")


def only_noticed(error: BaseException) -> bool:
    """Whether a rank says no more than that another one is gone."""
    own = _own(error)
    return _of_a_loss(error) or (own is not None and own.code in _BROKEN_OFF)


def _of_a_loss(error: BaseException) -> bool:
    """Whether it is what the loss of a process or machine looks like from inside a worker: broken collectives, and what
    Ray says of objects that were there. What a task raised is its own."""
    of_ray = isinstance(error, ray.exceptions.RayError) and not isinstance(error, ray.exceptions.RayTaskError)
    return not is_dead(error) and (of_ray or lost_peer(error))


def _has_left(error: BaseException) -> bool:
    return _cause(error, LeftError) is not None


def _lost(ranks: tuple[int, ...], dead: bool, gone: Mapping[int, str]) -> str:
    reasons = sorted({gone[rank] for rank in ranks if rank in gone})
    about = f": {'; '.join(reasons)}" if reasons else ""
    return f"{_named(ranks)} {'died' if dead else 'lost the others'}{about}"


def _named(ranks: tuple[int, ...] | list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _out_of_memory(error: BaseException) -> bool:
    inner = getattr(error, "health_check_failure", error)
    # An actor's death has no type for it; this is how Ray's memory monitor words it.
    return isinstance(inner, ray.exceptions.OutOfMemoryError) or "running low on memory" in str(inner)


def _announced(error: BaseException) -> bool:
    inner = getattr(error, "health_check_failure", error)
    return bool(getattr(inner, "preempted", False))


def _own(error: BaseException) -> PliantError | None:
    found = _cause(error, PliantError)
    return found if isinstance(found, PliantError) else None


def _cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """The first of this kind along the chain of what wraps what."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, kind):
            return error
        error = getattr(error, "_base_exc", None) or getattr(error, "cause", None) or error.__cause__
    return None
