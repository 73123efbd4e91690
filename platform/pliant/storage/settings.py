"""Settings of a run's storage."""

from __future__ import annotations

from pliant.config.base import Settings, rule, setting
from pliant.units import Seconds

OBJECT_SCHEMES = ("s3", "gs", "az")
"""Of object storage that runs can be kept on."""


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

    @rule("storage")
    def _known_scheme(self) -> None:
        scheme, separator, _ = self.storage.partition("://")
        if separator and scheme not in ("file", *OBJECT_SCHEMES):
            allowed = ", ".join(f"{name}://" for name in OBJECT_SCHEMES)
            raise ValueError(f"storage is {self.storage!r}; allowed: a local path, {allowed}")
