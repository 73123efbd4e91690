"""Did you mean."""

from __future__ import annotations

import pytest

from pliant.config.suggest import closest, closest_key

KNOWN = [
    ("seed",),
    ("optim", "lr"),
    ("optim", "kind"),
    ("train", "steps"),
    ("train", "micro_batch"),
    ("optim",),
    ("train",),
]


@pytest.mark.parametrize(
    ("key", "meant", "words"),
    [
        ("optim.l", "optim.lr", "did you mean optim.lr"),
        ("optim.LR", "optim.lr", "did you mean optim.lr"),
        ("train.micro-batch", "train.micro_batch", "did you mean train.micro_batch"),
        ("lr", "optim.lr", "lr belongs under optim: optim.lr"),
        ("train.Seed", "seed", "seed belongs at the top level: seed"),
        ("optim.micro_batches", "train.micro_batch", "did you mean train.micro_batch"),
        ("opt", "optim", "did you mean optim"),
        ("zebra", None, ""),
    ],
)
def test_closest_key(key: str, meant: str | None, words: str) -> None:
    found, said = closest_key(key.split("."), KNOWN)
    assert (None if found is None else ".".join(found), said) == (meant, words)


def test_closest_names_best_first() -> None:
    assert closest("digit", ["stdlib_lm", "digits", "digit2"]) == ["digits", "digit2"]
    assert closest("x", []) == []
