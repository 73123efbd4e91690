"""What each command writes to stdout with ``--json``, as models. ``schema`` gives the JSON schema of a command's.

A command that writes lines (``metrics``, ``logs``, ``status --watch``) writes one document a line. Nothing of this is
imported to run a command: tests hold what the commands write to it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from pliant.config.diff import Difference
from pliant.data.inspect import Inspection
from pliant.data.verify import Verified


class Result(BaseModel):
    """A document whose fields are all named here, and are all there."""

    model_config = ConfigDict(extra="forbid")


class NamedFile(Result):
    name: str
    file: str


class ListedRun(Result):
    run: str
    state: str
    pipeline: str | None
    created: float | None
    uri: str


class Listing(Result):
    """``ls``."""

    pipelines: list[NamedFile]
    spaces: list[NamedFile]
    storage: str
    runs: list[ListedRun]


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


class Trained(Result):
    """``train`` and ``resume``."""

    run: str
    uri: str
    reason: Literal["done", "user", "signal", "limit", "damage", "infrastructure"]
    step: int
    total_steps: int
    values: dict[str, float | None]
    rate: float | None
    unit: Literal["rows", "tokens"]


class Explained(Result):
    """``resume --explain``."""

    run: str
    explanation: list[str]


class RunStatus(Result):
    """``status RUN``, and each line of ``status --watch``."""

    run: str
    state: str
    step: int
    loss: float | None
    evaluation: dict[str, float | None]
    checkpoint: int | None
    best: dict[str, float] | None
    checkpoints: list[str]
    workers: int | None
    attempts: int
    owner: str | None
    last_sign_s: float | None
    detail: str | None
    pipeline: str
    uri: str


class DamagedRun(Result):
    """A run whose record cannot be read."""

    run: str
    state: Literal["damaged"]
    detail: str
    uri: str


class Statuses(Result):
    """``status``."""

    runs: list[RunStatus | DamagedRun]


class LogLine(Result):
    """A line of ``logs``."""

    rank: int
    attempt: int
    time: float
    stream: Literal["out", "err"]
    text: str


class Stopped(Result):
    """``stop``: ``asked`` is false where nobody drives the run."""

    run: str
    state: str
    step: int
    checkpoint: int | None
    uri: str
    asked: bool


class Step(BaseModel):
    """A line of ``metrics``: these, and the pipeline's own figures."""

    model_config = ConfigDict(extra="allow")
    step: int
    epoch: int
    position: int
    samples: int
    tokens: int
    loss: float | None
    lr: float
    grad_norm: float | None
    weight: float
    world_size: int
    attempt: int
    data_s: float
    step_s: float
    time: float


class EvaluationLine(BaseModel):
    """A line of ``metrics --eval``: these, and the pipeline's own figures."""

    model_config = ConfigDict(extra="allow")
    step: int
    loss: float | None
    seconds: float
    time: float
    attempt: int


class Sample(Result):
    """A line of ``metrics --audit``: where each sample of each step stands."""

    step: int
    attempt: int
    epoch: int
    position: int
    file: str
    row: int


class CheckedCheckpoint(Result):
    ref: str
    state: str
    status: Literal["intact", "damaged", "uncommitted", "unreadable"]
    problems: list[str]
    bytes: int
    stray: list[str]


class Reported(Result):
    """``report``."""

    run: str
    uri: str
    state: str
    steps: int
    last_step: int
    figures: list[str]
    attempts: int
    seconds: dict[str, float]
    goodput: float | None
    events: int
    checkpoints: dict[str, str]
    settings: int
    file: str
    bytes: int


class VerifiedRun(Result):
    """``verify``."""

    run: str
    checkpoints: list[CheckedCheckpoint]


class Synced(Result):
    """``sync``."""

    run: str
    tracking: str
    id: str | None
    status: Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
    step: int


class Garbage(Result):
    """``gc``."""

    checkpoints: list[str]
    files: int
    bytes: int
    removed: bool


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
    "resume": Trained | Explained,
    "status": Statuses | RunStatus | DamagedRun,
    "logs": LogLine,
    "stop": Stopped,
    "metrics": Step | EvaluationLine | Sample,
    "report": Reported,
    "verify": VerifiedRun,
    "sync": Synced,
    "gc": Garbage,
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
