"""Models and losses that would break the exact promise are refused by name."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
import pytest
import torch
from torch import nn

from pliant.errors import ConfigError, UserCodeError
from pliant.train.guards import check_pipeline
from pliant.train.optim import build_optimizer, split_decay
from pliant.train.protocols import Loss, Pipeline
from pliant.train.settings import ModelGuards, OptimSettings

ROWS = pa.table({"x": pa.array([0.5, 1.5, -1.0, 2.0, 0.1], pa.float32())})


class Sound(Pipeline[ModelGuards]):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.5), nn.Linear(4, 1))

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        value = model(batch["x"][:, None])
        return Loss(value.square().sum(), torch.tensor(float(len(value))))


class WithBatchNorm(Sound):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


class WithUntrackedBatchNorm(Sound):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1))


class Contrastive(Sound):
    def loss(self, model: nn.Module, batch: Any) -> Loss:
        value = model(batch["x"][:, None])
        return Loss(-torch.log_softmax(value @ value.T, -1).diagonal().sum(), torch.tensor(float(len(value))))


class Mean(Sound):
    def loss(self, model: nn.Module, batch: Any) -> Loss:
        value = model(batch["x"][:, None])
        return Loss(value.square().mean(), torch.tensor(float(len(value))))


class FailsOnNothing(Sound):
    def loss(self, model: nn.Module, batch: Any) -> Loss:
        value = model(batch["x"][:, None])
        value.max()
        return Loss(value.square().sum(), torch.tensor(float(len(value))))


class NoScalar(Sound):
    def loss(self, model: nn.Module, batch: Any) -> Loss:
        value = model(batch["x"][:, None])
        return Loss(value.square(), torch.tensor(float(len(value))))


def check(kind: type[Sound], **settings: bool) -> None:
    pipeline = kind(ModelGuards(**settings))
    torch.manual_seed(0)
    check_pipeline(pipeline, pipeline.model(), ROWS)


def test_sound_model_is_left_as_it_was() -> None:
    pipeline = Sound(ModelGuards())
    model = pipeline.model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    check_pipeline(pipeline, model, ROWS)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert model.training


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (WithBatchNorm, "model.rank-local", ["1 (BatchNorm1d)", "running_mean"]),
        (WithUntrackedBatchNorm, "model.rank-local", ["1 (BatchNorm1d)"]),
        (Contrastive, "model.couples-rows", ["Contrastive.loss"]),
        (Mean, "model.couples-rows", ["Mean.loss", "sums"]),
    ],
)
def test_refused_by_name(kind: type[Sound], code: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        check(kind)
    assert caught.value.code == code
    assert all(word in str(caught.value) for word in words)
    assert "allow_rank_local" in str(caught.value)


def test_given_up_visibly_it_may_run() -> None:
    check(WithUntrackedBatchNorm, allow_rank_local=True)
    check(Contrastive, allow_rank_local=True)


@pytest.mark.parametrize(
    ("kind", "code"), [(FailsOnNothing, "pipeline.zero-rows"), (NoScalar, "pipeline.loss")], ids=["zero", "scalar"]
)
def test_errors_of_user_code(kind: type[Sound], code: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        check(kind)
    assert caught.value.code == code
    line = inspect.getsourcelines(kind.loss)[1]
    assert caught.value.location == f"{__file__}:{line}"


def test_a_mean_is_named_as_the_usual_cause() -> None:
    with pytest.raises(ConfigError) as caught:
        check(Mean)
    assert "most often a mean stands where a sum belongs: Loss(total=losses.sum())" in caught.value.hint
    assert caught.value.location.startswith(f"{__file__}:")


def test_an_optimizer_of_ones_own_is_built_by_its_factory() -> None:
    model = nn.Linear(2, 2)
    assert type(build_optimizer(model, OptimSettings(kind="torch.optim:Adagrad"))).__name__ == "Adagrad"
    with pytest.raises(ConfigError, match="is no optimizer"):
        build_optimizer(model, OptimSettings(kind="nothing.here:Adam"))


def test_decay_spares_biases_norms_and_tables_but_not_a_tied_matrix() -> None:
    class Tied(nn.Module):
        def __init__(self, tie: bool) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 4)
            self.norm = nn.LayerNorm(4)
            self.head = nn.Linear(4, 5)
            if tie:
                self.head.weight = self.table.weight

    loose = Tied(tie=False)
    decayed, plain = split_decay(loose)
    assert [id(p) for p in decayed] == [id(loose.head.weight)]
    assert len(plain) == 4
    tied = Tied(tie=True)
    assert [id(p) for p in split_decay(tied)[0]] == [id(tied.table.weight)]
