"""A pipeline whose own code fails on its first rows is refused before a run of it is begun."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pliant.cli.main import main
from pliant.registry import find_pipeline
from pliant.train.plan import find_datasets
from pliant.train.sizing import Sizing
from pliant.train.trial import try_pipeline
from pliant.train.usercode import unseen
from tests.train.runs import SETTINGS, Run

SOURCE = """
import torch

from tests.train.pipelines import masked
from tests.train.pipelines.masked_settings import ModelSettings


class Explode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ArithmeticError("in backward")


class Failing(masked.Masked):
    %s


pipeline = Failing
"""
MODEL = """def model(self):
        print("loading")
        return {}["weights"]
"""
IN_BACKWARD = """def loss(self, model, batch):
        loss = super().loss(model, batch)
        return masked.Loss(Explode.apply(loss.total), loss.weight, loss.sums)
"""
MEAN = """def loss(self, model, batch):
        loss = super().loss(model, batch)
        return masked.Loss(loss.total / loss.weight.clamp(min=1), loss.weight, loss.sums)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = list(sys.path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("failing", None)


@pytest.mark.parametrize(
    ("method", "code", "says"),
    [
        (
            MODEL,
            1,
            "model raised KeyError: 'weights'",
        ),
        ("def parameter_groups(self, model):\n        return [1 / 0]", 1, "parameter_groups raised ZeroDivisionError"),
        ("def collate(self, table):\n        return None", 1, "error[pipeline.collate]"),
        (IN_BACKWARD, 1, "backward of the loss, tried before the first step, raised ArithmeticError: in backward"),
        (MEAN, 2, "error[model.couples-rows]"),
    ],
    ids=["model", "groups", "collate", "backward", "mean"],
)
def test_nothing_is_begun_and_the_plan_says_the_same(
    method: str, code: int, says: str, folder: Path, dataset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "failing.py").write_text(SOURCE % method)
    given = [f"data.path={dataset}", *(text for text in SETTINGS if not text.startswith("tracking."))]
    assert main(["train", "failing.py", "--name", "run", "--in-process", *given]) == code
    shown = capsys.readouterr().err
    assert says in shown
    assert ("Traceback" in shown and f'File "{folder}/failing.py", line' in shown) is (" raised " in says)
    assert "platform/pliant" not in shown
    assert ("loading\n" in shown) is ("loading" in method), "what it printed may say why"
    assert [file.name for file in folder.iterdir() if file.name != "__pycache__"] == ["failing.py"], "no run, no MLflow"
    assert main(["plan", "failing.py", *given]) == code
    shown = capsys.readouterr()
    assert says in shown.err
    assert "micro-batches a step" in shown.out


def test_what_a_trial_does_leaves_no_trace(dataset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = Run.begin(str(tmp_path), dataset)._launch
    before = torch.random.get_rng_state()
    pipeline = find_pipeline(str(launch.ref.file))
    datasets = find_datasets(launch.config)
    try_pipeline(pipeline, launch.config, datasets, Sizing(launch.config, pipeline.load(), datasets))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert capsys.readouterr() == ("", "")


def test_a_breakpoint_is_for_the_run_and_not_for_a_trial(capsys: pytest.CaptureFixture[str]) -> None:
    with unseen():
        breakpoint()
        print("nobody looks")
    assert capsys.readouterr() == ("", "")
