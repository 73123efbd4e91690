"""Runs commands of Pliant in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python ARGUMENTS`` with Pliant on the path; stdout and stderr as text."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "platform"), "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def pliant(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """``pliant ARGUMENTS``."""
    return python("-m", "pliant", *arguments, cwd=cwd, **environment)
