"""The start screen of a run: its plan, the settings that were given and where, and the commands that go with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.config.dump import value_text
from pliant.config.loader import DEFAULT
from pliant.track.settings import masked

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pliant.train.launch import Launch

_LONGEST_VALUE = 32
"""Characters; of a longer one the end is shown, which tells paths apart. `pliant config show` has it whole."""


def start_lines(launch: Launch) -> list[str]:
    """All of it, for people."""
    lines = [f"run {launch.name} at {launch.record.store.uri}", *launch.plan.lines(launch.config)]
    lines += ["settings that were given or derived:", *chosen_settings(launch.config, launch.origins)]
    if launch.changes:
        lines += [f"changed: {change}; the curve changes with it" for change in launch.changes.curve]
        lines += [f"changed: {change}" for change in launch.changes.free]
        lines += [f"changed code, accepted: {file}" for file in launch.code_changes]
    name = run_reference(launch.name, launch.record.store.uri)
    return [*lines, f"watch it: pliant status {name} --watch", f"stop it after a checkpoint: pliant stop {name}"]


def chosen_settings(config: BaseModel, origins: Mapping[str, str]) -> Iterator[str]:
    """``  key  value  origin`` of each setting that someone or something chose, in columns."""
    chosen = {key: origin for key, origin in origins.items() if origin != DEFAULT}
    rows = [(key, _value(config, key), _origin(origin)) for key, origin in chosen.items()]
    widths = [max((len(row[i]) for row in rows), default=0) for i in (0, 1)]
    for key, value, origin in rows:
        yield f"  {key:<{widths[0]}}  {value:<{widths[1]}}  {origin}".rstrip()


def run_reference(name: str, uri: str) -> str:
    """The run's name where a plain command in this folder finds it, else its full place."""
    return name if uri == str(Path("runs").absolute() / name) else uri


def _origin(origin: str) -> str:
    """In short: the value stands beside it, and `pliant config show` says what something was derived from."""
    kind = origin.partition(" ")[0].rstrip(":")
    return kind if kind in ("override", "derived") else masked(origin)


def _value(config: BaseModel, key: str) -> str:
    found: object = config
    for part in key.split("."):
        fields = type(found).model_fields  # type: ignore[attr-defined]
        name = next((n for n, field in fields.items() if (field.alias or n) == part), part)
        found = getattr(found, name)
    text = masked(value_text(found))
    return text if len(text) <= _LONGEST_VALUE else f"…{text[1 - _LONGEST_VALUE :]}"
