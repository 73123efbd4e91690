"""Counts of an evaluation: whole numbers, added over micro-batches and workers."""

from __future__ import annotations

import pytest
import torch

from pliant.errors import UserCodeError
from pliant.train.evaluate import Counts
from pliant.train.parallel import single_process_group
from pliant.train.protocols import Loss
from pliant.train.usercode import loss_of
from tests.train.pipelines.masked import Masked, table
from tests.train.pipelines.masked_settings import ModelSettings
from tests.train.runs import Run


def loss(**counts: object) -> Loss:
    return Loss(torch.tensor(1.0), torch.tensor(1.0), {"accuracy": torch.tensor(1.0)}, counts=counts)  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_evaluation_counts_every_row_once(whole: Run) -> None:
    """That every worker count gives the same is in test_resume.py, with all other figures."""
    words = torch.tensor(table(61, 2).column("tokens").to_pylist())
    evaluations = whole.log("evaluations")
    assert [entry["threes"] for entry in evaluations] == [int(((words * 3 + 1) % 17 == 3).sum())] * 3


def test_counts_add_up_and_leave_what_was_given_as_it_was() -> None:
    with single_process_group():
        counts = Counts(torch.distributed.group.WORLD)
        given = loss(a=torch.tensor([2**52, 1]), b=torch.tensor(3))
        for _ in range(3):
            counts.add(given)
        found = counts.gather()
    assert {name: count.tolist() for name, count in found.items()} == {"a": [3 * 2**52, 3], "b": 9}
    assert given.counts["a"].tolist() == [2**52, 1]


@pytest.mark.parametrize("second", [{}, {"a": torch.tensor([1])}, {"a": torch.tensor([1, 2]), "b": torch.tensor(1)}])
def test_counts_of_another_shape_are_refused(second: dict[str, torch.Tensor]) -> None:
    with single_process_group():
        counts = Counts(torch.distributed.group.WORLD)
        counts.add(loss(a=torch.tensor([1, 2])))
        with pytest.raises(UserCodeError, match=r"same shapes for any rows; found \{.*\} after \{'a': \[2\]\}"):
            counts.add(loss(**second))


@pytest.mark.parametrize(
    ("count", "found"), [(torch.tensor([0.5]), "torch.float32"), (torch.tensor([True]), "torch.bool"), (3, "int")]
)
def test_what_is_no_whole_number_is_refused(count: object, found: str) -> None:
    class Counting(Masked):
        def loss(self, model: object, batch: object) -> Loss:
            return loss(words=count)

    pipeline = Counting(ModelSettings())
    with pytest.raises(UserCodeError, match=rf"Loss.counts\['words'\] must be a tensor of int64.*found {found}"):
        loss_of(pipeline, pipeline.model(), {})
