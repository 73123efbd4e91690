"""From a pipeline, a space file and overrides to a sweep that can start: everything wrong with it is said at once.

pipeline: digits                 whose it is; may be left out
sweep: {scheduler: {kind: asha}} settings of the sweep
settings: {train.epochs: 9}      settings that all trials have, over the pipeline's own
space: {optim.lr: {log: [1e-4, 1e-2]}}
constraints: [train.global_batch >= 2 * train.micro_batch]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pliant.config.loader import load_settings, read_text
from pliant.config.overrides import Override, Overrides
from pliant.config.problems import ConfigErrors, raise_all
from pliant.config.schema import fields, show
from pliant.config.suggest import closest
from pliant.config.yamlfile import Path, parse_yaml
from pliant.configure import LoadedConfig, load_config, load_config_text, short_path
from pliant.errors import ConfigError
from pliant.registry import PipelineRef, find_pipeline, find_space
from pliant.settings import RunConfig, run_config_for
from pliant.tune.domainfile import Problems
from pliant.tune.settings import SpaceFile, SweepSettings
from pliant.tune.space import Space
from pliant.tune.spacecheck import check_overridden, check_phases_lengths, check_points, derive, settle_batches
from pliant.tune.spaceread import read_space
from pliant.tune.types import Mode

if TYPE_CHECKING:
    from pliant.train.protocols import Pipeline


@dataclass(frozen=True)
class LoadedSweep:
    """A sweep that can start.

    Attributes:
        ref: the pipeline.
        settings: of the sweep.
        sweep_origins: where each of them came from, by key: ``sweep.trials``.
        base: what all trials have; the lanes in it divide every batch of the space.
        origins: where each of its settings came from.
        space: what is searched.
        metric, mode: what is made better, and what better means.
        content: of the space file without its section ``sweep``, for the sweep's record.
        source: what the space file is called.
    """

    ref: PipelineRef
    settings: SweepSettings
    sweep_origins: Mapping[str, str]
    base: RunConfig
    origins: Mapping[str, str]
    space: Space
    metric: str
    mode: Mode
    content: Mapping[str, Any]
    source: str


def load_sweep(pipeline: str | PipelineRef, space: str, overrides: Overrides = ()) -> LoadedSweep:
    """Loads and checks a sweep.

    Args:
        pipeline: a name, a path, ``module:attribute``, or one that was found already.
        space: a name in ``search_spaces/``, or a path.
        overrides: ``sweep.…`` are the sweep's, all others the trials'.

    Raises:
        ConfigError: there is no such pipeline or space, or all problems of the files and overrides at once.
        UserCodeError: the pipeline cannot be imported.
    """
    ref = find_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    file = find_space(space)
    source = short_path(file)
    return load_sweep_text(ref, read_text(file, source), overrides, source=source)


def load_sweep_text(
    ref: PipelineRef, text: str, overrides: Overrides = (), *, source: str, recorded: LoadedConfig | None = None
) -> LoadedSweep:
    """The same from a space file's text.

    Args:
        source: what errors call the text.
        recorded: what the trials of a sweep that goes on have, instead of the pipeline's file.

    Raises:
        ConfigError: all problems at once.
        UserCodeError: the pipeline cannot be imported.
    """
    schema = run_config_for(ref.model_settings())
    own, others = split_overrides(overrides)
    broken: list[ConfigError] = []
    document = parse_yaml(text, source, problems=broken)
    file = _caught(lambda: load_settings(SpaceFile, text=document, source=source, overrides=own), broken)
    value = document.value if isinstance(document.value, dict) else {}
    layer = _layer(value.get("settings"), document.places)
    base = _caught(lambda: _base(ref, others, layer, recorded), broken)
    problems = Problems(source, document.places)
    config = base.config if base is not None else None
    space = read_space(value.get("space"), value.get("constraints"), schema, config, problems)
    _check_pipeline(value.get("pipeline"), ref, problems)
    if base is not None and space is not None:
        check_overridden(space, base.config, base.origins, problems)
        check_phases_lengths(base.config, base.origins, problems)
    broken += problems.found
    if file is None or base is None or space is None or broken:
        raise_all(sorted(broken, key=lambda problem: _place_in(source, problem)))
        raise ConfigError("config.invalid", "the sweep is not valid", location=source)
    content = {key: part for key, part in value.items() if key != "sweep"}
    problems = Problems(source, document.places)
    config, origins, space = settle_batches(base.config, base.origins, space, problems, lanes_open=recorded is None)
    settings, sweep_origins = derive(file.settings.sweep, file.origins, space, problems)
    metric, mode = _metric(ref.load(), settings.metric, file.origins["sweep.metric"], problems)
    if not problems.found:
        check_points(space, config, problems)
    raise_all(sorted(problems.found, key=lambda problem: _place_in(source, problem)))
    return LoadedSweep(ref, settings, sweep_origins, config, origins, space, metric, mode, content, source)


def split_overrides(overrides: Overrides) -> tuple[Overrides, Overrides]:
    """Overrides of the sweep, and those of its trials."""

    def is_sweeps(text: str) -> bool:
        first = text.partition("=")[0].partition(".")[0].strip()
        known = [*fields(RunConfig), "sweep"]
        return first not in fields(RunConfig) and "sweep" in (first, *closest(first, known, most=1))

    if isinstance(overrides, Mapping):
        own = {key: value for key, value in overrides.items() if is_sweeps(key)}
        return own, {key: value for key, value in overrides.items() if key not in own}
    return [o for o in overrides if is_sweeps(o)], [o for o in overrides if not is_sweeps(o)]


def _layer(settings: Any, places: Mapping[Path, str]) -> list[Override]:
    """What the file's ``settings`` lay over the pipeline's own."""
    if not isinstance(settings, Mapping):
        return []
    layer = []
    for key, value in settings.items():
        keys, at = tuple(key.split(".")), ("settings", key)
        inside = {(*keys, *path[2:]): place for path, place in places.items() if path[:2] == at}
        layer.append(Override(keys, value, places[at], inside))
    return layer


def _base(
    ref: PipelineRef, overrides: Overrides, layer: Sequence[Override], recorded: LoadedConfig | None
) -> LoadedConfig:
    if recorded is None:
        return load_config(ref, overrides, layer=layer)
    from pliant.config.dump import config_to_yaml

    text = config_to_yaml(recorded.config)
    return load_config_text(ref, text, overrides, source="the sweep's settings", recorded=recorded.origins)


def _caught(load: Any, broken: list[ConfigError]) -> Any:
    """What was loaded; None where it is not valid, with its problems added."""
    try:
        return load()
    except ConfigErrors as errors:
        broken += errors.problems
    except ConfigError as error:
        broken.append(error)
    return None


def _check_pipeline(named: Any, ref: PipelineRef, problems: Problems) -> None:
    if isinstance(named, str) and _short_name(named) != ref.name:
        message = f"the space is for the pipeline {named}, not for {ref.name}"
        hint = f"use --space with one for {ref.name}, or leave pipeline out of the file"
        problems.problem("space.pipeline", ("pipeline",), message, hint)


def _short_name(pipeline: str) -> str:
    """The short name of a pipeline that is written as a name or a path."""
    return re.sub(r"\.py$", "", pipeline.rpartition("/")[2])


def _metric(pipeline: type[Pipeline[Any]], wanted: str | None, origin: str, problems: Problems) -> tuple[str, Mode]:
    """What is made better, and what better means."""
    metrics: dict[str, Mode] = {"loss": "min", **pipeline.metrics}
    name = wanted if wanted is not None else pipeline.main_metric
    if name not in metrics:
        near = closest(name, metrics, most=1)
        message = f"sweep.metric is {show(name)}; the pipeline's metrics are {', '.join(metrics)}"
        problems.problem_of("space.metric", origin, message, f"did you mean {near[0]}?" if near else "")
    return name, metrics.get(name, "min")


def _place_in(source: str, problem: ConfigError) -> tuple[int, int, int]:
    """Where a problem stands: those of the file first, line by line; the others keep their order."""
    match = re.fullmatch(re.escape(source) + r":(\d+):(\d+)", problem.location)
    return (0, int(match[1]), int(match[2])) if match else (1, 0, 0)
