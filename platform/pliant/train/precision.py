"""Precision and device, resolved once at the start of an attempt and frozen."""

from __future__ import annotations

import platform as host_platform
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy

from pliant.errors import ConfigError
from pliant.train.settings import TrainSettings

_COMPUTE = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """Types of a run: ``compute`` of forward and backward (None: float32), ``reduce`` of gradient sums."""

    name: str
    compute: torch.dtype | None
    reduce: torch.dtype
    scaled: bool

    def policy(self, *, root: bool) -> MixedPrecisionPolicy:
        """FSDP2's policy; only the root module's output, the one the loss sees, is float32 again."""
        output = torch.float32 if root and self.compute is not None else None
        return MixedPrecisionPolicy(param_dtype=self.compute, reduce_dtype=self.reduce, output_dtype=output)


def resolve_precision(settings: TrainSettings) -> Precision:
    """Exact sums need float64: it holds the sum of any plausible number of float32 addends without loss that shows."""
    return Precision(
        name=settings.precision,
        compute=_COMPUTE[settings.precision],
        reduce=torch.float64 if settings.reduction == "exact" else torch.float32,
        scaled=settings.precision == "fp16",
    )


def resolve_device(settings: TrainSettings, *, wants_gpu: bool, local_rank: int) -> torch.device:
    """The device of this worker. Raises ConfigError where ``cuda`` is asked for and there is none."""
    available = torch.cuda.is_available()
    if settings.device == "cuda" and not available:
        raise ConfigError(
            "train.no-gpu", "train.device is cuda, but this worker sees no GPU",
            hint="give workers one with elastic.resources_per_worker={CPU: 1, GPU: 1}, or use train.device=auto",
        )  # fmt: skip
    if settings.device == "cpu" or not available or not (wants_gpu or settings.device == "cuda"):
        return torch.device("cpu")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


@dataclass
class LossScale:
    """Dynamic loss scale for float16: a power of two, so that scaling is exact. Halved on overflow, doubled after
    ``growth_interval`` steps without one (Micikevicius et al. 2018)."""

    scale: float = 65536.0
    good_steps: int = 0
    growth_interval: int = field(default=2000, repr=False)

    def update(self, overflow: bool) -> None:
        self.good_steps = 0 if overflow else self.good_steps + 1
        if overflow:
            self.scale = max(self.scale / 2, 1.0)
        elif self.good_steps == self.growth_interval:
            self.scale, self.good_steps = self.scale * 2, 0


def conditions(settings: TrainSettings, device: torch.device, threads: int) -> dict[str, Any]:
    """What ``exact`` depends on besides the code: recorded at every attempt and compared with the run's first."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "device": gpu or device.type,
        "cpu": f"{host_platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "torch": torch.__version__,
        "threads": threads,
        "micro_batch": settings.micro_batch,
    }


def compare_conditions(first: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Differences in words, empty where two attempts' numbers are comparable bit by bit."""
    return [f"{key}: {first.get(key)!r} → {now.get(key)!r}" for key in now if first.get(key) != now.get(key)]
