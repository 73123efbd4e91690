"""Temporary directories: gone with their block, or, when that was killed, at the next start of the same kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pliant.train.scratch import OWNER_FILE, scratch_directory
from tests.command import ROOT

HOLD = """
import sys, threading
from pathlib import Path
from pliant.train.scratch import scratch_directory

with scratch_directory("pliant-ray-") as folder:
    Path(folder, "session", "logs").mkdir(parents=True)
    Path(folder, "session", "logs", "raylet.out").touch()
    Path(folder, "latest").symlink_to("session")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary directory, for this process and those that it starts."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def hold() -> tuple[subprocess.Popen[str], Path]:
    """A process that holds a directory until its input ends, and the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "PYTHONPATH": str(ROOT / "platform")},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def start() -> None:
    with scratch_directory("pliant-ray-") as folder:
        assert json.loads(Path(folder, OWNER_FILE).read_text())["pid"] == os.getpid()
    assert not Path(folder).exists()


def test_what_a_killed_process_left_goes_and_what_a_living_one_has_stays(temporary: Path) -> None:
    killed, left = hold()
    living, used = hold()
    foreign = temporary / "pliant-ray-foreign"  # nobody's name in it
    foreign.mkdir()
    link = temporary / "pliant-ray-link"
    link.symlink_to(left)
    try:
        start()
        assert (left / "session" / "logs" / "raylet.out").exists()
        killed.kill()
        killed.communicate()
        with scratch_directory("pliant-train-"):
            assert left.exists(), "another kind is none of its business"
        start()
        assert sorted(temporary.iterdir()) == sorted([used, foreign, link])
        assert (used / "session" / "logs" / "raylet.out").exists()
    finally:
        living.communicate("")
    assert not used.exists()


@pytest.mark.parametrize(
    ("change", "goes"),
    [({"pid_start": 1.0}, True), ({"boot_id": "another"}, False), ({"pid_namespace": "pid:[1]"}, False), ({}, False)],
    ids=["pid given anew", "another machine", "another container", "its own"],
)
def test_whose_directory_it_is(temporary: Path, change: dict[str, object], goes: bool) -> None:
    with scratch_directory("pliant-ray-") as folder:
        owner = Path(folder, OWNER_FILE)
        owner.write_text(json.dumps(json.loads(owner.read_text()) | change))
        start()
        assert Path(folder).exists() is not goes


@pytest.mark.parametrize("content", ["", "[]", "{", "null"])
def test_an_owner_that_cannot_be_read_is_left_alone(temporary: Path, content: str) -> None:
    folder = temporary / "pliant-ray-half"
    folder.mkdir()
    (folder / OWNER_FILE).write_text(content)
    start()
    assert folder.exists()
