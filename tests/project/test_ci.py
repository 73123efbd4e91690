"""``.ci/run`` with a stand-in for make: what it runs, what it skips, and when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import ROOT

TARGETS = ("test", "test-long", "test-hosts", "test-gpu")
MAKE = """\
#!/usr/bin/env bash
# make --no-print-directory VENV=FOLDER TARGET: does what the file outcomes/TARGET says: tests, skipped, exit code
set -eu
venv=${2#VENV=} target=$3
echo "$target" >> "$FAKE/called"
if [ "$target" = env ]; then
  mkdir -p "$venv/bin"
  printf '#!/bin/sh\\nexec %s "$@"\\n' "$REAL_PYTHON" > "$venv/bin/python"
  chmod +x "$venv/bin/python"
  exit 0
fi
read -r tests skipped code < "$FAKE/$target"
report=$(printf '%s' "$PYTEST_ADDOPTS" | sed 's/.*--junitxml=//')
suite='<testsuites><testsuite tests="%s" skipped="%s"/></testsuites>'
[ "$tests" = none ] || printf "$suite" "$tests" "$skipped" > "$report"
exit "$code"
"""
PYTHON = """\
#!/bin/sh
# pip check and the question for a GPU take seconds and are not what is tested; the rest is the real interpreter's
case "$*" in
  "-m pip check") exit 0 ;;
  *torch.cuda*) exit "$NO_GPU" ;;
esac
exec {python} "$@"
"""


class Ci:
    """One run of the script."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "make").write_text(MAKE)
        (folder / "python").write_text(PYTHON.format(python=sys.executable))
        for name in ("make", "python"):
            (folder / name).chmod(0o755)

    def run(self, *, gpu: bool = False, **outcomes: str) -> subprocess.CompletedProcess[str]:
        for target in TARGETS:
            (self.folder / target).write_text(outcomes.get(target.replace("-", "_"), "5 1 0") + "\n")
        environment = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "FAKE": str(self.folder),
            "REAL_PYTHON": str(self.folder / "python"),
            "NO_GPU": "0" if gpu else "1",
            "TMPDIR": str(self.folder),
        }
        command = ["bash", str(ROOT / ".ci" / "run")]
        return subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100, check=False
        )

    @property
    def called(self) -> list[str]:
        return (self.folder / "called").read_text().split()


@pytest.fixture
def ci(tmp_path: Path) -> Ci:
    return Ci(tmp_path)


def test_every_group_runs_and_is_counted(ci: Ci) -> None:
    done = ci.run(gpu=True, test="100 3 0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ci.called[:3] == ["env", "test", "test-long"]
    assert ci.called[-1] == "test-gpu"
    assert "test: 97 of 100 tests ran" in done.stdout
    assert "all groups passed" in done.stdout


def test_what_cannot_run_is_skipped_with_its_reason(ci: Ci) -> None:
    done = ci.run(gpu=False)
    assert done.returncode == 0
    assert "skipped: test-gpu needs a GPU" in done.stdout
    assert "test-gpu" not in ci.called


def test_a_group_that_could_have_run_and_did_not_fails(ci: Ci) -> None:
    done = ci.run(test_long="4 4 0")
    assert done.returncode == 1
    assert "failed: test-long could have run, but all of its 4 tests were skipped" in done.stdout


def test_a_failing_group_fails_and_nothing_follows(ci: Ci) -> None:
    done = ci.run(test="5 0 2")
    assert done.returncode == 1
    assert "failed: test (exit 2)" in done.stdout
    assert ci.called == ["env", "test"]


def test_a_group_that_ends_before_its_tests_fails(ci: Ci) -> None:
    done = ci.run(test="none 0 2")
    assert done.returncode == 1
    assert "failed: test ended before its tests (exit 2)" in done.stdout


def test_a_group_without_tests_is_said(ci: Ci) -> None:
    done = ci.run(test_long="0 0 5")
    assert done.returncode == 0
    assert "test-long has no tests" in done.stdout


def test_its_environment_is_fresh_and_goes_away(ci: Ci) -> None:
    before = set(ci.folder.iterdir())
    ci.run()
    assert {p.name for p in set(ci.folder.iterdir()) - before} == {"called", *TARGETS}
