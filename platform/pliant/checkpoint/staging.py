"""Copying the state to host memory: what a training step waits for when a checkpoint is taken."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class HostShard:
    """This rank's part of one tensor.

    Attributes:
        data: contiguous CPU tensor with a storage of its own.
        offsets: where it begins in the whole, per dimension.
        shape: shape of the whole.
        sharded: whether other ranks hold other parts (or the same part: only one of them writes it).
    """

    data: Tensor
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    sharded: bool


class HostCopy:
    """Copies nested dicts of tensors to buffers that are kept from one copy to the next.

    Fresh memory is many times slower to copy to than memory that was touched before; ``reserve`` touches it.
    Buffers of tensors on an accelerator are pinned.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self.bytes = 0

    def reserve(self, state: dict[str, Any]) -> None:
        """Allocates and touches the buffers of a state without reading its values."""
        self._walk(state, "", lambda source, buffer: buffer.view(-1).fill_(0) if buffer.numel() else None)

    def take(self, state: dict[str, Any]) -> dict[str, Any]:
        """Returns the state with every tensor as a HostShard and every other value copied.

        The result is valid until the next ``take``. Returns when all bytes have arrived.
        """
        devices: set[torch.device] = set()

        def fill(source: Tensor, buffer: Tensor) -> None:
            buffer.copy_(source, non_blocking=True)
            if source.device.type != "cpu":
                devices.add(source.device)

        self.bytes = 0
        copied = self._walk(state, "", fill)
        for device in devices:
            torch.accelerator.synchronize(device)
        return copied

    def _walk(self, value: Any, path: str, fill: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._walk(item, f"{path}/{key}", fill) for key, item in value.items()}
        if not isinstance(value, Tensor):
            return copy.deepcopy(value)
        tensor = value.detach()
        offsets, local = (0,) * tensor.ndim, tensor
        if isinstance(tensor, DTensor):
            (chunk,) = tensor.__create_chunk_list__()
            offsets, local = tuple(chunk.offsets), tensor.to_local()
        buffer = self._buffer(path, local)
        fill(local, buffer)
        self.bytes += buffer.nbytes
        return HostShard(buffer, offsets, tuple(tensor.shape), isinstance(tensor, DTensor))

    def _buffer(self, path: str, like: Tensor) -> Tensor:
        buffer = self._buffers.get(path)
        if buffer is None or buffer.shape != like.shape or buffer.dtype != like.dtype:
            pinned = like.device.type == "cuda"
            buffer = torch.empty(like.shape, dtype=like.dtype, device="cpu", pin_memory=pinned)
            self._buffers[path] = buffer
        return buffer
