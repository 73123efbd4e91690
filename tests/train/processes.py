"""Worker groups for tests: processes with a gloo group over a file, forked from a server that has torch loaded."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import psutil

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed.fsdp", "torch.distributed.checkpoint", "pyarrow.parquet"])

KILLED = "killed"
"""Result of a worker that was killed by SIGKILL."""


class Group:
    """A running worker group.

    Args:
        world_size: workers.
        function: called as ``function(*args)`` in every worker, with a gloo group as the default one.
    """

    def __init__(self, world_size: int, function: Callable[..., Any], *args: Any) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._pipes, self._members = [], []
        for rank in range(world_size):
            here, there = _CONTEXT.Pipe(duplex=False)
            member = _CONTEXT.Process(
                target=_member,
                args=(rank, world_size, f"{self._folder.name}/group", there, dict(os.environ), function, args),
                daemon=True,
            )
            member.start()
            there.close()
            self._pipes.append(here)
            self._members.append(member)

    @property
    def pids(self) -> list[int]:
        return [member.pid for member in self._members if member.pid is not None]

    @property
    def running(self) -> bool:
        return all(member.is_alive() for member in self._members)

    def wait_until_stopped(self) -> None:
        """Returns when every worker has been stopped by a signal."""
        for pid in self.pids:
            while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
                time.sleep(0.02)

    def wait_until_ended(self, rank: int) -> None:
        self._members[rank].join()

    def signal(self, number: int) -> None:
        for pid in self.pids:
            os.kill(pid, number)

    def results(self) -> list[Any]:
        """Results by rank; KILLED for a worker that was. When one is killed the others are too, as a host would be.

        Raises:
            RuntimeError: with the traceback of the lowest rank that failed.
        """
        outcome: dict[int, Any] = {}
        errors: dict[int, str] = {}
        waiting = dict(zip(self._pipes, range(len(self._pipes)), strict=True))
        try:
            while waiting:
                for pipe in wait(list(waiting)):
                    rank = waiting.pop(pipe)  # type: ignore[call-overload]
                    try:
                        value, error = pipe.recv()  # type: ignore[union-attr]
                    except EOFError:
                        self._members[rank].join()
                        if self._members[rank].exitcode != -signal.SIGKILL:
                            errors[rank] = f"ended with {self._members[rank].exitcode}"
                        outcome[rank] = KILLED
                        for member in self._members:
                            member.kill()
                        continue
                    if error:
                        errors[rank] = error
                    outcome[rank] = value
        finally:
            self._kill()
            self._folder.cleanup()
        if errors and KILLED not in outcome.values():
            rank = min(errors)
            raise RuntimeError(f"rank {rank} of {len(self._members)}:\n{errors[rank]}")
        return [outcome[rank] for rank in range(len(self._members))]

    def _kill(self) -> None:
        for member in self._members:
            member.kill()
        for member in self._members:
            member.join()


def run_group(world_size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Runs a group to its end; see Group.results."""
    return Group(world_size, function, *args).results()


def _member(
    rank: int,
    world_size: int,
    path: str,
    pipe: Any,
    environment: dict[str, str],
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    os.environ.update(environment)  # the server that this process was forked from may be older than its settings

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", store=dist.FileStore(path, world_size), rank=rank, world_size=world_size)
        value = function(*args)
        dist.barrier()
        pipe.send((value, None))
        dist.destroy_process_group()
    except BaseException:
        pipe.send((None, traceback.format_exc()))
        # The others may wait for this worker in a collective: ending breaks their connection.
        os._exit(1)
