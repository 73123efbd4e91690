"""From PIPELINE and overrides to a complete, consistent run configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pliant.config.loader import load_settings, read_text
from pliant.config.overrides import Overrides
from pliant.config.problems import raise_all
from pliant.errors import ConfigError
from pliant.registry import PipelineRef, find_pipeline
from pliant.settings import RunConfig, run_config_for


class LoadedConfig(NamedTuple):
    """A run configuration with derived values filled in, and by dotted key where each value came from."""

    config: RunConfig
    origins: dict[str, str]


@dataclass(frozen=True)
class Problem:
    """Settings that do not fit together: the key to look at first, what is wrong, what to do."""

    key: str
    code: str
    message: str
    hint: str = ""


def load_config(pipeline: str | PipelineRef, overrides: Overrides = ()) -> LoadedConfig:
    """Loads a pipeline's YAML file, lays overrides over it, validates, derives what is left open.

    Args:
        pipeline: a name, a path, ``module:attribute``, or one that was found already.
        overrides: ``["optim.lr=3e-4"]`` or ``{"optim.lr": 3e-4}``.

    Raises:
        ConfigError: unknown pipeline, or all problems of its settings at once.
        UserCodeError: its settings file cannot be imported.
    """
    ref = find_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    source = _short(ref.config_file)
    if not ref.config_file.exists():
        return load_config_text(ref, "", overrides, source=f"{source} (no such file)")
    return load_config_text(ref, read_text(ref.config_file), overrides, source=source)


def load_config_text(ref: PipelineRef, text: str, overrides: Overrides = (), *, source: str) -> LoadedConfig:
    """The same from a YAML text, e.g. the one that a run has recorded; ``source`` is what errors call it."""
    loaded = load_settings(run_config_for(ref.model_settings()), text=text, source=source, overrides=overrides)
    config, origins = loaded.settings, dict(loaded.origins)
    problems = check_config(config)
    if config.data.lanes is None and not problems:
        config = with_lanes(config)
        origins["data.lanes"] = "smallest divisor of train.global_batch that is at least elastic.max_workers"
    raise_all([ConfigError(f"config.{p.code}", p.message, hint=p.hint, location=loaded.where(p.key)) for p in problems])
    return LoadedConfig(config, origins)


def with_lanes(config: RunConfig) -> RunConfig:
    """The configuration with its number of lanes settled; it is frozen from then on.

    Raises:
        ConfigError: no number of lanes serves ``elastic.max_workers`` workers.
    """
    from pliant.data.plan import default_lanes

    if config.data.lanes is not None:
        return config
    lanes = default_lanes(config.train.global_batch, config.elastic.max_workers)
    return config.model_copy(update={"data": config.data.model_copy(update={"lanes": lanes})})


def check_config(config: RunConfig) -> list[Problem]:
    """Rules that hold between sections. Pure.

    Returns:
        Everything that does not fit together; empty when all does.
    """
    return [*_batch(config), *_workers(config), *_optim(config), *_schedule(config), *_interval(config)]


def _batch(config: RunConfig) -> Iterator[Problem]:
    batch, lanes = config.train.global_batch, config.data.lanes
    if lanes is not None and batch % lanes:
        below, above = batch // lanes * lanes, (batch // lanes + 1) * lanes
        yield Problem(
            "train.global_batch",
            "global-batch",
            f"train.global_batch is {batch}, not a multiple of data.lanes {lanes}",
            f"the nearest that fit: {f'{below} or ' if below else ''}{above}",
        )


def _workers(config: RunConfig) -> Iterator[Problem]:
    batch, lanes, workers = config.train.global_batch, config.data.lanes, config.elastic.max_workers
    if lanes is None and workers > batch:
        yield Problem(
            "elastic.max_workers",
            "lanes",
            f"elastic.max_workers is {workers}, above train.global_batch {batch}: a worker would get no row",
            f"use elastic.max_workers={batch} or less, or a larger train.global_batch",
        )
    if lanes is not None and workers > lanes:
        yield Problem(
            "elastic.max_workers",
            "lanes",
            f"elastic.max_workers is {workers}, above data.lanes {lanes}: each worker needs a lane of its own",
            f"use elastic.max_workers={lanes} or less; a new run may have more lanes",
        )
    for name, amount in config.elastic.resources_per_worker.items():
        if amount <= 0:
            yield Problem(
                "elastic.resources_per_worker",
                "resources",
                f"elastic.resources_per_worker.{name} is {amount:g}; allowed: a number above 0",
                "leave it out to ask for none",
            )


def _optim(config: RunConfig) -> Iterator[Problem]:
    optim = config.optim
    if optim.kind == "adamw":
        for name in ("momentum", "nesterov"):
            if getattr(optim, name):
                message = f"optim.{name} has no effect with optim.kind adamw"
                yield Problem(f"optim.{name}", "no-effect", message, "leave it out, or use optim.kind=sgd")
    elif optim.nesterov and not optim.momentum:
        message = "optim.nesterov needs momentum, and optim.momentum is 0"
        yield Problem("optim.nesterov", "nesterov", message, "set optim.momentum, or leave nesterov out")


def _schedule(config: RunConfig) -> Iterator[Problem]:
    schedule, train = config.schedule, config.train
    total = schedule.total
    if total is None and train.steps is not None:
        total = {"steps": train.steps, "samples": train.steps * train.global_batch}.get(schedule.unit)
    if schedule.unit == "tokens" and schedule.total is None and schedule.kind != "constant":
        message = "schedule.unit is tokens, but how many tokens a run has is known only from schedule.total"
        yield Problem("schedule.unit", "schedule", message, "set schedule.total")
    if total is not None and schedule.warmup > total:
        message = f"schedule.warmup is {schedule.warmup}, above the schedule's whole length of {total} {schedule.unit}"
        yield Problem("schedule.warmup", "schedule", message, "shorten it")


def _interval(config: RunConfig) -> Iterator[Problem]:
    low, high = config.checkpoint.min_interval, config.checkpoint.max_interval
    if low > high:
        message = f"checkpoint.min_interval is {low:g} s, above checkpoint.max_interval {high:g} s"
        yield Problem("checkpoint.min_interval", "interval", message, "lower the one or raise the other")


def _short(file: Path) -> str:
    """A file as messages call it: relative to the working directory where it lies below."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)
