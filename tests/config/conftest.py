"""A pipeline whose settings the tests spoil."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import run

__all__ = ["run"]

LM = """\
data:
  path: d
  lanes: 8
model:
  width: 64
train:
  global_batch: 32
  micro_batch: 8
  steps: 100
optim:
  lr: 3e-4
schedule:
  kind: cosine
  warmup: 10
"""


@pytest.fixture
def lm(tmp_path: Path) -> Path:
    """A directory with the pipeline ``lm`` and valid settings of it."""
    (tmp_path / "lm.py").write_text("")
    shutil.copy(Path(__file__).with_name("lm_settings.py"), tmp_path / "lm_settings.py")
    (tmp_path / "lm.yaml").write_text(LM)
    return tmp_path
