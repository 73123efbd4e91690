"""Runs commands inside the test's own process, where that is enough: torch is imported once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pliant.cli.main import main

Run = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """``run(*arguments, cwd=…)``: one command line, with its exit code and what it wrote."""
    modules, path = set(sys.modules), list(sys.path)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: str, cwd: Path) -> CompletedProcess[str]:
        monkeypatch.chdir(cwd)
        capsys.readouterr()
        code = main(arguments)
        shown = capsys.readouterr()
        return CompletedProcess(arguments, code, shown.out, shown.err)

    yield call
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if hasattr(sys.modules[name], "__pliant_pipeline__"):
            del sys.modules[name]
