"""The documentation is what the code is."""

from __future__ import annotations

import importlib.util

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
