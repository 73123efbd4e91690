"""What torch finds here to compute on."""

from __future__ import annotations

from typing import Any

import torch


def describe_devices() -> dict[str, Any]:
    """CPU instruction set, threads, CUDA and the GPUs, as plain values."""
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return {
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cuda_built": torch.version.cuda,
        "cuda_works": torch.cuda.is_available(),
        "gpus": [f"{gpu.name}, {gpu.total_memory / 2**30:.1f} GiB" for gpu in gpus],
    }
