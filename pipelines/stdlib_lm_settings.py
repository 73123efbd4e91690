"""Settings of the byte-level language model."""

from __future__ import annotations

from pliant.config.base import rule, setting
from pliant.train.settings import ModelGuards


class ModelSettings(ModelGuards):
    """Size of the transformer. The defaults give 0.9 million parameters."""

    context: int = setting(256, on_resume="frozen", ge=1)
    """Bytes that the model sees; also the length of the rows that ``prepare`` writes."""
    width: int = setting(128, on_resume="frozen", ge=4)
    """Size of the residual stream; a multiple of ``heads``."""
    depth: int = setting(4, on_resume="frozen", ge=1)
    """Number of transformer blocks."""
    heads: int = setting(4, on_resume="frozen", ge=1)
    """Attention heads per block; each has an even size."""
    history: int = setting(2, on_resume="frozen", ge=0)
    """Preceding bytes embedded together with each byte. A short run has no time to learn them by attention."""
    dropout: float = setting(0.0, on_resume="frozen", ge=0, lt=1)
    """Share of each block's outputs set to zero in training. A short run never sees a byte twice: it needs none."""

    @rule("width", "heads")
    def _even_heads(self) -> None:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} must be a multiple of 2 × heads = {2 * self.heads}")
