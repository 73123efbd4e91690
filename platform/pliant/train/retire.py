"""Retires older checkpoints after a commit: marks what is no longer needed, removes what an earlier save marked."""

from __future__ import annotations

from typing import Literal

from pliant.checkpoint.removal import remove_checkpoint
from pliant.checkpoint.retention import Stored, plan_removal
from pliant.checkpoint.settings import CheckpointSettings
from pliant.checkpoint.verify import read_manifest
from pliant.storage.attempts import Attempt
from pliant.storage.layout import CheckpointRef
from pliant.storage.record import RunRecord
from pliant.storage.view import DELETE


class Retirement:
    """Called on rank 0 in the background after each commit.

    Args:
        better: whether a lower or a higher value of the main metric is better.
    """

    def __init__(
        self,
        record: RunRecord,
        attempt: Attempt,
        settings: CheckpointSettings,
        *,
        main_metric: str,
        better: Literal["min", "max"],
    ) -> None:
        self._record, self._attempt, self._settings = record, attempt, settings
        self._main_metric: str = main_metric
        self._better: Literal["min", "max"] = better
        self._metrics: dict[CheckpointRef, float | None] = {}

    def __call__(self) -> None:
        """Raises FencedError when a newer attempt has claimed the run, StorageError when storage fails."""
        view = self._record.view()
        pinned = view.pins | ({view.restore.checkpoint} if view.restore and view.restore.checkpoint else set())
        stored = [
            Stored(v.checkpoint, self._metric(v.checkpoint), v.state == "marked", v.state != "quarantined")
            for v in view.verdicts()
            if v.state in ("usable", "marked", "quarantined")
        ]
        removal = plan_removal(
            stored,
            keep_last=self._settings.keep_last,
            keep_best=self._settings.keep_best,
            better=self._better,
            keep_every_steps=self._settings.keep_every_steps,
            pinned=pinned,
        )
        for ref in removal.mark:
            self._attempt.put_marker(DELETE, ref.name, {"reason": "retention"})
        for ref in removal.delete:
            remove_checkpoint(self._record.store, ref, self._attempt.check)

    def _metric(self, ref: CheckpointRef) -> float | None:
        if ref not in self._metrics:
            try:
                self._metrics[ref] = read_manifest(self._record.store, ref).metrics.get(self._main_metric)
            except Exception:  # damaged or just gone: it is then nobody's best
                self._metrics[ref] = None
        return self._metrics[ref]
