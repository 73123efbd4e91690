"""Settings of a run's storage."""

from __future__ import annotations

from pliant.config.base import Settings, setting
from pliant.units import Seconds


class StorageSettings(Settings):
    """How long storage is waited for, and how the owner of a run shows that it lives."""

    retry_for: Seconds = setting(600.0, on_resume="free", ge=0)
    """How long an operation that fails with a passing fault is retried before the run stops (exit 4)."""
    request_timeout: Seconds = setting(30.0, on_resume="free", gt=0)
    """How long one request may take."""
    heartbeat_every: Seconds = setting(5.0, on_resume="free", gt=0)
    """How often the owner writes its heartbeat."""
    heartbeat_fresh: Seconds = setting(30.0, on_resume="free", gt=0)
    """Age up to which a heartbeat counts as a sign of life."""
    segment_every: Seconds = setting(10.0, on_resume="free", gt=0)
    """How often buffered metrics, events and audit lines are written as a segment, besides at checkpoints."""


class RunSettings(Settings):
    """Where a run lives."""

    storage: str = setting("runs", on_resume="frozen", min_length=1)
    """Local directory or ``s3://``, ``gs://``, ``az://`` URI under which runs are kept by name."""
    store: StorageSettings = setting(StorageSettings(), on_resume="free")
