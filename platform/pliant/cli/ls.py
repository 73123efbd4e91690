"""``pliant ls``: the pipelines, search spaces, runs and sweeps there are."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.cli.common import JsonOption, OverridesArgument, emit, resolve_run, table
from pliant.cli.spaces import outline

if TYPE_CHECKING:
    from pliant.api import Run
    from pliant.sweeps import Sweep


def ls(overrides: OverridesArgument = None, as_json: JsonOption = False) -> None:
    """List pipelines, search spaces, and the runs and sweeps under run.storage, newest last."""
    from pliant.configure import short_path
    from pliant.registry import find_pipeline, known_pipelines, known_spaces
    from pliant.sweeps import Sweep, all_in

    target = resolve_run("all", overrides)
    pipelines = [{"name": name, "file": short_path(find_pipeline(name).file)} for name in known_pipelines()]
    spaces = [{"name": file.stem, **outline(file), "file": short_path(file)} for file in known_spaces()]
    with ThreadPoolExecutor(8) as pool:  # on object storage it is waiting, not work
        found = all_in(target.settings.storage, target.settings.store)
        every = sorted(pool.map(lambda one: _brief(one, "sweep" if isinstance(one, Sweep) else "run"), found), key=_age)
    runs, sweeps = ([one for one in every if kind in one] for kind in ("run", "sweep"))
    storage = target.settings.storage
    result = {"pipelines": pipelines, "spaces": spaces, "storage": storage, "runs": runs, "sweeps": sweeps}
    parts = [
        _part("pipelines", "name file", pipelines, "none: pliant init DIR copies one that runs"),
        _part("search spaces", "name pipeline scheduler file", spaces, "none in search_spaces/"),
        _part(f"runs in {storage}", "run state pipeline started", [_shown(run) for run in runs], "none"),
        _part(f"sweeps in {storage}", "sweep state pipeline started", [_shown(one) for one in sweeps], "none"),
    ]
    emit(result, as_json=as_json, text="\n\n".join(parts))


def _brief(one: Run | Sweep, kind: str) -> dict[str, Any]:
    """A run or sweep in brief, its name under its kind; of one whose record cannot be read, that."""
    from pliant.errors import DamageError

    uri = one.store.uri
    name = uri.rpartition("/")[2]
    try:
        identity, state = one.record.identity, one.state()
    except DamageError:
        return {kind: name, "state": "damaged", "pipeline": None, "created": None, "uri": uri}
    pipeline = Path(str(identity["pipeline"])).stem
    return {kind: name, "state": state, "pipeline": pipeline, "created": identity["created"], "uri": uri}


def _age(one: dict[str, Any]) -> tuple[float, str]:
    return (one["created"] or 0.0, one["uri"])


def _shown(run: dict[str, Any]) -> dict[str, Any]:
    created = run["created"]
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(created)) if created else ""
    return {**run, "pipeline": run["pipeline"] or "", "started": started}


def _part(title: str, columns: str, entries: list[dict[str, Any]], empty: str) -> str:
    if not entries:
        return f"{title}: {empty}"
    header = columns.split()
    lines = table(header, [[entry[column] for column in header] for entry in entries]).splitlines()[1:]
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)])
