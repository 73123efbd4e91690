"""The table of a sweep: what is known of each trial. Pure; kept by ``Sweep``, read by everybody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pliant.storage.layout import run_name
from pliant.tune.types import Decision, End, How, Loss, Mode, Params, Suggestion, loss_of

Status = How | Literal["running", "waiting", "paused"]
"""As ``How``, or of a trial that has not ended: ``running``: a leg of it runs; known to the driver alone, to a reader
of the log the trial is ``waiting``: it goes on as soon as there is a slot. ``paused``: it waits for the scheduler.
``limit``: the sweep has halted, and the trial goes on with it."""


@dataclass(frozen=True)
class Workers:
    """Sizes that a leg may have.

    Attributes:
        usual: workers of a trial to begin with.
        most: that it may grow to.
        lanes: of its dataset: sizes that are no faster than a smaller one are not used.
    """

    usual: int = 1
    most: int = 1
    lanes: int = 1


@dataclass(frozen=True)
class Point:
    """A report of a trial: samples, value (None: not finite), metrics and the generation it came from."""

    samples: int
    value: float | None
    metrics: Mapping[str, float | None]
    generation: int


@dataclass(frozen=True)
class Generation:
    """A trial between two clones of others: its parameters, where it began and whose state it began with.

    Attributes:
        samples: at which it began: 0, or the donor's.
        donor, donor_generation: whose state was cloned; None for the first generation.
    """

    params: Params
    samples: int = 0
    donor: str | None = None
    donor_generation: int = 0


@dataclass(frozen=True)
class Setback:
    """A loss, and the generation and samples that the trial had last reported, or begun with, when it came."""

    loss: Loss
    generation: int
    samples: int


@dataclass
class Trial:
    """A trial as the log has it. To be read only.

    Attributes:
        reports: oldest first. decisions: about it, oldest first.
        workers: of its next leg.
        worker_seconds: so far, lost work included.
        end: how it ended; None before.
        paused: it waits for the scheduler.
        leg: number of its next leg, or of the one that runs.
        failures: that counted against ``sweep.max_failures``.
        seen: samples of its last report in this generation; before that where the generation began.
    """

    suggestion: Suggestion
    workers: int
    generations: list[Generation]
    reports: list[Point] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    losses: list[Setback] = field(default_factory=list)
    end: End | None = None
    paused: bool = False
    worker_seconds: float = 0.0
    leg: int = 0
    failures: int = 0
    seen: int = 0
    best: Point | None = None

    @property
    def id(self) -> str:
        """``t0007``."""
        return self.suggestion.trial

    @property
    def number(self) -> int:
        """From 0, in the order of suggestion."""
        return self.suggestion.number

    @property
    def generation(self) -> int:
        """How often it has cloned another trial's state."""
        return len(self.generations) - 1

    @property
    def params(self) -> Params:
        """Those of its present generation."""
        return self.generations[-1].params

    @property
    def run(self) -> str:
        """Name of its present run below ``trials/``: ``t0007``, ``t0007.g1`` …"""
        return run_name(self.id, self.generation)

    @property
    def live(self) -> bool:
        """Whether a leg of it runs, or may begin."""
        return self.end is None and not self.paused

    @property
    def last(self) -> Point | None:
        """Its last report."""
        return self.reports[-1] if self.reports else None

    @property
    def samples(self) -> int:
        """Rows seen when it last reported; 0 before the first report."""
        return self.reports[-1].samples if self.reports else 0

    @property
    def reported(self) -> bool:
        """Whether its present generation has reported."""
        return bool(self.reports) and self.reports[-1].generation == self.generation

    @property
    def why(self) -> str:
        """Why it is as it is, for people: the text of its end, or of the last decision about it."""
        if self.end is not None and self.end.text:
            return self.end.text
        return self.decisions[-1].why if self.decisions else ""

    def improves(self, point: Point, mode: Mode) -> bool:
        """Whether a report is better than all before it."""
        return point.value is not None and (
            self.best is None or loss_of(point.value, mode) < loss_of(self.best.value, mode)
        )


@dataclass(frozen=True)
class Best:
    """The best report of a sweep: the first with the smallest loss, at whatever number of samples.

    Attributes:
        params: of the generation that reported it.
    """

    trial: str
    generation: int
    samples: int
    value: float
    params: Params

    @property
    def run(self) -> str:
        """Name below ``trials/`` of the run that reported it."""
        return run_name(self.trial, self.generation)
