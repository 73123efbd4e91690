"""The pipeline ``masked``, whose loss raises where a test wants it to, and whose workers wait for the test.
What is tried out before a run does neither.

The environment says when: ``RAISE_FOR``, the tokens of a row that it raises for (``3 1 4 1 5 9 2``), and
``RAISE_ONCE``, a file that is made then and keeps it from raising again; ``HOLD_MODEL_UNTIL``, a file without which no
worker builds its model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from pliant.train.protocols import Loss
from tests.train.pipelines.masked import Masked
from tests.train.pipelines.masked_settings import ModelSettings

__all__ = ["ModelSettings", "pipeline"]


class Failing(Masked):
    def model(self) -> nn.Module:
        while dist.is_initialized() and not os.path.exists(os.environ.get("HOLD_MODEL_UNTIL", "/")):
            time.sleep(0.02)
        return super().model()

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> Loss:
        bad, once = os.environ.get("RAISE_FOR"), os.environ.get("RAISE_ONCE", "")
        if bad and dist.is_initialized() and not os.path.exists(once):
            row = torch.tensor([int(word) for word in bad.split()])
            if (batch["tokens"] == row).all(dim=1).any():
                if once:
                    open(once, "w").close()
                raise ValueError("a row that this loss does not like")
        return super().loss(model, batch)


pipeline = Failing
