"""Parameter digest: the same number at every world size, another one for any change."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
import torch.distributed as dist
from torch import nn

from pliant.checkpoint.digest import as_bytes, named_shards, parameter_digest, shard_bounds
from pliant.errors import PliantError
from tests.checkpoint.group import run
from tests.checkpoint.models import build


def _expected(model: nn.Module) -> str:
    """By the words of the definition, from whole tensors."""
    total = hashlib.blake2b()
    for name, p in sorted(model.named_parameters()):
        total.update(json.dumps([name, str(p.dtype).split(".")[1], list(p.shape)]).encode() + b"\n")
        total.update(p.detach().numpy().tobytes())
    return total.hexdigest()


def _sharded_digest() -> str | None:
    model, _ = build(sharded=True)
    return parameter_digest(named_shards(model), dist.group.WORLD, dist.get_rank())


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_same_at_every_world_size(world_size: int) -> None:
    model, _ = build(sharded=False)
    digests = run(world_size, _sharded_digest)
    assert digests == [_expected(model)] + [None] * (world_size - 1)


def test_plain_model_needs_no_group() -> None:
    model, _ = build(sharded=False)
    assert parameter_digest(named_shards(model), None) == _expected(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_every_change_shows(dtype: torch.dtype) -> None:
    values = (torch.arange(24).reshape(4, 6) % 2).to(dtype)

    def digest(name: str, tensor: torch.Tensor) -> str | None:
        return parameter_digest([(name, tensor, tuple(tensor.shape))], None)

    flipped = values.clone()
    as_bytes(flipped)[-1] ^= 1
    transposed = values.t().contiguous()
    variants = [("w", values), ("v", values), ("w", flipped), ("w", values.reshape(6, 4)), ("w", transposed)]
    assert len({digest(*v) for v in variants}) == len(variants)
    assert digest("w", transposed.t()) == digest("w", values)  # memory layout is no part of it


def test_scalars_and_empty_tensors() -> None:
    named = [("scalar", torch.tensor(1.5), ()), ("empty", torch.empty(0, 3), (0, 3))]
    assert parameter_digest(named, None) == parameter_digest(named[::-1], None)


def test_shards_are_cut_like_torch_chunk() -> None:
    for rows in range(12):
        for world_size in range(1, 6):
            chunks = torch.arange(rows).chunk(world_size) if rows else ()
            sizes = [len(c) for c in chunks] + [0] * (world_size - len(chunks))
            bounds = [shard_bounds(rows, world_size, r) for r in range(world_size)]
            assert [b - a for a, b in bounds] == sizes
            assert [a for a, _ in bounds][1:] == [b for _, b in bounds][:-1]


def _disagreeing(case: str) -> str:
    rank = dist.get_rank()
    whole = torch.ones(4, 2)
    part = whole.chunk(2)[rank]
    given = {
        "name": [(f"w{rank}", part, (4, 2))],
        "dtype": [("w", part.to([torch.float32, torch.float64][rank]), (4, 2))],
        "count": [("w", part, (4, 2))] * (rank + 1),
        "part": [("w", whole[: 1 + rank], (4, 2))],
        "whole on one rank": [("w", [whole, part][rank], (4, 2))],
    }[case]
    with pytest.raises(PliantError) as caught:
        parameter_digest(given, dist.group.WORLD, rank)
    return caught.value.code


@pytest.mark.parametrize("case", ["name", "dtype", "count", "part", "whole on one rank"])
def test_disagreement_is_an_error_on_all_ranks(case: str) -> None:
    assert run(2, _disagreeing, case) == ["checkpoint.failed"] * 2
