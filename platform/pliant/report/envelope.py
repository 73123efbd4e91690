"""Many points as few, so that no spike gets lost: for every pixel the smallest, the mean and the largest. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Envelope:
    """A series in pieces along its steps; every array has one value a piece.

    Attributes:
        first, last: steps that a piece spans.
        low, mean, high: of its finite values; NaN where it has none.
        count: recorded values of a piece.
        bad: how many of them are not finite.
        bad_steps: all steps whose values are not, one value each.
        thinned: whether a piece stands for several values.
    """

    first: np.ndarray
    last: np.ndarray
    low: np.ndarray
    mean: np.ndarray
    high: np.ndarray
    count: np.ndarray
    bad: np.ndarray
    bad_steps: np.ndarray

    @property
    def thinned(self) -> bool:
        return bool((self.count > 1).any())

    def __len__(self) -> int:
        return len(self.first)


def envelope(steps: np.ndarray, values: np.ndarray, *, pieces: int) -> Envelope:
    """A series in at most ``pieces`` pieces of equal length along the steps; one piece a value where that is enough.

    Args:
        steps: (n,) int64, rising.
        values: (n,) float64, which may be NaN or infinite.
    """
    count = len(steps)
    if count <= pieces:
        begins = np.arange(count)
    else:
        index = (steps - steps[0]) * pieces // (steps[-1] - steps[0] + 1)
        begins = np.flatnonzero(np.diff(index, prepend=-1))
    if not count:
        return Envelope(*(np.zeros(0) for _ in range(8)))
    ends = np.append(begins[1:], count)
    finite = np.isfinite(values)
    good = np.add.reduceat(finite.astype(np.int64), begins)
    low = np.minimum.reduceat(np.where(finite, values, np.inf), begins)
    high = np.maximum.reduceat(np.where(finite, values, -np.inf), begins)
    none = good == 0
    # Each value is divided before they are added: no sum of finite values overflows.
    shares = np.where(finite, values, 0.0) / np.repeat(np.maximum(good, 1), ends - begins)
    mean = np.clip(np.add.reduceat(shares, begins), np.where(none, 0, low), np.where(none, 0, high))
    return Envelope(
        first=steps[begins],
        last=steps[ends - 1],
        low=np.where(none, np.nan, low),
        mean=np.where(none, np.nan, mean),
        high=np.where(none, np.nan, high),
        count=ends - begins,
        bad=ends - begins - good,
        bad_steps=steps[~finite],
    )


def ticks(low: float, high: float, *, about: int) -> list[float]:
    """Round numbers within [low, high], about so many, low < high."""
    rough = (high - low) / max(about, 1)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough * 0.999)
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within [low, high], with 2 and 5 of each where there are few; 0 < low < high."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = max(1, len(powers) // 6)
    digits = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [t for k in powers if k % every == 0 for d in digits if low <= (t := d * 10.0**k) <= high]


def labels(values: Sequence[float]) -> list[str]:
    """Numbers as an axis shows them, with as many digits as it takes to tell them apart."""
    texts: list[str] = []
    for digits in range(4, 17):
        texts = [short(value, digits) for value in values]
        if len(set(texts)) == len(texts):
            break
    return texts


def short(value: float, digits: int = 4) -> str:
    """A number in few characters: 12000 → ``12k``, 0.00003 → ``3e-5``."""
    for least, factor, unit in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if least <= abs(value) < 1e15:
            return f"{value / factor:.{digits}g}{unit}"
    mantissa, e, exponent = f"{value:.{digits}g}".partition("e")
    if 0 < abs(value) < 1e-3:
        mantissa, e, exponent = f"{value:.{digits - 1}e}".partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}" if e else mantissa
