"""A Gaussian process over points that drift in time, and the next point by its upper confidence bound. Pure.

The model and the bound are those of PB2 (Parker-Holder et al. 2020, sections 4 and 5): a squared exponential kernel
times ``(1 - forgetting) ** (distance in time / 2)``, and, for points that are tried at the same time, a variance that
counts all of them as observed. What the model does not know is chosen from a small grid by its likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_LENGTHS = (0.15, 0.4, 1.0)
_FORGETTING = (0.0, 0.1, 0.4)
_NOISE = (0.01, 0.2)


@dataclass(frozen=True)
class Kernel:
    """Unit variance; ``length`` in units of the cube, ``noise`` a variance."""

    length: float
    forgetting: float
    noise: float

    def __call__(self, x: Floats, at: Floats, other: Floats, other_at: Floats) -> Floats:
        """Covariances, shape (len(x), len(other)), of points (n, d) at times (n,)."""
        square = ((x[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
        apart = np.abs(at[:, None] - other_at[None, :])
        near: Floats = np.exp(-square / (2 * self.length**2)) * (1 - self.forgetting) ** (apart / 2)
        return near


def best_candidate(x: Floats, at: Floats, y: Floats, pending: Floats, candidates: Floats, now: float) -> int:
    """Index of the candidate with the largest upper confidence bound.

    Args:
        x: observed points, shape (n, d), in the unit cube; n at least 2.
        at: their times, shape (n,), in generations. now: that of ``pending`` and ``candidates``.
        y: what they gained, shape (n,); more is better.
        pending: points whose gain is not known yet, shape (p, d); p may be 0.
        candidates: shape (m, d), m at least 1.
    """
    spread = float(y.std())
    gains = (y - y.mean()) / spread if spread > 0 else np.zeros_like(y)
    kernel = max(
        (Kernel(*values) for values in product(_LENGTHS, _FORGETTING, _NOISE)),
        key=lambda k: _log_likelihood(k, x, at, gains),
    )
    times = np.full(len(candidates), now)
    covariance = kernel(x, at, x, at) + kernel.noise * np.eye(len(x))
    mean = kernel(candidates, times, x, at) @ np.linalg.solve(covariance, gains)
    every, every_at = np.vstack([x, pending]), np.concatenate([at, np.full(len(pending), now)])
    covariance = kernel(every, every_at, every, every_at) + kernel.noise * np.eye(len(every))
    cross = kernel(candidates, times, every, every_at)
    variance = 1 - (cross * np.linalg.solve(covariance, cross.T).T).sum(axis=1)
    width = np.sqrt(0.2 + max(0.0, float(np.log(0.4 * len(x)))))
    return int(np.argmax(mean + width * np.sqrt(np.maximum(variance, 0.0))))


def _log_likelihood(kernel: Kernel, x: Floats, at: Floats, gains: Floats) -> float:
    lower = np.linalg.cholesky(kernel(x, at, x, at) + kernel.noise * np.eye(len(x)))
    whitened = np.linalg.solve(lower, gains)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(lower)).sum())
