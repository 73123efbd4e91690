"""What a micro-batch takes is measured: on fake tensors as on real ones, and never at the price of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import torch
from torch import nn

from pipelines.stdlib_lm import StdlibLM
from pipelines.stdlib_lm_settings import ModelSettings as LMSettings
from pliant.train import activations
from pliant.train.activations import Probe, measure, model_size
from pliant.train.protocols import Batch, Loss
from tests.train.pipelines.masked import Masked, table
from tests.train.pipelines.masked_settings import ModelSettings

PROBE = Probe(train_rows=8, evaluation_rows=8, compute=None, checkpointing=False)


def text(rows: int) -> pa.Table:
    values = pa.array([i % 251 for i in range(rows * 65)], pa.uint8())
    return pa.table(
        {"tokens": pa.FixedSizeListArray.from_arrays(values, 65), "length": pa.array([64] * rows, pa.int32())}
    )


def lm(**settings: Any) -> StdlibLM:
    return StdlibLM(LMSettings(context=64, width=64, depth=6, **settings))


def found(probe: Probe = PROBE, **settings: Any) -> activations.Activations:
    measured = measure(lm(**settings), text(4), probe)
    assert measured.activations.unknown == ""
    return measured.activations


def test_fake_and_real_tensors_give_the_same() -> None:
    fake = found()
    real = activations._try(lm(), text(4), PROBE, lambda tensor: tensor)
    assert fake == real
    assert fake.train_bytes > 8 * 64 * 64 * 4 * 6 * 10  # more than ten vectors per token and block
    assert fake.row_bytes == 65 + 4


def test_what_is_saved_for_backward_is_in_it() -> None:
    pipeline, saved = lm(), {}
    model = pipeline.model()
    known = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    batch = pipeline.collate(activations._repeated(text(4), 8))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = pipeline.loss(model, batch)
    assert float(loss.weight) == 8 * 64
    kept = sum(saved.values())
    assert kept < found().train_bytes < 1.6 * kept


def test_rows_precision_and_recomputing_count() -> None:
    plain = found()
    twice = found(Probe(16, 8, None, False))
    assert twice.train_bytes == pytest.approx(2 * plain.train_bytes, rel=0.05)
    assert twice.evaluation_bytes == plain.evaluation_bytes
    assert plain.evaluation_bytes < plain.train_bytes / 3
    assert found(Probe(8, 8, torch.bfloat16, False)).train_bytes < 0.75 * plain.train_bytes
    assert found(Probe(8, 8, None, True)).train_bytes < 0.5 * plain.train_bytes
    assert found(Probe(8, 0, None, False)).evaluation_bytes == 0


def test_sizes_are_those_of_the_units_that_are_sharded() -> None:
    pipeline = Masked(ModelSettings(width=24))
    model = pipeline.model()
    size = model_size(model, pipeline.blocks(model))
    assert [p.shape for p in size.root] == [(17, 24)]  # tied to the head: once
    assert len(size.blocks) == 2
    assert sum(p.numel for p in size.parameters) == sum(p.numel() for p in model.parameters())


def test_nothing_is_left_behind() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    found(dropout=0.1)
    assert torch.equal(torch.get_rng_state(), before)


class Branching(Masked):
    """Takes as many columns as the longest row has: a shape that depends on values."""

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        kept = batch["mask"].sum(dim=0).nonzero().flatten().tolist()
        return super().loss(model, {"tokens": batch["tokens"][:, kept], "mask": batch["mask"][:, kept]})


class Failing(Masked):
    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        raise RuntimeError("no\nsuch thing")


class Misshapen(Masked):
    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        torch.ones(2, 3) @ torch.ones(4, 5)
        return super().loss(model, batch)


class Unbuildable(Masked):
    def model(self) -> nn.Module:
        raise OSError("no weights here")


def test_values_that_matter_are_real_ones() -> None:
    measured = measure(Branching(ModelSettings()), table(8, 1), PROBE)
    plain = measure(Masked(ModelSettings()), table(8, 1), PROBE)
    assert measured.activations.unknown == ""
    assert 0.7 < measured.activations.train_bytes / plain.activations.train_bytes < 1.5


@pytest.mark.parametrize(
    ("pipeline", "says", "size"),
    [
        (Failing, "a micro-batch fails here (RuntimeError: no)", True),
        (Unbuildable, "the model cannot be built without values (OSError: no weights here)", False),
    ],
)
def test_what_cannot_be_measured_is_said(pipeline: Callable[[Any], Masked], says: str, size: bool) -> None:
    measured = measure(pipeline(ModelSettings()), table(8, 1), PROBE)
    assert measured.activations.unknown == says
    assert (measured.size is not None) == size


def test_a_wrong_shape_is_said_without_the_insides_of_torch(caplog: pytest.LogCaptureFixture) -> None:
    measured = measure(Misshapen(ModelSettings()), table(8, 1), PROBE)
    assert "mat1 and mat2 shapes cannot be multiplied" in measured.activations.unknown
    assert caplog.records == []
