"""Random numbers of a sweep: each a function of the seed and of its occasion, so that none depends on what was drawn
before it. Raw words of Philox, whose stream NumPy keeps forever, unlike what its generators make of it."""

from __future__ import annotations

import math
from hashlib import blake2b

import numpy as np
import numpy.typing as npt


def word(seed: int, *occasion: object) -> int:
    """64 random bits. ``occasion`` names what they are for: purpose, trial, samples …; compared by its text."""
    return int(_stream(seed, *occasion).random_raw())


def unit(seed: int, *occasion: object) -> float:
    """A number in [0, 1) with 53 random bits."""
    return (word(seed, *occasion) >> 11) * 2.0**-53


def units(seed: int, shape: tuple[int, ...], *occasion: object) -> npt.NDArray[np.float64]:
    """As many numbers in [0, 1) as an array of this shape has, float64; the first is that of ``unit``."""
    words = _stream(seed, *occasion).random_raw(math.prod(shape))
    return (words >> np.uint64(11)).reshape(shape).astype(np.float64) * 2.0**-53


def _stream(seed: int, *occasion: object) -> np.random.Philox:
    message = ":".join(map(str, ("pliant.tune", seed, *occasion))).encode()
    key = np.frombuffer(blake2b(message, digest_size=16).digest(), dtype="<u8").astype(np.uint64)
    return np.random.Philox(key=key)
