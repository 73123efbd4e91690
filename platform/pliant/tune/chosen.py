"""The settings of a trial that somebody chose, from its run's record: what it takes to train the same again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pliant.config.dump import value_text
from pliant.config.loader import DEFAULT
from pliant.config.yamlfile import parse_yaml
from pliant.errors import ConfigError, UsageError
from pliant.registry import DEFAULT_ATTRIBUTE, find_pipeline
from pliant.storage.layout import attempt_key, damaged, decode
from pliant.storage.record import RunRecord
from pliant.storage.store import Store
from pliant.train.recorded import CONFIG_OBJECT, ORIGINS_OBJECT

_OF_THE_SWEEP = ("run.", "tracking.", "cluster.")
"""Sections of a trial's settings that say where the sweep was kept and run."""


def chosen_settings(sweep: Store, run: str) -> dict[str, Any] | None:
    """By dotted key, what is neither a default nor what the pipeline's own file says. What was derived is among it: a
    run alone would come to something else, to other lanes with another batch, to a schedule that counts steps.

    Args:
        run: name below the sweep's ``trials/``.

    Returns:
        None where the run has not started, or is gone.

    Raises:
        DamageError: its record cannot be read.
    """
    try:
        record = RunRecord.open(sweep.child(f"trials/{run}"))
    except UsageError:
        return None
    number = next((a.number for a in reversed(record.attempts()) if CONFIG_OBJECT in a.objects), None)
    if number is None:
        return None
    keys = [attempt_key(number, name) for name in (CONFIG_OBJECT, ORIGINS_OBJECT)]
    location = f"{record.store.uri}/{keys[0]}"
    try:
        values = parse_yaml(record.store.get(keys[0]).decode(), location).value
    except (UnicodeDecodeError, ConfigError) as error:
        raise damaged(location, "it does not hold the run's settings") from error
    origins = decode(record.store.get(keys[1]), f"{record.store.uri}/{keys[1]}")
    own = f"{Path(str(record.identity['pipeline'])).stem}.yaml:"
    told = [key for key in origins if not key.startswith(_OF_THE_SWEEP)]
    chosen = [key for key in told if _is_chosen(origins[key], own)]
    return {key: _value(values, key) for key in chosen}


def yaml_of(settings: Mapping[str, Any]) -> str:
    """Settings by dotted key as a YAML file has them, section by section."""
    sections: dict[str, list[str]] = {}
    for key, value in settings.items():
        section, dot, name = key.partition(".")
        sections.setdefault(section if dot else "", []).append(f"{name if dot else key}: {value_text(value)}")
    lines = sections.pop("", [])
    for section, below in sections.items():
        lines += [f"{section}:", *(f"  {line}" for line in below)]
    return "\n".join(lines)


def train_command(identity: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The command that trains a record's pipeline with settings, to be pasted into a shell."""
    words = [f"{key}={value_text(value)}" for key, value in settings.items()]
    return " ".join(map(shlex.quote, ["pliant", "train", pipeline_reference(identity), *words]))


def pipeline_reference(identity: Mapping[str, Any]) -> str:
    """How a user names the pipeline of a record: by name where that finds it, else by its file or module."""
    attribute = identity.get("attribute", DEFAULT_ATTRIBUTE)
    if attribute != DEFAULT_ATTRIBUTE:
        return f"{identity['module']}:{attribute}"
    file = str(identity["pipeline"])
    try:
        return Path(file).stem if find_pipeline(Path(file).stem).file == Path(file) else file
    except ConfigError:
        return file


def _is_chosen(origin: str, own: str) -> bool:
    kind = origin.partition(" ")[0].rstrip(":")
    return kind != DEFAULT and not Path(kind).name.startswith(own)


def _value(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values
