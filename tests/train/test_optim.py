"""Optimizers: parameter groups of a pipeline's own, and how the schedule reaches them."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from pliant.errors import UserCodeError
from pliant.train.optim import build_optimizer, default_groups, set_lr
from pliant.train.settings import OptimSettings
from tests.train.runs import Run

SETTINGS = OptimSettings(lr=0.1, weight_decay=0.5)
SLOW_BODY = """
from tests.train.pipelines import masked
from tests.train.pipelines.masked_settings import ModelSettings


class Slow(masked.Masked):
    def parameter_groups(self, model):
        body = [p for name, p in model.named_parameters() if name.startswith("blocks")]
        others = [p for name, p in model.named_parameters() if not name.startswith("blocks")]
        return [{"params": others}, {"params": body, "lr_scale": 0.0, "weight_decay": 0.0}]


pipeline = Slow
"""


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1, bias=False))


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_groups_have_their_own_rate_and_decay(kind: str) -> None:
    model = net()
    groups = [
        {"params": model[0].parameters(), "lr_scale": 0.1},
        {"params": [model[1].weight], "weight_decay": 0.0},
    ]
    settings = SETTINGS.model_copy(update={"kind": kind})
    optimizer = build_optimizer(model, settings, groups)
    set_lr(optimizer, 0.02)
    decay = "decoupled_decay" if kind == "sgd" else "weight_decay"
    assert [(group["lr"], group[decay], len(group["params"])) for group in optimizer.param_groups] == [
        (pytest.approx(0.002), 0.5, 2),
        (0.02, 0.0, 1),
    ]


def test_default_groups_are_what_is_built_without_any() -> None:
    model = net()
    first, second = (build_optimizer(model, SETTINGS, groups) for groups in (None, default_groups(model)))
    assert [(g["weight_decay"], list(map(id, g["params"]))) for g in first.param_groups] == [
        (g["weight_decay"], list(map(id, g["params"]))) for g in second.param_groups
    ]


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        (lambda m: [{"params": [m[1].weight]}], "0.weight is missing\n  0.bias is missing"),
        (lambda m: [{"params": m.parameters()}, {"params": [m[0].bias]}], "0.bias stands twice"),
        (
            lambda m: [{"params": [nn.Parameter(torch.ones(1))]}],
            "group 0 holds a tensor that is not the model's",
        ),
        (
            lambda m: [{"params": m.parameters(), "lr": 1}],
            "group 0 has the keys params, lr; allowed: params",
        ),
        (lambda m: [{"lr_scale": 1}], "group 0 has the keys lr_scale; allowed"),
    ],
)
def test_groups_that_cannot_be_are_refused(groups, says: str) -> None:
    model = net()
    with pytest.raises(UserCodeError, match=re.escape(f"exactly once:\n  {says}")) as caught:
        build_optimizer(model, SETTINGS, groups(model))
    assert caught.value.code == "pipeline.parameter-groups"


def test_frozen_parameters_belong_to_no_group() -> None:
    model = net()
    model[0].requires_grad_(False)
    assert [len(group["params"]) for group in build_optimizer(model, SETTINGS).param_groups] == [1]
    with pytest.raises(UserCodeError, match=r"group 0 holds 0\.weight, which is no trainable parameter"):
        build_optimizer(model, SETTINGS, [{"params": model.parameters()}])


def test_a_pipelines_groups_give_the_same_curve_at_any_number_of_workers(dataset: str, tmp_path) -> None:
    (tmp_path / "slow.py").write_text(SLOW_BODY)
    curves = []
    for workers in (1, 3):
        settings = ["train.steps=4", "eval.at_end=false"]
        run = Run.begin(str(tmp_path / f"w{workers}"), dataset, *settings, pipeline=str(tmp_path / "slow.py"))
        run.attempt(workers)
        curves.append(run.curve())
    assert curves[0] == curves[1]
    assert len(curves[0]) == 4


def test_an_optimizer_of_the_pipelines_own_file_is_found(dataset: str, tmp_path) -> None:
    source = SLOW_BODY + "\n\ndef build(groups, lr):\n    import torch\n    return torch.optim.Adagrad(groups, lr=lr)\n"
    (tmp_path / "adagrad.py").write_text(source)
    settings = ["train.steps=2", "schedule.warmup=0", "optim.kind=adagrad:build", "optim.allow_unverified=true"]
    run = Run.begin(str(tmp_path / "runs"), dataset, *settings, pipeline=str(tmp_path / "adagrad.py"))
    run.attempt(2)
    assert [entry["step"] for entry in run.log("metrics")] == [1, 2]
