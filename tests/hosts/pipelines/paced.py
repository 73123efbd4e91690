"""The digits at a pace: a row takes some time, as on a machine that is slower, and the numbers stay the same."""

from __future__ import annotations

import time

from torch import nn

from pipelines import digits, digits_settings
from pliant.config.base import setting
from pliant.train.protocols import Batch, Loss


class ModelSettings(digits_settings.ModelSettings):
    """That of the digits."""

    row_s: float = setting(0.0, on_resume="free", ge=0)
    """Seconds that a row takes besides."""


class Paced(digits.Digits):
    """Digits, slowly."""

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        time.sleep(self.settings.row_s * len(batch["label"]))  # type: ignore[attr-defined]
        return super().loss(model, batch)


pipeline = Paced
