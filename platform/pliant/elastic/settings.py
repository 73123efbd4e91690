"""Settings of elastic control: how many workers a run may have, and what it bears."""

from __future__ import annotations

from pliant.config.base import Settings, rule, setting
from pliant.units import Seconds


class ElasticSettings(Settings):
    """How many workers a run may have and what each of them needs."""

    min_workers: int = setting(1, on_resume="free", ge=1)
    """Fewest workers to run with."""
    max_workers: int = setting(2, on_resume="free", ge=1)
    """Most workers to run with, at most the lanes. A number that is no faster than a smaller one gives way to it."""
    resources_per_worker: dict[str, float] = setting({"CPU": 1.0}, on_resume="free")
    """Ray resources of one worker."""
    settle: Seconds = setting(2.0, on_resume="free", ge=0)
    """How long new capacity must have been there before the run grows onto it."""
    resize_interval: Seconds = setting(60.0, on_resume="free", ge=0)
    """Shortest time between two changes of the worker count that nobody has to make: growing waits for it, leaving a
    machine that goes away does not."""
    spares: bool = setting(True, on_resume="free")
    """Keep a worker process standing by for each place, with everything imported, so that a restart need not wait for
    the start of processes. Costs the memory of an idle interpreter with torch, about 300 MB each. Not with GPUs."""
    stall_timeout: Seconds | None = setting(None, on_resume="free", gt=0)
    """Time without any progress after which the workers are started again. Default: from the observed step times, and
    30 min for the first step."""
    max_failures: int = setting(100, on_resume="free", ge=0)
    """How many times a start of the driver bears that workers or machines are lost without a notice."""
    max_failures_without_checkpoint: int = setting(5, on_resume="free", ge=1)
    """Attempts in a row, whatever ended them, that may end without a newly committed checkpoint. Then the run stops,
    resumable."""

    @rule("min_workers", "max_workers")
    def _range(self) -> None:
        if self.min_workers > self.max_workers:
            raise ValueError(f"min_workers {self.min_workers} is above max_workers {self.max_workers}")
