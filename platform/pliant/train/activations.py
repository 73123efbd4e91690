"""Measures a pipeline's model before anything starts: its parameters, and the memory of one micro-batch.

The model is built, and a micro-batch goes through forward and backward, on fake tensors: shapes and lifetimes are
real, values and memory are not. Where a pipeline looks at values, the same is done with two real rows.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psutil
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from pliant.train.memory import MAPPED_BYTES, Activations, ModelSize, Parameter
from pliant.train.parallel import checkpoint_blocks
from pliant.train.protocols import Pipeline

_REAL_ROWS = 2
_REAL_SHARE = 0.25
"""Share of the free memory that a real model may take here."""


@dataclass(frozen=True)
class Probe:
    """How a micro-batch is tried: its rows in training and in evaluation (0: none), the type of computation (None: the
    parameters' own), and whether blocks recompute their activations."""

    train_rows: int
    evaluation_rows: int
    compute: torch.dtype | None
    checkpointing: bool


@dataclass(frozen=True)
class Measured:
    """What was found; ``size`` is None where not even the model could be built, ``activations.unknown`` says why."""

    size: ModelSize | None
    activations: Activations


def measure(pipeline: Pipeline[Any], rows: pa.Table, probe: Probe) -> Measured:
    """Measures on this thread, without touching any generator's state. Raises nothing that the pipeline raises.

    Args:
        rows: some rows of the dataset, at least one; they are repeated where a micro-batch has more.
    """
    with torch.random.fork_rng(devices=[]), _without_traces():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                size = model_size(model := pipeline.model(), pipeline.blocks(model))
        except Exception as error:
            return Measured(None, Activations(unknown=f"the model cannot be built without values ({_short(error)})"))
        try:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                return Measured(size, _try(pipeline, rows, probe, mode.from_tensor))
        except Exception as error:
            reason = _short(error)
        whole = sum(p.numel * p.element_bytes for p in size.parameters)
        if whole > _REAL_SHARE * psutil.virtual_memory().available:
            return Measured(size, Activations(unknown=f"they depend on values ({reason}), and the model is large"))
        try:
            few = replace(probe, train_rows=_REAL_ROWS, evaluation_rows=min(probe.evaluation_rows, _REAL_ROWS))
            found = _try(pipeline, rows, few, lambda tensor: tensor)
        except Exception as error:
            return Measured(size, Activations(unknown=f"a micro-batch fails here ({_short(error)})"))
        # Linear in rows: what does not depend on them is counted several times, so it is rather too much.
        return Measured(
            size,
            replace(
                found,
                train_bytes=found.train_bytes * probe.train_rows // _REAL_ROWS,
                train_small_bytes=found.train_small_bytes * probe.train_rows // _REAL_ROWS,
                evaluation_bytes=found.evaluation_bytes * probe.evaluation_rows // _REAL_ROWS,
            ),
        )


@contextmanager
def _without_traces() -> Iterator[None]:
    """An operator that fails on fake tensors is the pipeline's mistake and said as such; torch logs its insides."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def model_size(model: nn.Module, blocks: list[nn.Module]) -> ModelSize:
    """Parameters by the unit that FSDP2 shards them in: a shared one belongs to the first that has it."""
    seen: set[int] = set()

    def of(module: nn.Module) -> tuple[Parameter, ...]:
        new = [p for p in module.parameters() if id(p) not in seen]
        seen.update(map(id, new))
        return tuple(Parameter(tuple(p.shape), p.element_size(), p.requires_grad) for p in new)

    units = tuple(of(block) for block in blocks)
    return ModelSize(of(model), units, sum(b.numel() * b.element_size() for b in model.buffers()))


def _try(pipeline: Pipeline[Any], rows: pa.Table, probe: Probe, tensor: Callable[[Tensor], Tensor]) -> Activations:
    model = pipeline.model()
    blocks = pipeline.blocks(model)
    if probe.checkpointing:
        blocks = checkpoint_blocks(model, blocks)
    if probe.compute is not None:
        _compute_in(model, blocks, probe.compute)
    for parameter in model.parameters():
        # Gradients are counted elsewhere; FSDP2 takes each away as soon as its block has it.
        parameter.register_post_accumulate_grad_hook(_drop_gradient)

    def batch(count: int) -> dict[str, Tensor]:
        collated = pipeline.collate(_repeated(rows, count))
        return {name: value if isinstance(value, FakeTensor) else tensor(value) for name, value in collated.items()}

    def train(tensors: dict[str, Tensor]) -> None:
        model.train()
        pipeline.loss(model, tensors).total.backward()

    def evaluate(tensors: dict[str, Tensor]) -> None:
        model.eval()
        with torch.no_grad():
            pipeline.loss(model, tensors)

    first = batch(probe.train_rows)
    row_bytes = sum(value.nbytes for value in first.values()) / probe.train_rows
    train_live = _live(model, first, train)
    evaluation = _live(model, batch(probe.evaluation_rows), evaluate).peak if probe.evaluation_rows else 0
    return Activations(train_live.peak, train_live.small_at_peak, evaluation, row_bytes)


def _live(model: nn.Module, tensors: dict[str, Tensor], run: Callable[[dict[str, Tensor]], None]) -> LiveBytes:
    with LiveBytes([*model.parameters(), *model.buffers(), *tensors.values()]) as live:
        run(tensors)
    return live


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages that operations make while it is on, from their birth to their release.

    Fake scalars, which have no value, are answered by 1: pipelines read how many tokens a batch has.

    Args:
        known: tensors whose storages are not counted.

    Attributes:
        peak: most bytes at once.
        small_at_peak: of those, in storages below MAPPED_BYTES.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self._seen: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        for tensor in known:
            self._is_new(tensor)
        self._now = self._small = self.peak = self.small_at_peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return True if args[0].dtype == torch.bool else 1.0 if args[0].dtype.is_floating_point else 1
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and self._is_new(tensor):
                size = tensor.untyped_storage().nbytes()
                self._add(size)
                weakref.finalize(tensor.untyped_storage(), self._add, -size)
        return result

    def _is_new(self, tensor: Tensor) -> bool:
        storage = tensor.untyped_storage()
        if self._seen.get(id(storage)) is storage:
            return False
        self._seen[id(storage)] = storage
        return True

    def _add(self, size: int) -> None:
        self._now += size
        self._small += size if abs(size) < MAPPED_BYTES else 0
        if self._now > self.peak:
            self.peak, self.small_at_peak = self._now, self._small


def _compute_in(model: nn.Module, blocks: list[nn.Module], dtype: torch.dtype) -> None:
    """What FSDP2's mixed precision does: parameters and the inputs of units in ``dtype``, the root's output float32."""

    def cast(value: Any, to: torch.dtype) -> Any:
        return value.to(to) if isinstance(value, Tensor) and value.is_floating_point() else value

    def inputs(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return tree_map(lambda v: cast(v, dtype), args), tree_map(lambda v: cast(v, dtype), kwargs)

    for parameter in model.parameters():
        parameter.data = cast(parameter.data, dtype)
    for unit in (*blocks, model):
        unit.register_forward_pre_hook(inputs, with_kwargs=True)
    model.register_forward_hook(lambda module, args, output: tree_map(lambda v: cast(v, torch.float32), output))


def _drop_gradient(parameter: Tensor) -> None:
    parameter.grad = None


def _repeated(rows: pa.Table, count: int) -> pa.Table:
    return pa.concat_tables([rows] * -(-count // rows.num_rows)).slice(0, count)


def _short(error: BaseException) -> str:
    """A reason in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]
