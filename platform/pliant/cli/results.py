"""What each command writes to stdout with ``--json``, as models. ``schema`` gives the JSON schema of a command's.

A command that writes lines (``metrics``, ``logs``, ``status --watch``) writes one document a line. Nothing of this is
imported to run a command: tests hold what the commands write to it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from pliant.cli.run_results import (
    ChaosLine,
    ComparedCurves,
    DamagedRun,
    EvaluationLine,
    Explained,
    Garbage,
    LogLine,
    OneRunStatus,
    Reported,
    Result,
    RunStatus,
    Sample,
    Step,
    Stopped,
    Synced,
    TimedRunStatus,
    Trained,
    VerifiedRun,
)
from pliant.cli.sweep_results import (
    DamagedSweep,
    ListedSweep,
    LogEntry,
    Previewed,
    StoppedSweep,
    SweepInBrief,
    SweepReported,
    SweepStatus,
    Swept,
    SyncedSweep,
    VerifiedSweep,
)
from pliant.config.diff import Difference
from pliant.data.inspect import Inspection
from pliant.data.verify import Verified


class NamedFile(Result):
    name: str
    file: str


class ListedSpace(NamedFile):
    pipeline: str
    scheduler: str


class ListedRun(Result):
    run: str
    state: str
    pipeline: str | None
    created: float | None
    uri: str


class Listing(Result):
    """``ls``."""

    pipelines: list[NamedFile]
    spaces: list[ListedSpace]
    storage: str
    runs: list[ListedRun]
    sweeps: list[ListedSweep]


class Statuses(Result):
    """``status``."""

    runs: list[RunStatus | DamagedRun]
    sweeps: list[SweepInBrief | DamagedSweep]


class Begun(Result):
    """``init``."""

    directory: str
    files: list[str]
    next: list[str]


class WrittenSplit(Result):
    path: str
    rows: int
    files: int
    bytes: int
    digest: str


class Prepared(Result):
    """``prepare``."""

    pipeline: str
    splits: dict[str, WrittenSplit]


class Repacked(Result):
    """``data repack``."""

    source: str
    splits: dict[str, WrittenSplit]


class Inspected(Result):
    """``data inspect``."""

    splits: dict[str, Inspection]


class VerifiedData(Result):
    """``data verify``."""

    splits: dict[str, Verified]


class PlannedMemory(Result):
    bytes: int
    moment: str
    parts_bytes: dict[str, int]
    room_bytes: int | None
    room_source: str | None


class PlannedWorkers(Result):
    workers: int
    micro_batches_per_step: int
    relative_step_time: float
    host_memory: PlannedMemory | None
    device_memory: PlannedMemory | None


class PlannedShuffle(Result):
    pool_row_groups: int
    variance_ratio: float


class Planned(Result):
    """``plan``."""

    pipeline: str
    rows: int
    validation_rows: int
    lanes: int
    steps: int
    workers: int
    parameters: int | None
    data_stream_bytes: int
    shuffle: PlannedShuffle
    by_workers: list[PlannedWorkers]
    notes: list[str]


class CheckError(Result):
    code: str
    message: str
    hint: str
    where: str


class PreflightCheck(Result):
    name: str
    status: Literal["ok", "failed", "skipped"]
    seconds: float
    detail: str
    error: CheckError | None


class PreflightResult(Result):
    """``preflight``."""

    pipeline: str
    ok: bool
    checks: list[PreflightCheck]


class Described(Result):
    """``doctor``."""

    pliant: dict[str, str | bool | None]
    packages: dict[str, str | None]
    machine: dict[str, str | int | None]
    torch: dict[str, str | int | bool | list[str] | None]
    storage: dict[str, str | int | bool | None]
    variables: dict[str, str]


class Shown(Result):
    """``config show``."""

    config: dict[str, Any]
    origins: dict[str, str]
    derived: dict[str, str]
    digest: str


class Checked(Result):
    """``config check``."""

    pipeline: str
    settings: int
    chosen: int


class ExplainedSetting(Result):
    key: str
    about: str
    allowed: str
    only_with: list[str]
    on_resume: str


class Compared(Result):
    """``config diff``."""

    a: str
    b: str
    differences: list[Difference]


class Problem(Result):
    code: str
    message: str
    hint: str
    location: str


class Failure(BaseModel):
    """What a command writes to stderr instead: ``problems`` where there are several, ``traceback`` of user code."""

    model_config = ConfigDict(extra="forbid")
    error: Problem
    exit_code: int
    problems: list[Problem] = []
    traceback: str = ""


RESULTS: dict[str, Any] = {
    "ls": Listing,
    "init": Begun,
    "prepare": Prepared,
    "plan": Planned,
    "preflight": PreflightResult,
    "train": Trained,
    "resume": Trained | Swept | Explained,
    "sweep": Swept | Previewed,
    "status": Statuses
    | TimedRunStatus
    | OneRunStatus
    | RunStatus
    | DamagedRun
    | SweepStatus
    | SweepInBrief
    | DamagedSweep,
    "logs": LogLine,
    "stop": Stopped | StoppedSweep,
    "metrics": Step | EvaluationLine | Sample | ComparedCurves | LogEntry,
    "report": Reported | SweepReported,
    "verify": VerifiedRun | VerifiedSweep,
    "sync": Synced | SyncedSweep,
    "gc": Garbage,
    "chaos": ChaosLine,
    "doctor": Described,
    "data inspect": Inspected,
    "data repack": Repacked,
    "data verify": VerifiedData,
    "config show": Shown,
    "config check": Checked,
    "config explain": list[ExplainedSetting],
    "config diff": Compared,
}
"""By command."""


def schema(command: str) -> dict[str, Any]:
    """JSON schema of what a command writes."""
    return TypeAdapter(RESULTS[command]).json_schema()
