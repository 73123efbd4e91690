"""``pliant status``: how a run stands, from its record alone: no Ray, no process of the run is needed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pliant.cli.common import JsonOption, OverridesArgument, emit, resolve_run, table

_COLUMNS = ("run", "state", "step", "loss", "checkpoint", "attempts")


def status(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run; default: all under run.storage.")] = None,
    overrides: OverridesArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Show how runs stand."""
    from pliant.api import Run, runs_in

    if run is not None and "=" in run:  # pliant status run.storage=…
        overrides = [run, *(overrides or [])]
        run = None
    target = resolve_run(run or "all", overrides)
    if run is not None:
        facts = Run.open(target.uri, target.settings.store).status()
        text = "\n".join(f"{key:<12} {_show(value)}" for key, value in facts.items() if value not in (None, [], {}))
        emit(facts, as_json=as_json, text=text)
        return
    every = [found.status() for found in runs_in(target.settings.storage, target.settings.store)]
    rows = [[_show(facts.get(column)) for column in _COLUMNS] for facts in every]
    text = table(_COLUMNS, rows) if rows else f"no runs in {target.settings.storage}"
    emit({"runs": every}, as_json=as_json, text=text)


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{k} {_show(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
