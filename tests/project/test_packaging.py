"""pyproject.toml, constraints.txt and the Makefile agree with each other and with the code."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pliant import __version__
from tests.command import ROOT

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)["project"]
DEPENDENCIES = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]


def pinned() -> dict[str, str]:
    """Version by canonical name, from constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(len(pin.specifier) == 1 and str(pin.specifier).startswith("==") for pin in pins)
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}


def test_every_dependency_is_pinned_within_its_range() -> None:
    pins = pinned()
    assert len(DEPENDENCIES) >= 20
    for requirement in map(Requirement, DEPENDENCIES):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


def test_what_dependencies_need_is_pinned_too() -> None:
    pins = pinned()
    seen: set[str] = set()
    todo = [Requirement(text) for text in DEPENDENCIES]
    while todo:
        requirement = todo.pop()
        key = f"{canonicalize_name(requirement.name)}[{','.join(sorted(requirement.extras))}]"
        if key in seen:
            continue
        seen.add(key)
        for text in metadata.requires(requirement.name) or []:
            below = Requirement(text)
            extras = requirement.extras or {""}
            if below.marker is None or any(below.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(below)
    names = {key.partition("[")[0] for key in seen}
    accelerator = re.compile(r"nvidia-.*|cuda-.*|triton")  # a GPU build of torch pins these itself
    assert len(names) > 40
    assert {name for name in names - set(pins) if not accelerator.fullmatch(name)} == set()


@pytest.mark.parametrize("text", DEPENDENCIES)
def test_every_dependency_says_which_file_needs_it(text: str) -> None:
    line = next(line for line in PYPROJECT.splitlines() if f'"{text}"' in line)
    comment = line.partition("#")[2]
    named = [
        ROOT / base / path
        for path in re.findall(r"[\w./]+/[\w.]*|make lint", comment)
        for base in ("platform/pliant", "")
    ]
    assert any(path.exists() for path in named) or "make lint" in comment, comment


def test_no_index_host_is_named() -> None:
    for name in ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run"):
        assert re.search(r"https?://|--index|--find-links", (ROOT / name).read_text(encoding="utf-8")) is None, name


def test_versions_agree() -> None:
    assert PROJECT["version"] == __version__


def test_the_command_is_there() -> None:
    from pliant.cli.main import main

    module, _, attribute = PROJECT["scripts"]["pliant"].partition(":")
    assert (module, attribute) == (main.__module__, main.__name__)


def test_the_licence_is_apache_2() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text


def make(*arguments: str) -> str:
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_make_help_lists_the_targets() -> None:
    listed = {line.split()[0] for line in make("help").splitlines()}
    targets = "help env lint test-fast test test-long test-hosts test-gpu bench bench-peers quickstart demo clean"
    assert listed == set(targets.split())


def test_make_builds_the_environment_from_the_constraints() -> None:
    plan = make("--dry-run", "env", "VENV=no-such-folder")
    assert "-m venv no-such-folder" in plan
    assert "--constraint constraints.txt" in plan


def test_every_group_of_tests_is_run_by_some_target() -> None:
    plan = make("--dry-run", "test", "test-long", "test-hosts", "test-gpu", "VENV=no-such-folder")
    for expression in ("not long and not hosts", '-m "long"', '-m "hosts"', '-m "gpu"'):
        assert expression in plan
    for check in ("ruff check", "ruff format --check", "mypy", "lint-imports"):
        assert check in plan
