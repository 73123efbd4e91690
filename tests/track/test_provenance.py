"""What is recorded of the code that a driver runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.track.provenance import git_state, record_provenance


def git(folder: Path, *arguments: str) -> str:
    own = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", "-C", str(folder), *own, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_commit_dirty_diff_and_untracked_files(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    pipelines = repository / "pipelines"
    pipelines.mkdir(parents=True)
    file = pipelines / "lm.py"
    file.write_text("one = 1\n")
    git(repository, "init")
    git(repository, "add", ".")
    git(repository, "commit", "-m", "first")
    git(repository, "remote", "add", "origin", "https://me:secret@example.org/r.git")
    facts, diff = git_state(pipelines)
    assert facts == {
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "main",
        "remote": "https://me:***@example.org/r.git",
        "dirty": False,
        "untracked": [],
    }
    assert diff == b""

    file.write_text("one = 2\n")
    (repository / "new.txt").touch()
    record = RunRecord.create(Store(str(tmp_path / "run"), StorageSettings()), {"name": "r"})
    attempt = record.claim_driver()
    record_provenance(attempt, file, "digest")
    known = json.loads(record.store.get("attempts/a000001/provenance.json"))
    assert known["git"]["dirty"] is True
    assert known["git"]["untracked"] == ["new.txt"]
    assert known["code_digest"] == "digest"
    assert b"+one = 2" in record.store.get("attempts/a000001/code.diff")


def test_without_a_repository(tmp_path: Path) -> None:
    assert git_state(tmp_path) == (None, b"")
