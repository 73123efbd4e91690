"""The digits pipeline: its data, and the promises that the step builds on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError
from sklearn.datasets import load_digits

from pipelines.digits import SCHEMA, TRAIN_ROWS, Digits
from pipelines.digits_settings import ModelSettings


@pytest.fixture
def digits():
    return Digits(ModelSettings(width=8, depth=2, dropout=0.0))


def rows(count, *, weight=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    batch = {
        "pixels": torch.rand(count, 64, generator=generator),
        "label": torch.randint(10, (count,), generator=generator),
    }
    return batch if weight is None else {**batch, "weight": torch.tensor(weight)}


def part(batch, index):
    return {name: column[index] for name, column in batch.items()}


def test_prepare_writes_every_image_once_and_the_same_each_time():
    first, second = ({split.name: list(split.batches) for split in Digits(ModelSettings()).prepare()} for _ in "ab")

    assert list(first) == ["train", "validation"]
    assert [sum(b.num_rows for b in batches) for batches in first.values()] == [TRAIN_ROWS, 1797 - TRAIN_ROWS]
    for name, batches in first.items():
        assert all(a.equals(b) for a, b in zip(batches, second[name], strict=True))
        assert all(batch.schema.equals(SCHEMA) for batch in batches)

    pixels = np.concatenate([b.column("pixels").flatten().to_numpy() for bs in first.values() for b in bs])
    labels = np.concatenate([b.column("label").to_numpy() for bs in first.values() for b in bs])
    assert (pixels.min(), pixels.max()) == (0.0, 1.0)
    original = load_digits()
    found = (pixels.reshape(-1, 64) * 16).astype(int)
    assert sorted(map(tuple, found)) == sorted(map(tuple, original.data.astype(int)))
    assert np.array_equal(np.bincount(labels), np.bincount(original.target))


def test_prepared_row_groups_are_small_enough_to_shuffle():
    split = next(Digits(ModelSettings()).prepare())
    assert TRAIN_ROWS / split.row_group_rows >= 8


def test_collate_gives_tensors_of_the_columns_own_types(digits):
    table = pa.Table.from_batches(next(digits.prepare()).batches)
    for part_of_it in (table.slice(3, 5), table.slice(0, 0)):
        batch = digits.collate(part_of_it)
        assert {name: (column.dtype, tuple(column.shape)) for name, column in batch.items()} == {
            "pixels": (torch.float32, (part_of_it.num_rows, 64)),
            "label": (torch.int64, (part_of_it.num_rows,)),
        }


def test_no_rows_give_zero_sums_and_zero_gradients(digits):
    model = digits.model()
    loss = digits.loss(model, rows(0))
    loss.total.backward()

    assert (loss.total.item(), loss.weight.item(), loss.sums["accuracy"].item()) == (0, 0, 0)
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_sums_and_gradients_of_a_batch_are_those_of_its_parts(digits):
    model = digits.model().double()
    batch = {**rows(9), "weight": torch.linspace(0, 2, 9).double()}
    batch["pixels"] = batch["pixels"].double()
    parts = [digits.loss(model, part(batch, index)) for index in (slice(0, 4), slice(4, 9))]
    sum(p.total for p in parts).backward()
    of_parts = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    whole = digits.loss(model, batch)
    whole.total.backward()

    torch.testing.assert_close(whole.total, sum(p.total for p in parts), rtol=1e-6, atol=0)
    torch.testing.assert_close(whole.weight, sum(p.weight for p in parts))
    torch.testing.assert_close(whole.sums["accuracy"], sum(p.sums["accuracy"] for p in parts))
    torch.testing.assert_close([p.grad for p in model.parameters()], of_parts, rtol=1e-5, atol=1e-6)


def test_weight_counts_a_row_as_often_as_it_says(digits):
    model = digits.model()
    weighted = digits.loss(model, rows(3, weight=[2.0, 0.0, 1.0]))
    repeated = digits.loss(model, part(rows(3), torch.tensor([0, 0, 2])))

    torch.testing.assert_close(weighted.total, repeated.total)
    torch.testing.assert_close(weighted.weight, repeated.weight)
    torch.testing.assert_close(weighted.sums["accuracy"], repeated.sums["accuracy"])


def test_metrics_have_no_graph_and_the_total_has_one(digits):
    loss = digits.loss(digits.model(), rows(4))
    assert loss.total.requires_grad
    assert not loss.weight.requires_grad
    assert not loss.sums["accuracy"].requires_grad
    assert set(loss.sums) | {"loss"} == set(Digits.metrics)


def test_the_seed_decides_initialisation_and_dropout():
    digits = Digits(ModelSettings(dropout=0.5))

    def total(seed):
        torch.manual_seed(seed)
        return digits.loss(digits.model(), rows(5)).total.item()

    assert total(1) == total(1) != total(2)


def test_settings_refuse_what_they_do_not_know():
    with pytest.raises(ValidationError, match="widht"):
        ModelSettings(widht=3)
