"""A real disk that is full, or turns read-only, during a background save: loud, retried, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.train.runs import Before, Run

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(300)]
STEP = "pliant.train.step:Step.run"
MIB = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"\0" * 4096)
            except OSError:
                return


def remount(mode: str) -> Callable[[Path], None]:
    return lambda disk: subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], check=True) and None


@pytest.mark.parametrize(
    ("spoil", "mend", "words"),
    [
        (fill, lambda disk: os.unlink(disk / "filler"), "no space is left"),
        (remount("ro"), remount("rw"), "read-only"),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_cannot_be_written(
    disk: Path, dataset: str, whole: Run, spoil: Callable[[Path], None], mend: Callable[[Path], None], words: str
) -> None:
    run = Run.begin(str(disk), dataset)
    group = run.group(2, fault=run.when_committed(5, Before(STEP, 7, signal=signal.SIGSTOP)))
    group.wait_until_stopped()
    spoil(disk)
    group.signal(signal.SIGCONT)
    while not run.notes("checkpoint-failed"):
        if not group.running:
            group.results()
        time.sleep(0.05)
    mend(disk)
    group.results()
    assert words in run.events("checkpoint-failed")[0]["text"]
    assert run.curve() == whole.curve()
    assert run.record.view().checkpoints()[0].step == 21
