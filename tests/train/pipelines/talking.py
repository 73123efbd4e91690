"""The pipeline ``masked``, which also prints: once a process, and before its every tenth training forward pass."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from pliant.train.protocols import Loss
from tests.train.pipelines.masked import Masked
from tests.train.pipelines.masked_settings import ModelSettings

__all__ = ["ModelSettings", "pipeline"]


class Talking(Masked):
    _passes = 0

    def model(self) -> nn.Module:
        print("a model is built")
        print("and a complaint", file=sys.stderr)
        return super().model()

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> Loss:
        if torch.is_grad_enabled():
            self._passes += 1
            if self._passes % 10 == 0:
                print(f"forward pass {self._passes}")
        return super().loss(model, batch)


pipeline = Talking
