"""What the commands about sweeps write to stdout with ``--json``, as models; ``results.py`` says which writes which."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pliant.cli.run_results import Result, VerifiedRun

Status = Literal["running", "waiting", "paused", "completed", "stopped", "failed", "diverged", "out-of-memory", "limit"]
_Mode = Literal["min", "max"]


class TrialStatus(Result):
    """A trial in ``status SWEEP``: ``value`` at its newest report, ``best`` of all; ``milestone``: how many it has
    reached; ``run``: where its present run is."""

    trial: str
    status: Status
    samples: int
    value: float | None
    best: float | None
    milestone: int
    generation: int
    workers: int
    worker_hours: float
    losses: int
    params: dict[str, Any]
    note: str
    why: str
    run: str


class BestTrial(Result):
    """The best report; ``settings`` and ``command`` are null where its run is gone."""

    trial: str
    value: float
    samples: int
    params: dict[str, Any]
    settings: dict[str, Any] | None
    yaml: str
    command: str | None


class SweepInBrief(Result):
    """A sweep in ``status``, and each line of ``status --watch``."""

    sweep: str
    state: str
    detail: str | None
    metric: str
    mode: _Mode
    scheduler: str
    searcher: str
    planned: int | None
    counts: dict[str, int]
    decisions: int
    best: BestTrial | None
    worker_hours: float
    cost: float | None
    attempts: int
    owner: str | None
    last_sign_s: float | None
    pipeline: str
    uri: str


class SweepStatus(SweepInBrief):
    """``status SWEEP``."""

    trials: list[TrialStatus]


class DamagedSweep(Result):
    """A sweep whose record cannot be read."""

    sweep: str
    state: Literal["damaged"]
    detail: str
    uri: str


class ListedSweep(Result):
    sweep: str
    state: str
    pipeline: str | None
    created: float | None
    uri: str


class _Entry(Result):
    """An entry of the decision log."""

    time: float
    attempt: int


class _Suggestion(_Entry):
    kind: Literal["suggestion"]
    trial: str
    number: int
    params: dict[str, Any]
    note: str


class _Report(_Entry):
    kind: Literal["report"]
    trial: str
    samples: int
    value: float | None
    metrics: dict[str, float | None]
    worker_seconds: float
    generation: int


class _Decision(_Entry):
    kind: Literal["decision"]
    trial: str
    samples: int
    action: Literal["continue", "stop", "pause", "resume", "exploit"]
    why: str
    params: dict[str, Any] | None
    donor: str | None
    donor_samples: int | None


class _Loss(_Entry):
    kind: Literal["loss"]
    trial: str
    cause: Literal["preemption", "infrastructure", "user", "out-of-memory", "stopped"]
    text: str
    signature: str
    worker_seconds: float


class _End(_Entry):
    kind: Literal["end"]
    trial: str
    how: Literal["completed", "stopped", "failed", "diverged", "out-of-memory", "limit"]
    samples: int
    text: str
    signature: str
    worker_seconds: float


class _Resize(_Entry):
    kind: Literal["resize"]
    trial: str
    workers: int
    why: str


class _Close(_Entry):
    kind: Literal["close"]
    why: str


class _Halt(_Entry):
    kind: Literal["halt"]
    what: Literal["worker-hours", "time", "plateau", "failures"]
    text: str


class _Settings(_Entry):
    kind: Literal["settings"]
    settings: dict[str, Any]
    space: dict[str, Any] | None


LogEntry = Annotated[
    _Suggestion | _Report | _Decision | _Loss | _End | _Resize | _Close | _Halt | _Settings,
    Field(discriminator="kind"),
]
"""A line of ``metrics SWEEP``."""


class Swept(Result):
    """``sweep``, and ``resume SWEEP``."""

    sweep: str
    uri: str
    reason: Literal["done", "user", "signal", "limit", "damage", "infrastructure"]
    text: str
    best: BestTrial | None


class PreviewedStage(Result):
    at: str
    samples: int
    trials: int
    rows: int


class Previewed(Result):
    """``sweep --dry-run``."""

    pipeline: str
    scheduler: str
    searcher: str
    metric: str
    mode: _Mode
    trials: int
    length: int
    exact: bool
    stages: list[PreviewedStage]
    rows: int
    to_the_end: int
    worker_hours: float | None
    cost: float | None
    workers_per_trial: int
    worker_seconds_per_row: float | None


class StoppedSweep(Result):
    """``stop SWEEP``: ``asked`` is false where nobody drives it."""

    sweep: str
    state: str
    decisions: int
    uri: str
    asked: bool


class ReportedBest(Result):
    trial: str
    value: float
    samples: int
    params: dict[str, Any]


class SweepReported(Result):
    """``report SWEEP``."""

    sweep: str
    uri: str
    state: str
    metric: str
    mode: _Mode
    counts: dict[str, int]
    decisions: int
    worker_hours: float
    cost: float | None
    trials: int
    best: ReportedBest | None
    file: str
    bytes: int


class SyncedSweep(Result):
    """``sync SWEEP``: ``trials`` that MLflow has all of."""

    sweep: str
    tracking: str
    id: str | None
    status: Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
    trials: int


class CheckedDecisions(Result):
    """``unknown``: what it takes to ask again, the pipeline say, is not there."""

    entries: int
    status: Literal["follow", "differ", "unknown"]
    detail: str


class VerifiedSweep(Result):
    """``verify SWEEP``."""

    sweep: str
    decisions: CheckedDecisions
    runs: list[VerifiedRun]
