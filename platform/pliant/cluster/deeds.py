"""What is done to a machine on purpose, by a process on that machine that Ray knows nothing of.

A task of Ray on the node plans it and starts that process, which outlives the task, the raylet and the cluster: it
does what was planned after a moment, and undoes what has an end. Processes are known by their number and start, so
that a number which was given anew hits nobody.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

import psutil

_ANSWER_S = 0.5  # for the task's answer to be on its way before its own processes are hit
_ROUND_S = 0.5  # of slowing down: stopped for a part of it, running for the rest
_AWAKE = 0.2
_TRAINS = "RayTrainWorker"  # in the title of a worker's process

# Started twice over, so that its parent is gone at once: Ray ends what its workers have started when these end.
_APART = 'setsid "$@" </dev/null >/dev/null 2>&1 &'


@dataclass(frozen=True)
class Deed:
    """Something to do to processes.

    Attributes:
        roots: process id and start (seconds since the epoch) of each.
        below: their children are meant too, as they then are.
        after_s: to wait before.
        stop_s: seconds to stop them for, whole or in part; None: kill them.
        awake: share of that time in which they run.
    """

    roots: list[tuple[int, float]]
    below: bool = False
    after_s: float = _ANSWER_S
    stop_s: float | None = None
    awake: float = 0.0

    def begin(self) -> None:
        """Starts the process that does it."""
        command = [sys.executable, "-m", "pliant.cluster.deeds", json.dumps(asdict(self))]
        subprocess.run(["sh", "-c", _APART, "sh", *command], check=True)

    def carry_out(self) -> None:
        """Does it, here and now."""
        time.sleep(self.after_s)
        if self.stop_s is None:
            for process in self._processes():
                with suppress(psutil.Error):
                    process.kill()
            return
        stopped: list[psutil.Process] = []
        until = time.monotonic() + self.stop_s
        try:
            while (left := until - time.monotonic()) > 0 and any(self._roots()):
                stopped = self._processes()
                _send(stopped, signal.SIGSTOP)
                time.sleep(min(left, _ROUND_S * (1 - self.awake)))
                if self.awake:
                    _send(stopped, signal.SIGCONT)
                    time.sleep(_ROUND_S * self.awake)
        finally:
            _send(stopped, signal.SIGCONT)

    def _roots(self) -> Iterator[psutil.Process]:
        for pid, start in self.roots:
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.create_time() == start and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def _processes(self) -> list[psutil.Process]:
        """Parents first: what is stopped, or dead, starts nothing new."""
        found = []
        for root in self._roots():
            found.append(root)
            if self.below:
                with suppress(psutil.Error):
                    found += root.children(recursive=True)
        return found


def identity(process: psutil.Process) -> tuple[int, float]:
    """What tells a process from every other."""
    return int(process.pid), float(process.create_time())


def plan(fault: str, *, deadline_s: float, for_s: float) -> str:
    """Begins what a fault does to the machine that this is called on, inside a task of Ray.

    Args:
        fault: one of ``trace.ON_NODES``.
        deadline_s: after which a node that is being drained is gone.
        for_s: how long it is away, or slow.

    Returns:
        What is done, for people.

    Raises:
        LookupError: there is nothing of that kind here.
    """
    raylet = next((process for process in psutil.Process().parents() if process.name() == "raylet"), None)
    if raylet is None:
        raise LookupError("no raylet above this process")
    if fault in ("kill", "slow"):
        workers = [process for process in raylet.children() if _trains(process)]
        if not workers:
            raise LookupError("no worker trains there")
        if fault == "kill":
            worker = max(workers, key=lambda process: sum(process.cpu_times()[:2]))  # not one that only stands by
            Deed([identity(worker)]).begin()
            return f"worker process {worker.pid} killed"
        Deed([identity(process) for process in workers], stop_s=for_s, awake=_AWAKE).begin()
        return f"{len(workers)} worker(s) run {_AWAKE:.0%} of the time for {for_s:.0f} s"
    node = [identity(raylet)]
    if fault == "kill-node":
        Deed(node, below=True).begin()
        return f"raylet {raylet.pid} and all below it killed"
    if fault == "vanish":
        Deed(node, below=True, stop_s=for_s).begin()
        return f"raylet {raylet.pid} and all below it answer nothing for {for_s:.0f} s"
    Deed(node, below=True, after_s=deadline_s).begin()
    return f"leaves within {deadline_s:.0f} s"


def _trains(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return _TRAINS in " ".join(process.cmdline())
    return False


def _send(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.Error):  # also looks whether it still is the same one
            process.send_signal(number)


def _main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing stays stopped
    given = json.loads(sys.argv[1])
    Deed(**{**given, "roots": [(pid, start) for pid, start in given["roots"]]}).carry_out()


if __name__ == "__main__":
    os.chdir("/")
    _main()
