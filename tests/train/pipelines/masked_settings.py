"""Settings of the pipeline ``masked``."""

from __future__ import annotations

from pliant.config.base import setting
from pliant.train.settings import ModelGuards


class ModelSettings(ModelGuards):
    width: int = setting(24, on_resume="frozen", ge=1)
    """Features."""
    dropout: float = setting(0.1, on_resume="frozen", ge=0, lt=1)
    """Dropout probability."""
