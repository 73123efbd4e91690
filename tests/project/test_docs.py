"""The documentation is what the code is."""

from __future__ import annotations

import importlib.util
import re

import pytest

from pliant.cli.main import app
from pliant.config.schema import leaves
from pliant.settings import RunConfig
from pliant.tune.settings import SpaceFile
from tests.command import ROOT

_NO_SETTINGS = {"cluster.yaml", "sweep.yaml", "optim.lrr"}  # files, and the misspelt setting of an example
_DIMENSIONS = {"schedule.peak", "schedule.warmup_ratio"}  # of search spaces, beside settings
PAGES = ["README.md", *sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))]


def test_settings_reference_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("settings_reference", ROOT / "docs" / "settings_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (ROOT / "docs" / "settings.md").read_text()
    assert written == module.reference(), "run: python docs/settings_reference.py"
    assert written.count("\n| `") > 60


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_settings_that_pages_name_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(re.findall(r"^(?:\$ |    )?pliant ([a-z]+)|`pliant ([a-z]+)", text, flags=re.MULTILINE))
    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    assert {a or b for a, b in named} <= known
    settings = {leaf.dotted for schema in (RunConfig, SpaceFile) for leaf in leaves(schema)}
    sections = {key.partition(".")[0] for key in settings if "." in key} - {"model"}
    keys = set(re.findall(rf"(?:`| )((?:{'|'.join(sections)})\.[a-z_.]+[a-z])(?:`|=)", text))
    codes = set(re.findall(r"^\| (`[^|]+) \|", text, flags=re.MULTILINE)) if "troubleshooting" in name else set()
    keys -= {code for cell in codes for code in re.findall(r"`([a-z.]+)`", cell)}
    assert {key for key in keys - settings - _NO_SETTINGS - _DIMENSIONS if not key.startswith("data.nulls")} == set()
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []


def test_pages_that_are_looked_at_name_many() -> None:
    assert len(PAGES) >= 7
    assert sum((ROOT / name).read_text(encoding="utf-8").count("pliant ") for name in PAGES) > 80


def test_commands_in_the_readme_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    named = set(re.findall(r"^pliant ([a-z]+)|`pliant ([a-z]+)", readme, flags=re.MULTILINE))
    commands = {a or b for a, b in named}
    assert {"resume", "metrics", "verify", "train", "data"} <= commands
    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    assert commands <= known
    targets = set(re.findall(r"`?make ([a-z-]+)", readme))
    assert {"quickstart", "test", "bench"} <= targets
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)
