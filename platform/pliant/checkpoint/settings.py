"""Settings of checkpoints: when they are taken, which ones are kept."""

from __future__ import annotations

from pliant.config.base import Settings, rule, setting, where
from pliant.units import Seconds

_ADAPTIVE = where("checkpoint.every_steps", None)


class CheckpointSettings(Settings):
    """Checkpoints are asynchronous; the interval adapts so that their cost stays below ``overhead``. Where workers are
    lost now and then, it is the longer one at which saves and what is lost between them cost least: √(2 × cost × mean
    time between losses), by Young and Daly."""

    every_steps: int | None = setting(None, on_resume="free", ge=1)
    """Fixed interval in steps; default: adaptive."""
    overhead: float = setting(0.035, on_resume="free", gt=0, lt=1, only_with=_ADAPTIVE)
    """Share of the run's time that adaptive checkpoints may cost."""
    min_interval: Seconds = setting(10.0, on_resume="free", ge=0, only_with=_ADAPTIVE)
    """Shortest time between two adaptive checkpoints."""
    max_interval: Seconds = setting(600.0, on_resume="free", gt=0, only_with=_ADAPTIVE)
    """Longest time between two checkpoints; wins over ``overhead``, and the run says so."""
    peer_timeout: Seconds = setting(300.0, on_resume="free", gt=0)
    """Longest that a save waits for another worker, beyond ``run.store.retry_for``, which that one may spend waiting
    for storage. Then the run ends, resumable."""
    keep_last: int = setting(2, on_resume="free", ge=2)
    """Newest verified checkpoints kept. At least two: the newest may be damaged."""
    keep_best: int = setting(1, on_resume="free", ge=0)
    """Best checkpoints kept besides, by the pipeline's main metric."""
    keep_every_steps: int | None = setting(None, on_resume="free", ge=1)
    """Checkpoints at multiples of this step are kept for ever."""

    @rule("every_steps", "min_interval", "max_interval")
    def _interval(self) -> None:
        if self.every_steps is None and self.min_interval > self.max_interval:
            raise ValueError(
                f"min_interval {self.min_interval:g} s is above max_interval {self.max_interval:g} s;"
                " lower the one or raise the other"
            )
