"""Rules between the sections of a run's configuration. Pure. What one section's settings must be is said by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pliant.config.base import rule
from pliant.config.problems import Problem
from pliant.settings import RunConfig
from pliant.train.settings import VERIFIED_OPTIMIZERS


@rule("train.global_batch", "data.lanes")
def _batch(config: RunConfig) -> Iterator[Problem]:
    batch, lanes = config.train.global_batch, config.data.lanes
    if lanes is not None and batch % lanes:
        below, above = batch // lanes * lanes, (batch // lanes + 1) * lanes
        yield Problem(
            "train.global_batch",
            "config.global-batch",
            f"train.global_batch is {batch}, not a multiple of data.lanes {lanes}",
            f"the nearest that fit: {f'{below} or ' if below else ''}{above}",
        )


@rule("train.global_batch", "data.lanes", "elastic.max_workers")
def _workers(config: RunConfig) -> Iterator[Problem]:
    batch, lanes, workers = config.train.global_batch, config.data.lanes, config.elastic.max_workers
    if lanes is None and workers > batch:
        yield Problem(
            "elastic.max_workers",
            "config.lanes",
            f"elastic.max_workers is {workers}, above train.global_batch {batch}: a worker would get no row",
            f"use elastic.max_workers={batch} or less, or a larger train.global_batch",
        )
    if lanes is not None and workers > lanes:
        yield Problem(
            "elastic.max_workers",
            "config.lanes",
            f"elastic.max_workers is {workers}, above data.lanes {lanes}: each worker needs a lane of its own",
            f"use elastic.max_workers={lanes} or less; a new run may have more lanes",
        )


@rule("elastic.resources_per_worker")
def _resources(config: RunConfig) -> Iterator[Problem]:
    for name, amount in config.elastic.resources_per_worker.items():
        if amount <= 0:
            yield Problem(
                "elastic.resources_per_worker",
                "config.resources",
                f"elastic.resources_per_worker.{name} is {amount:g}; allowed: a number above 0",
                "leave it out to ask for none",
            )


@rule("elastic.resources_per_worker", "train.device")
def _idle_gpu(config: RunConfig) -> Iterator[Problem]:
    if config.train.device == "cpu" and config.elastic.resources_per_worker.get("GPU", 0) > 0:
        message = "elastic.resources_per_worker.GPU has no effect with train.device cpu: it would be held and left idle"
        hint = "leave it out, or use train.device=auto"
        yield Problem("elastic.resources_per_worker", "config.no-effect", message, hint)


@rule("optim.kind", "optim.allow_unverified", "train.reduction")
def _optimizer(config: RunConfig) -> Iterator[Problem]:
    optim = config.optim
    if config.train.reduction == "exact" and optim.kind not in VERIFIED_OPTIMIZERS and not optim.allow_unverified:
        yield Problem(
            "optim.kind",
            "optim.unverified",
            f"optimizer {optim.kind!r} is not known to give the same update at every worker count; under"
            f" train.reduction=exact the verified ones are {', '.join(VERIFIED_OPTIMIZERS)}",
            "use one of them, or set optim.allow_unverified=true and give up bit-identical resumes",
        )


@rule("schedule.kind", "schedule.unit", "schedule.total")
def _tokens(config: RunConfig) -> Iterator[Problem]:
    schedule = config.schedule
    if schedule.unit == "tokens" and schedule.total is None and schedule.kind != "constant":
        message = "schedule.unit is tokens, but how many tokens a run has is known only from schedule.total"
        yield Problem("schedule.unit", "config.schedule", message, "set schedule.total")


@rule("schedule.kind", "schedule.unit", "schedule.warmup")
def _unit(config: RunConfig) -> Iterator[Problem]:
    schedule = config.schedule
    if schedule.kind == "constant" and not schedule.warmup and schedule.unit != "steps":
        message = "schedule.unit has no effect with schedule.kind constant and no schedule.warmup"
        yield Problem(
            "schedule.unit", "config.no-effect", message, "leave it at its default 'steps', or set schedule.warmup"
        )


@rule("schedule.unit", "schedule.total", "schedule.warmup", "train.steps", "train.global_batch")
def _warmup(config: RunConfig) -> Iterator[Problem]:
    schedule, train = config.schedule, config.train
    total = schedule.total
    if total is None and train.steps is not None:
        total = {"steps": train.steps, "samples": train.steps * train.global_batch}.get(schedule.unit)
    if total is not None and schedule.warmup > total:
        message = f"schedule.warmup is {schedule.warmup}, above the schedule's whole length of {total} {schedule.unit}"
        yield Problem("schedule.warmup", "config.schedule", message, "shorten it")


RULES: tuple[Callable[[RunConfig], Iterator[Problem]], ...] = (
    _batch, _workers, _resources, _idle_gpu, _optimizer, _tokens, _unit, _warmup,
)  # fmt: skip
