"""The documentation is what the code is."""

from __future__ import annotations

import importlib.util
import re

from pliant.cli.main import app
from tests.command import ROOT


def test_settings_reference_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("settings_reference", ROOT / "docs" / "settings_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (ROOT / "docs" / "settings.md").read_text()
    assert written == module.reference(), "run: python docs/settings_reference.py"
    assert written.count("\n| `") > 60


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
