"""Pliant: deterministic, elastic PyTorch training on Ray.

The public names below are imported when they are first used, so that ``import pliant`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pliant.api import Run, runs_in
    from pliant.configure import load_config
    from pliant.errors import PliantError
    from pliant.registry import find_pipeline
    from pliant.settings import RunConfig
    from pliant.sweeps import Sweep, sweeps_in
    from pliant.train.protocols import Loss, Pipeline, Split
    from pliant.train.settings import ModelGuards

__version__ = "0.1.0"

_HOMES = {
    "Run": "pliant.api",
    "runs_in": "pliant.api",
    "Sweep": "pliant.sweeps",
    "sweeps_in": "pliant.sweeps",
    "load_config": "pliant.configure",
    "PliantError": "pliant.errors",
    "find_pipeline": "pliant.registry",
    "RunConfig": "pliant.settings",
    "Loss": "pliant.train.protocols",
    "Pipeline": "pliant.train.protocols",
    "Split": "pliant.train.protocols",
    "ModelGuards": "pliant.train.settings",
}

__all__ = [
    "Loss",
    "ModelGuards",
    "Pipeline",
    "PliantError",
    "Run",
    "RunConfig",
    "Split",
    "Sweep",
    "find_pipeline",
    "load_config",
    "runs_in",
    "sweeps_in",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pliant' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
