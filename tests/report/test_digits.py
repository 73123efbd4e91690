"""The report of a run that was really trained: digits, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

import pliant
from pipelines.digits import Digits
from pipelines.digits_settings import ModelSettings
from pliant.data.prepare import write_dataset
from tests.command import ROOT
from tests.report.pages import Page


@pytest.mark.timeout(120)
def test_a_run_of_digits(tmp_path: Path) -> None:
    data = str(tmp_path / "digits")
    write_dataset(Digits(ModelSettings(width=8, depth=2, dropout=0.0)).prepare(), data)
    settings = {
        "data.path": data,
        "run.storage": str(tmp_path / "runs"),
        "train.steps": 20,
        "train.epochs": None,
        "eval.every_steps": 10,
        "tracking.kind": "none",
    }
    run = pliant.Run.new(str(ROOT / "pipelines" / "digits.py"), settings, name="small", in_process=True)
    assert run.train().reason == "done"
    assert run.resume({"train.steps": 30}, in_process=True).reason == "done"

    written = run.report()
    page = Page(Path(written["file"]))
    assert Path(written["file"]) == tmp_path / "runs" / "small" / "report.html"
    assert (written["state"], written["steps"], written["attempts"]) == ("done", 30, 4)
    assert {"loss", "accuracy", "lr", "grad_norm", "rate"} <= set(written["figures"])
    assert len(page.figures["accuracy"]["curves"]) == 2
    assert written["seconds"]["step"] > 0
    assert written["seconds"]["recovery"] > 0
    recorded = [entry["loss"] for entry in run.metrics()]
    assert page.figures["loss"]["curves"][0]["mean"] == pytest.approx(recorded, rel=1e-4)
    for words in (
        "train.steps",
        "override train.steps=30",
        "git commit",
        "file digits.py",
        "micro_batch",
        "1,500 rows",
    ):
        assert words in page.text
    assert page.loaded() == []
