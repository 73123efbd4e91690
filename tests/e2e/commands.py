"""``pliant …`` as a process of its own, over the test pipeline ``masked``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from tests.command import ROOT


class Command:
    """A command that runs.

    Args:
        hold_before_forward: number of the training forward pass before which each worker waits; 0 for none.
        hold_until: file that ends the waiting when it exists; default: it never ends.
    """

    def __init__(
        self, *arguments: str, cwd: Path, hold_before_forward: int = 0, hold_until: Path | None = None
    ) -> None:
        self._said: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pliant", *arguments],
            cwd=cwd,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
                "HOLD_BEFORE_FORWARD": str(hold_before_forward),
                "HOLD_UNTIL": str(hold_until or ""),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, code: int = 0) -> str:
        """Its output; fails unless it ends with this exit code."""
        output = "".join(self._said) + self.process.communicate()[0]
        assert self.process.returncode == code, output
        return output

    def wait_for_output(self, text: str) -> None:
        """Returns when it has said this; fails when it ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.append(line)
            if text in line:
                return
        raise AssertionError("".join(self._said))

    def wait_for_step(self, store: Store, step: int) -> None:
        """Returns when the run has recorded a step; fails when the command ends before."""
        self.wait_until(lambda: last_step(store) == step)

    def wait_for_step_after(self, store: Store, step: int) -> None:
        """Returns when the run has recorded a later step; fails when the command ends before."""
        self.wait_until(lambda: last_step(store) > step)

    def wait_for_checkpoint(self, store: Store, step: int) -> None:
        """Returns when the checkpoint of a step is committed; fails when the command ends before."""
        self.wait_until(lambda: step in [ref.step for ref in RunRecord.open(store).view().checkpoints()])

    def wait_for_event(self, store: Store, kind: str, count: int = 1) -> dict[str, Any]:
        """Returns the run's event of this kind once there are so many, the last of them; fails when the command ends
        before."""
        found: list[dict[str, Any]] = []

        def happened() -> bool:
            if store.head("run.json") is not None:
                events = read_log(store, RunRecord.open(store).view(), "events")
                found[:] = [event for event in events if event["kind"] == kind]
            return len(found) >= count

        self.wait_until(happened)
        return found[count - 1]

    def processes(self, title: str = "") -> list[psutil.Process]:
        """All that it has started and that these have, those with this in their title."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if title in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Returns when this has happened; fails when the command ends before."""
        while not happened():
            if self.process.poll() is not None:
                raise AssertionError("".join(self._said) + self.process.communicate()[0])
            time.sleep(0.2)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def last_step(store: Store) -> int:
    """The newest step that counts; 0 before the first."""
    if store.head("run.json") is None:
        return 0
    steps = [entry["step"] for entry in read_log(store, RunRecord.open(store).view(), "metrics")]
    return steps[-1] if steps else 0


def store_of(storage: str, name: str) -> Store:
    return Store(f"{storage}/{name}", StorageSettings())
