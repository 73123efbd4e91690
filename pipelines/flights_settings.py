"""Settings of the flights network."""

from __future__ import annotations

from pliant.config.base import setting
from pliant.train.settings import ModelGuards


class ModelSettings(ModelGuards):
    """Size of the network. The defaults give 39 thousand parameters."""

    embedding: int = setting(8, on_resume="frozen", ge=1)
    """Features that each category is turned into."""
    width: int = setting(64, on_resume="frozen", ge=1)
    """Features between blocks."""
    depth: int = setting(2, on_resume="frozen", ge=1)
    """Number of residual blocks."""
    dropout: float = setting(0.1, on_resume="frozen", ge=0, lt=1)
    """Share of each block's output set to zero in training."""
