"""Which code a driver runs: git commit, what differs from it, versions. Recorded at every start."""

from __future__ import annotations

import getpass
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pliant.storage.attempts import Attempt
from pliant.storage.layout import encode
from pliant.track.settings import masked

PROVENANCE_OBJECT = "provenance.json"
DIFF_OBJECT = "code.diff"
_LONGEST_S = 5.0
_LARGEST_DIFF = 4 * 2**20
_MOST_UNTRACKED = 200


def record_provenance(attempt: Attempt, file: Path, code_digest: str) -> None:
    """Writes what is known of the code into the attempt.

    Args:
        file: the pipeline's.
        code_digest: over the pipeline's files.
    """
    git, diff = git_state(file.parent)
    known = {
        "pipeline": str(file),
        "code_digest": code_digest,
        "git": git,
        "command": sys.argv,
        "user": _user(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("pliant", "torch", "ray")},
    }
    attempt.write(PROVENANCE_OBJECT, encode(known))
    if diff:
        attempt.write(DIFF_OBJECT, diff)


def git_state(folder: Path) -> tuple[dict[str, Any] | None, bytes]:
    """Commit, branch, remote, and what differs: (facts, diff of the working tree against the commit).

    None, and no diff, where there is no repository or no git.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None, b""
    diff = _git(folder, "diff", "HEAD", "--no-ext-diff", "--no-color") or b""
    untracked = (_git(folder, "ls-files", "--others", "--exclude-standard", "--full-name", ":/") or b"").splitlines()
    facts = {
        "commit": commit.decode().strip(),
        "branch": (_git(folder, "rev-parse", "--abbrev-ref", "HEAD") or b"").decode().strip() or None,
        "remote": masked((_git(folder, "config", "--get", "remote.origin.url") or b"").decode().strip()) or None,
        "dirty": bool(diff),
        "untracked": [name.decode(errors="replace") for name in untracked[:_MOST_UNTRACKED]],
    }
    if len(diff) > _LARGEST_DIFF:
        facts["diff_cut"] = f"the diff has {len(diff):,} bytes; the first {_LARGEST_DIFF:,} are kept"
    return facts, diff[:_LARGEST_DIFF]


def _git(folder: Path, *arguments: str) -> bytes | None:
    environment: Mapping[str, str] = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, timeout=_LONGEST_S, check=True, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return None
