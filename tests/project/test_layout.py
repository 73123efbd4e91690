"""Rules that the tree itself keeps."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

from tests.command import ROOT, python

SOURCES = ("platform", "pipelines", "tests", "bench", ".ci", "docs", "search_spaces")


def python_files() -> list[Path]:
    """All Python files of the project."""
    return sorted(file for folder in SOURCES for file in (ROOT / folder).rglob("*.py"))


def test_platform_is_no_package() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()


def test_import_platform_finds_the_standard_library() -> None:
    code = "import platform; print(platform.__file__); print(bool(platform.python_version()))"
    for path in (f"{ROOT}/platform", f"{ROOT}/platform:{ROOT}"):
        done = python("-c", code, cwd=ROOT, PYTHONPATH=path)
        file, works = done.stdout.split()
        assert Path(file).name == "platform.py"
        assert not Path(file).is_relative_to(ROOT / "platform")
        assert works == "True"


def test_no_file_is_over_500_lines() -> None:
    lengths = {file.relative_to(ROOT): len(file.read_text(encoding="utf-8").splitlines()) for file in python_files()}
    assert len(lengths) > 80
    assert {file: lines for file, lines in lengths.items() if lines > 500} == {}


def test_every_module_says_what_it_is_for() -> None:
    modules = {file: file.read_text(encoding="utf-8") for file in sorted((ROOT / "platform").rglob("*.py"))}
    assert len(modules) > 50
    bare = [f.relative_to(ROOT) for f, text in modules.items() if text and ast.get_docstring(ast.parse(text)) is None]
    assert bare == []


def test_nothing_is_left_to_do_later() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    found = [
        f"{file.relative_to(ROOT)}: {word}"
        for file in python_files()
        for word in words
        if word in file.read_text(encoding="utf-8")
    ]
    assert found == []


def test_scripts_are_sound_bash() -> None:
    done = subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
