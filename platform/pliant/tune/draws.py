"""Random numbers of a sweep: each a function of the seed and of its occasion, so that none depends on what was drawn
before it. Raw words of Philox, whose stream NumPy keeps forever, unlike what its generators make of it."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np


def word(seed: int, *occasion: object) -> int:
    """64 random bits. ``occasion`` names what they are for: purpose, trial, samples …; compared by its text."""
    message = ":".join(map(str, ("pliant.tune", seed, *occasion))).encode()
    key = np.frombuffer(blake2b(message, digest_size=16).digest(), dtype="<u8").astype(np.uint64)
    return int(np.random.Philox(key=key).random_raw())


def unit(seed: int, *occasion: object) -> float:
    """A number in [0, 1) with 53 random bits."""
    return (word(seed, *occasion) >> 11) * 2.0**-53
