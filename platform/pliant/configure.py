"""From PIPELINE and overrides to a complete, consistent run configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pliant.config.loader import Rule, load_settings, read_text
from pliant.config.overrides import Override, Overrides
from pliant.registry import PipelineRef, find_pipeline
from pliant.rules import RULES
from pliant.settings import RunConfig, run_config_for
from pliant.track.settings import masked, settle_uri
from pliant.train.phase_rules import check_phases


class LoadedConfig(NamedTuple):
    """A run configuration with its lanes settled, and by dotted key where each value came from: ``default``,
    ``file:line:column``, ``override key=value``, or ``derived: …``."""

    config: RunConfig
    origins: dict[str, str]


def load_config(
    pipeline: str | PipelineRef, overrides: Overrides = (), *, layer: Sequence[Override] = ()
) -> LoadedConfig:
    """Loads a pipeline's YAML file, lays overrides over it, validates, derives what is left open.

    Args:
        pipeline: a name, a path, ``module:attribute``, or one that was found already.
        overrides: ``["optim.lr=3e-4"]`` or ``{"optim.lr": 3e-4}``.
        layer: what another file lays over the pipeline's own, below the overrides.

    Raises:
        ConfigError: unknown pipeline, or all problems of its settings at once.
        UserCodeError: its settings file cannot be imported.
    """
    ref = find_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    source = short_path(ref.config_file)
    if not ref.config_file.exists():
        return load_config_text(ref, "", overrides, source=f"{source} (no such file)", layer=layer)
    return load_config_text(ref, read_text(ref.config_file, source), overrides, source=source, layer=layer)


def load_config_text(
    ref: PipelineRef | None,
    text: str,
    overrides: Overrides = (),
    *,
    source: str,
    layer: Sequence[Override] = (),
    recorded: Mapping[str, str] | None = None,
    rules: Sequence[Rule] = (),
) -> LoadedConfig:
    """The same from a YAML text, e.g. the one that a run has recorded.

    Args:
        ref: whose model section it has; None for none of its own.
        source: what errors call the text.
        layer: as in ``load_config``.
        recorded: the origins that were recorded with the text; they stand for what no override changes.
        rules: asked besides those of every run.
    """
    schema = RunConfig if ref is None else run_config_for(ref.model_settings())
    loaded = load_settings(schema, text=text, source=source, layer=layer, overrides=overrides, rules=(*rules, *RULES))
    config, origins = loaded.settings, dict(loaded.origins)
    for key, origin in (recorded or {}).items():
        if key in origins and not origins[key].startswith("override "):
            origins[key] = origin
    if config.data.lanes is None:
        config = with_lanes(config)
        origins["data.lanes"] = (
            f"derived: the smallest divisor of train.global_batch {config.train.global_batch}"
            f" that is at least elastic.max_workers {config.elastic.max_workers}"
        )
    check_phases(loaded, config)
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


def absolute_paths(config: RunConfig) -> RunConfig:
    """The configuration with paths that mean the same from every working directory."""

    def absolute(path: str) -> str:
        return path if "://" in path else str(Path(path).expanduser().absolute())

    data = {"path": absolute(config.data.path)}
    if config.data.validation is not None:
        data["validation"] = absolute(config.data.validation)
    run = config.run.model_copy(update={"storage": absolute(config.run.storage)})
    return config.model_copy(update={"data": config.data.model_copy(update=data), "run": run})


def derived_at_start(config: RunConfig) -> dict[str, str]:
    """What a start makes of the settings that are left open, and from what, by dotted key; for people.

    Raises:
        ConfigError: the environment names a tracking store that cannot be used.
    """
    data, train, elastic = config.data, config.train, config.elastic
    derived: dict[str, str] = {}
    if data.validation is None:
        derived["data.validation"] = f"{data.path.rstrip('/')}/validation, where there is one"
    if data.columns is None:
        derived["data.columns"] = "those that the pipeline names, else all"
    if train.steps is None:
        derived["train.steps"] = (
            f"train.epochs {train.epochs:g} of the dataset's rows, in steps of train.global_batch {train.global_batch}"
        )
    if train.threads is None:
        cpus = elastic.resources_per_worker.get("CPU", 1.0)
        derived["train.threads"] = f"{max(1, int(cpus))}, the whole CPUs of elastic.resources_per_worker"
    if train.device == "auto":
        gpu = elastic.resources_per_worker.get("GPU", 0) > 0
        derived["train.device"] = f"{'cuda, where it works' if gpu else 'cpu'}, by elastic.resources_per_worker"
    if config.schedule.total is None and config.schedule.kind != "constant":
        derived["schedule.total"] = "the run's own length"
        if train.steps is not None:
            total = train.steps * (train.global_batch if config.schedule.unit == "samples" else 1)
            derived["schedule.total"] = f"{total}, the run's own length"
    if config.eval.micro_batch is None:
        derived["eval.micro_batch"] = f"{train.micro_batch}, as train.micro_batch"
    if config.checkpoint.every_steps is None:
        derived["checkpoint.every_steps"] = "when checkpoint.overhead allows one, and by checkpoint.max_interval"
    tracking = config.tracking
    if tracking.uri is None and tracking.kind != "none":
        uri, origin = settle_uri(tracking, absolute_paths(config).run.storage, os.environ)
        derived["tracking.uri"] = f"{masked(uri)}, {origin}"
    if tracking.experiment is None and tracking.kind != "none":
        derived["tracking.experiment"] = "the pipeline's name"
    return derived


def short_path(file: Path) -> str:
    """A file as messages call it: relative to the working directory where it lies below."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)
