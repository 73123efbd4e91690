"""Exit codes of ``pliant train`` as a process of its own: 1 and 3. Of the others, 0, 2, 75 (SIGTERM) and 130 are
reached in test_commands.py, 75 (``pliant stop``) and 130 (at once) in test_stop.py, 4 in test_faults.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.commands import Command
from tests.train.runs import PIPELINE, SETTINGS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

FAILING = """
from tests.train.pipelines.masked import Masked
from tests.train.pipelines.masked_settings import ModelSettings


class Failing(Masked):
    def loss(self, model, batch):
        if self._forwards == 40:
            raise KeyError("no such word")
        return super().loss(model, batch)


pipeline = Failing
"""


def test_1_the_users_code_failed_and_the_run_is_there_to_go_on_with(tmp_path: Path, dataset: str) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    given = ["--name", "run", "--in-process", f"data.path={dataset}", *SETTINGS]
    output = Command("train", "failing.py", *given, cwd=tmp_path).finish(1)
    assert f'File "{tmp_path}/failing.py", line 9, in loss' in output
    assert "error[pipeline.raised] rank 0, step 3  loss raised KeyError: 'no such word'" in output
    assert "platform/pliant" not in output
    assert "once its code is mended, resume with: pliant resume run --accept-code" in output
    status = json.loads(Command("status", "run", "--json", cwd=tmp_path).finish())
    assert (status["state"], status["step"]) == ("failed (pipeline or settings)", 2)
    logged = Command("logs", "run", cwd=tmp_path).finish()
    assert "error[pipeline.raised]" in logged
    assert "platform/pliant" not in logged


def test_3_it_can_never_be_held_and_nothing_is_begun(tmp_path: Path, dataset: str) -> None:
    tight = "elastic.resources_per_worker={CPU: 1, memory: 1000000}"
    given = [f"data.path={dataset}", *(text for text in SETTINGS if not text.startswith("elastic.")), tight]
    output = Command("train", PIPELINE, "--name", "run", *given, cwd=tmp_path).finish(3)
    assert "error[plan.memory]" in output
    assert not (tmp_path / "runs").exists()
