"""What the commands about runs write to stdout with ``--json``, as models; ``results.py`` says which writes which."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Result(BaseModel):
    """A document whose fields are all named here, and are all there."""

    model_config = ConfigDict(extra="forbid")


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
    """A run in ``status``, and each line of ``status --watch``."""

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


class GroupLine(Result):
    """One start of a run's workers: why it ended, and which steps it did."""

    attempt: int
    driver: int
    workers: int | None
    from_step: int
    to_step: int | None
    began: float
    cause: Literal["start", "preemption", "resize", "infrastructure", "user", "driver", "stop"] | None
    why: str


class TimeSpent(Result):
    """Seconds of a run by category; those of categories that have causes, by cause; share of steps that count."""

    seconds: dict[str, float]
    causes: dict[str, dict[str, float]]
    goodput: float | None


class OneRunStatus(RunStatus):
    """``status RUN``."""

    history: list[GroupLine]


class TimedRunStatus(OneRunStatus):
    """``status RUN --time``."""

    time: TimeSpent


class DamagedRun(Result):
    """A run whose record cannot be read."""

    run: str
    state: Literal["damaged"]
    detail: str
    uri: str


class LogLine(Result):
    """A line of ``logs``; the driver has no rank."""

    rank: int | None
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


class ComparedCurves(Result):
    """``metrics --against``: of the steps that both runs have, how many are the same, and where they first part."""

    run: str
    against: str
    steps: int
    same: int
    first_difference: int | None
    differences: dict[str, list[Any]]
    only_one: int
    only_other: int
    digests: int


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
    causes: dict[str, dict[str, float]]
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


class ChaosLine(Result):
    """A line of ``chaos``: ``skipped`` where there was nothing to hit."""

    at_s: float
    fault: str
    node: str
    text: str
    skipped: bool


class Garbage(Result):
    """``gc``."""

    checkpoints: list[str]
    files: int
    bytes: int
    removed: bool
