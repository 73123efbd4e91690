"""Loading foreign parameters into a new model, at any world size: all of them or, with all that differs named, none.

A checkpoint gives this rank's parts in range requests; a safetensors file gives this rank's rows of one tensor after
the other. Types may differ among floating-point ones: the model's own is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.tensor import DTensor

from pliant.checkpoint.dcp import load_state
from pliant.checkpoint.digest import clean_name, shard_bounds
from pliant.checkpoint.reader import OpenCheckpoint
from pliant.errors import ConfigError, DamageError, listed

_SHOWN = 20
_PREFIX = "model."


class Kind(NamedTuple):
    """Shape and type of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


class Source(Protocol):
    """Where tensors come from."""

    def kinds(self) -> dict[str, Kind]:
        """Shape and type of every tensor by its name."""

    def load(self, targets: Mapping[str, Tensor]) -> None:
        """Fills tensors, DTensors among them, by their names."""


class CheckpointSource:
    """The model of a verified checkpoint."""

    def __init__(self, checkpoint: OpenCheckpoint) -> None:
        self._checkpoint = checkpoint

    def kinds(self) -> dict[str, Kind]:
        return {
            key.removeprefix(_PREFIX): Kind(tuple(entry.size), entry.properties.dtype)
            for key, entry in self._checkpoint.metadata.state_dict_metadata.items()
            if key.startswith(_PREFIX) and isinstance(entry, TensorStorageMetadata)
        }

    def load(self, targets: Mapping[str, Tensor]) -> None:
        load_state({"model": dict(targets)}, self._checkpoint.reader, self._checkpoint.metadata)


class SafetensorsSource:
    """A local safetensors file. Raises DamageError when it is none."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file = safe_open(path, framework="pt", device="cpu")
        except (SafetensorError, OSError) as error:
            message = f"cannot be read as safetensors: {error}"
            raise DamageError("init.not-safetensors", message, location=path) from error

    def kinds(self) -> dict[str, Kind]:
        slices = {name: self._file.get_slice(name) for name in self._file.keys()}  # noqa: SIM118
        return {name: Kind(tuple(one.get_shape()), _dtype(one.get_dtype())) for name, one in slices.items()}

    def load(self, targets: Mapping[str, Tensor]) -> None:
        for name, target in targets.items():
            if isinstance(target, DTensor) and target.placements[0].is_shard(0):
                mesh = target.device_mesh
                first, last = shard_bounds(target.shape[0], mesh.size(), mesh.get_local_rank())
                target.to_local().copy_(self._file.get_slice(name)[first:last])
            else:
                whole = target.to_local() if isinstance(target, DTensor) else target
                whole.copy_(self._file.get_tensor(name))


def load_parameters(source: Source, model: nn.Module, skip: Sequence[str], location: str) -> None:
    """Loads a model's parameters and persistent buffers in place. Reads this rank's parts only; not a collective.

    Raises:
        ConfigError: as ``compare_parameters``. Nothing is loaded then.
    """
    wanted = compare_parameters(source, model, skip, location)
    with torch.no_grad():
        source.load(wanted)


def compare_parameters(source: Source, model: nn.Module, skip: Sequence[str], location: str) -> dict[str, Tensor]:
    """The tensors of a model that a source fills, by name: parameters and persistent buffers.

    Args:
        model: plain, or sharded by FSDP2; without values too (on the meta device).
        skip: patterns of keys that are neither filled nor read.
        location: what the source is called in errors.

    Raises:
        ConfigError: ``init.mismatch`` with all keys that are missing, left over or different, and patterns that no key
            matches.
    """
    ours = {name: value for name, value in get_model_state_dict(model).items() if isinstance(value, Tensor)}
    theirs = source.kinds()
    names = {*ours, *theirs}
    skipped = {name for name in names if any(fnmatchcase(name, pattern) for pattern in skip)}
    wanted = {name: value for name, value in ours.items() if name in theirs and name not in skipped}
    filled = {other for name in wanted for other in _tied(model).get(name, ())}
    problems = [f"missing: {name}" for name in ours if name not in {*theirs, *skipped, *filled}]
    problems += [f"left over: {name}" for name in theirs if name not in {*ours, *skipped}]
    for name, value in wanted.items():
        here, there = Kind(tuple(value.shape), value.dtype), theirs[name]
        if here.shape != there.shape or here.dtype.is_floating_point != there.dtype.is_floating_point:
            problems.append(f"different: {name} is {there}, the model's is {here}")
    problems += [
        f"init.skip: {pattern} matches no key" for pattern in skip if not any(fnmatchcase(n, pattern) for n in names)
    ]
    if problems:
        raise _mismatch(problems, location)
    return wanted


def _tied(model: nn.Module) -> dict[str, set[str]]:
    """All names of parameters that have several, by each of them."""
    names: dict[nn.Parameter, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, set()).add(clean_name(name))
    return {name: group for group in names.values() if len(group) > 1 for name in group}


def _dtype(name: str) -> torch.dtype:
    """A safetensors type as torch's. Types that torch lacks count as bytes, which fit no parameter."""
    return _DTYPES.get(name, torch.uint8)


_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


def _mismatch(problems: list[str], location: str) -> ConfigError:
    message = f"these parameters do not fit the model:{listed(problems, _SHOWN)}"
    hint = "change the model's settings, or leave keys out on both sides with patterns: init.skip=['head.*']"
    return ConfigError("init.mismatch", message, hint=hint, location=location)
