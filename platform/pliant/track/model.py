"""The trained model of a run, whole and on the CPU: its last checkpoint in the module that its pipeline builds."""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from pliant.checkpoint.manifest import CheckpointManifest
from pliant.checkpoint.reader import check_parameters, open_checkpoint
from pliant.checkpoint.verify import check_file, read_manifest
from pliant.data.manifest import Manifest
from pliant.errors import DamageError, UnschedulableError
from pliant.registry import PipelineRef
from pliant.settings import RunConfig
from pliant.storage.layout import CheckpointRef
from pliant.storage.record import RunRecord
from pliant.track.tracker import TrainedModel
from pliant.train.work import first_rows
from pliant.units import format_bytes


@contextmanager
def trained_model(
    record: RunRecord, ref: PipelineRef, config: RunConfig, checkpoint: CheckpointRef
) -> Iterator[TrainedModel]:
    """Builds the model of a checkpoint; the files of its code exist as long as the context.

    Raises:
        DamageError: the checkpoint is damaged.
        UnschedulableError: this host's memory cannot hold the model.
        UserCodeError: the pipeline cannot be imported.
    """
    import tempfile

    manifest = _intact(record, checkpoint)
    free = psutil.virtual_memory().available
    if manifest.total_bytes > free:
        raise UnschedulableError(
            "track.memory",
            f"the checkpoint has {format_bytes(manifest.total_bytes)}, this host {format_bytes(free)} free memory",
            hint="deliver the model from a larger host with `pliant sync`, or switch it off: tracking.model=false",
        )
    pipeline = ref.load()(config.model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = pipeline.model()
    open_checkpoint(record.store, checkpoint, manifest).load(model, None)
    check_parameters(manifest, model, None)
    model.eval()
    train_set = Manifest.from_bytes(record.store.get("data/train.json"))
    table = first_rows(train_set, config, config.data.columns or pipeline.columns)
    inputs, outputs = _signature(pipeline, model, pipeline.collate(table))
    with tempfile.TemporaryDirectory() as folder:
        yield TrainedModel(
            module=model,
            inputs=inputs,
            outputs=outputs,
            code=_code(ref, Path(folder)),
            step=checkpoint.step,
            metadata={
                "pliant.run_id": record.run_id,
                "pliant.run": record.store.uri,
                "pliant.checkpoint": checkpoint.name,
                "pliant.parameter_digest": manifest.parameter_digest,
                "pliant.code_digest": ref.code_digest,
            },
        )


def _intact(record: RunRecord, checkpoint: CheckpointRef) -> CheckpointManifest:
    manifest = read_manifest(record.store, checkpoint)
    problems = [p for n, entry in manifest.files.items() if (p := check_file(record.store, checkpoint, n, entry))]
    if problems:
        raise DamageError("checkpoint.damaged", "; ".join(problems), location=checkpoint.name)
    return manifest


def _signature(pipeline: Any, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Any, Any]:
    """What the model's forward takes and gives, seen while the pipeline computes the loss of one collated batch.

    An array where forward takes one tensor, else arrays by the names of its arguments; None where the loss does not
    call the model itself, or no tensors are taken or given.
    """
    seen: list[tuple[tuple[Any, ...], dict[str, Any], Any]] = []
    hook = model.register_forward_hook(
        lambda module, args, kwargs, output: seen.append((args, kwargs, output)), with_kwargs=True
    )
    try:
        with torch.no_grad():
            pipeline.loss(model, batch)
    finally:
        hook.remove()
    if not seen:
        return None, None
    args, kwargs, output = seen[0]
    given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    inputs = {name: array for name, value in given.items() if (array := _arrays(value)) is not None}
    return (next(iter(inputs.values())) if len(inputs) == 1 else _flat(inputs) or None), _arrays(output)


def _arrays(value: Any) -> Any:
    """A tensor as an array; several, by name or place, as arrays by name; None for anything else."""
    if isinstance(value, Tensor):
        return value.detach().float().numpy() if value.dtype == torch.bfloat16 else value.detach().numpy()
    if isinstance(value, (tuple, list)):
        value = dict(enumerate(value))
    if isinstance(value, Mapping) and value and all(isinstance(v, Tensor) for v in value.values()):
        return {str(name): _arrays(tensor) for name, tensor in value.items()}
    return None


def _flat(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that hold several tensors as one entry a tensor: ``xs.0``."""
    flat: dict[str, Any] = {}
    for name, value in inputs.items():
        flat |= {f"{name}.{key}": array for key, array in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _code(ref: PipelineRef, folder: Path) -> list[Path]:
    """Copies of the pipeline's file and of what it has imported from beside it, laid out as they are imported."""
    root = ref.file.parents[ref.module.count(".")]
    names = {name for name in (ref.module, f"{ref.module}_settings") if name in sys.modules}
    names |= {
        value.__module__
        for name in names
        for value in vars(sys.modules[name]).values()
        if isinstance(value, type) and value.__module__ in sys.modules
    }
    for name, module in sorted(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "/")
        own = name in names or file.is_relative_to(root)
        if own and file.suffix == ".py" and not _installed(name, file):
            target = folder.joinpath(*name.split("."))
            target = target / "__init__.py" if file.name == "__init__.py" else target.with_suffix(".py")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            _copy_packages(name, folder)
    return sorted(folder.iterdir())


def _copy_packages(name: str, folder: Path) -> None:
    """The ``__init__.py`` of each package that a module lies in."""
    parts = name.split(".")
    for depth in range(1, len(parts)):
        file = getattr(sys.modules.get(".".join(parts[:depth])), "__file__", None)
        if file and Path(file).name == "__init__.py":
            shutil.copyfile(file, folder.joinpath(*parts[:depth], "__init__.py"))


def _installed(name: str, file: Path) -> bool:
    """Whether a module belongs to the environment: it is there wherever the model's requirements are."""
    own = name.partition(".")[0] in ("pliant", "__main__", "conftest")
    return own or "site-packages" in file.parts or file.is_relative_to(Path(sys.base_prefix))
