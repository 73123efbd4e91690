"""Settings of the pipeline that the mistakes are made in."""

from __future__ import annotations

from pliant.config.base import rule, setting
from pliant.train.settings import ModelGuards


class ModelSettings(ModelGuards):
    width: int = setting(64, on_resume="frozen", ge=1)
    """Size of the residual stream; a multiple of ``heads``."""
    heads: int = setting(4, on_resume="frozen", ge=1)
    """Attention heads."""

    @rule("width", "heads")
    def _whole_heads(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
