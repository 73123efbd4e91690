"""A space file that the tests spoil."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pliant.errors import ConfigError
from pliant.tune.spacefile import LoadedSweep, load_sweep
from tests.command import ROOT

DIMENSIONS = """\
  optim.lr: {log: [1e-4, 1e-2]}
  train.global_batch: {choice: [32, 64], lr: sqrt}
  model.width: {int: [16, 128]}
"""
SPACE = f"""\
pipeline: digits
sweep: {{trials: 9}}
space:
{DIMENSIONS}"""
Refused = Callable[[tuple[str, str], Sequence[str]], str]


def load(text: str, folder: Path, *overrides: str) -> LoadedSweep:
    """The sweep of a space file with this text, over the pipeline digits; the working directory is the checkout."""
    file = folder / "s.yaml"
    file.write_text(text)
    return load_sweep("digits", str(file), overrides)


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """``refused((old, new), overrides)``: the message of the space with a text replaced."""
    monkeypatch.chdir(ROOT)

    def message(change: tuple[str, str], overrides: Sequence[str] = ()) -> str:
        old, new = change
        assert old in SPACE
        with pytest.raises(ConfigError) as caught:
            load(SPACE.replace(old, new), tmp_path, *overrides)
        assert caught.value.exit_code == 2
        return str(caught.value).replace(f"{tmp_path}/", "")

    return message
