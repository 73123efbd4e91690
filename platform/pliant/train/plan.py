"""The plan of a run: what its settings and its dataset come to. Computed before anything starts, and shown."""

from __future__ import annotations

from dataclasses import dataclass

from pliant.data.manifest import Manifest, load_or_build_manifest
from pliant.data.memory import memory_bound
from pliant.data.plan import check_batch
from pliant.elastic.policy import lane_steps, useful_workers
from pliant.errors import ConfigError
from pliant.settings import RunConfig
from pliant.train.memory import RankMemory
from pliant.train.phases import Course, Phase, describe, largest_batch, phase_configs, plan_course
from pliant.units import format_bytes

SPLIT_TRAIN, SPLIT_VALIDATION = "train", "validation"
DATA_MANIFESTS = {SPLIT_TRAIN: "data/train.json", SPLIT_VALIDATION: "data/validation.json"}
"""Where a run keeps the manifests of its splits: what it trains on is part of its record."""


@dataclass(frozen=True)
class Datasets:
    """The manifests of a run's splits; ``validation`` is None where there is none."""

    train: Manifest
    validation: Manifest | None


def find_datasets(config: RunConfig) -> Datasets:
    """Finds and reads the manifests of the configured dataset.

    Raises:
        ConfigError: nothing is there.
        DamageError: with every bad file.
    """
    root = config.data.path.rstrip("/")
    split = _manifest_or_none(f"{root}/{SPLIT_TRAIN}")
    train = split or load_or_build_manifest(root)
    if config.data.validation is not None:
        return Datasets(train, load_or_build_manifest(config.data.validation.rstrip("/")))
    return Datasets(train, _manifest_or_none(f"{root}/{SPLIT_VALIDATION}") if split else None)


def _manifest_or_none(uri: str) -> Manifest | None:
    try:
        return load_or_build_manifest(uri)
    except ConfigError:
        return None


@dataclass(frozen=True)
class RunPlan:
    """What a run comes to.

    Attributes:
        rows: of the training set, N.
        steps: of the whole run.
        workers: to start with.
        data_memory: bound of each worker's stream in bytes.
        memory: of the fullest rank at ``workers``; None where the model cannot be measured.
        course: which settings hold for which steps.
    """

    rows: int
    validation_rows: int
    lanes: int
    steps: int
    workers: int
    data_memory: int
    memory: RankMemory | None = None
    course: Course | None = None

    def lines(self, config: RunConfig) -> list[str]:
        """The plan for people."""
        batch, lanes = config.train.global_batch, self.lanes
        per_lane = batch // lanes
        table = ", ".join(
            f"{w} → {lane_steps(lanes, w) * -(-per_lane // config.train.micro_batch)}"
            for w in useful_workers(lanes, config.elastic.min_workers, config.elastic.max_workers)
        )
        lines = [
            f"rows {self.rows:,} train, {self.validation_rows:,} validation",
            self._steps_line(batch),
            f"workers {self.workers}; micro-batches of {config.train.micro_batch} rows a step by workers: {table}",
            f"{config.train.precision}, {config.train.reduction} reduction, {config.optim.kind} lr {config.optim.lr:g},"
            f" {config.schedule.kind} schedule, seed {config.seed}",
            f"reader {config.data.reader}: at most {format_bytes(self.data_memory)} of rows a worker (in data memory)",
        ]
        if self.course is not None:
            lines += describe(config, self.course)
        if self.memory is not None:
            lines += self.memory.lines()
        most = config.elastic.max_workers
        if most not in (useful := useful_workers(lanes, config.elastic.min_workers, most)):
            lines.append(
                f"note: elastic.max_workers {most} is no faster than {useful[-1]}: one of them still has"
                f" {lane_steps(lanes, most)} of the {lanes} lanes; at most {useful[-1]} are used"
            )
        if config.eval.every_steps is not None and not self.validation_rows:
            every = config.eval.every_steps
            lines.append(f"note: eval.every_steps is {every}, but there is no validation set: nothing is evaluated")
        if per_lane < config.train.micro_batch:
            lines.append(
                f"note: a lane gives {per_lane} rows a step, fewer than train.micro_batch {config.train.micro_batch};"
                " fewer lanes would fill it"
            )
        return lines

    def _steps_line(self, batch: int) -> str:
        if self.course is not None and len(self.course.phases) > 1:
            return f"steps {self.steps:,} in {self.lanes} lanes, the first of {batch} rows"
        return (
            f"steps {self.steps:,} of {batch} rows in {self.lanes} lanes ({self.steps * batch / self.rows:.2f} epochs)"
        )


def make_plan(config: RunConfig, datasets: Datasets, columns: tuple[str, ...] | None, *, workers: int) -> RunPlan:
    """Computes the plan of a complete configuration.

    Raises:
        ConfigError: the settings do not fit the dataset.
    """
    lanes, rows = config.data.lanes, datasets.train.rows
    if lanes is None:
        raise ValueError("the configuration's lanes are not settled yet")
    for settings in phase_configs(config):
        check_batch(rows=rows, lanes=lanes, global_batch=settings.train.global_batch, tail=config.data.tail)
    course = plan_course(config, rows)
    for phase in course.phases:
        _check_warmup(phase)
    memory = memory_bound(
        manifest=datasets.train,
        data=config.data,
        lanes=lanes,
        world_size=workers,
        global_batch=largest_batch(config),
        columns=columns,
        row_ids=config.train.audit,
    )
    validation_rows = datasets.validation.rows if datasets.validation else 0
    return RunPlan(rows, validation_rows, lanes, course.steps, workers, memory, course=course)


def _check_warmup(phase: Phase) -> None:
    """Refuses a warm-up that a run given in epochs does not get to the end of."""
    schedule = phase.schedule
    if schedule.total is None and schedule.unit != "tokens" and schedule.warmup > phase.total:
        raise ConfigError(
            "config.schedule",
            f"schedule.warmup is {schedule.warmup}, above the run's whole length of {phase.total:,.0f} {schedule.unit}"
            + (f", from sample {phase.samples:,} on" if phase.samples else ""),
            hint="shorten it, or train longer",
        )
