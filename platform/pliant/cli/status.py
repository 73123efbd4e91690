"""``pliant status``: how a run stands, from its record alone: no Ray, no process of the run is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pliant.cli.common import JsonOption, OverridesArgument, emit, resolve_run, say, table

if TYPE_CHECKING:
    from pliant.api import Run

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
        found = Run.open(target.uri, target.settings.store)
        facts = found.status()
        _settle([(found, facts)])
        text = "\n".join(f"{key:<12} {_show(value)}" for key, value in facts.items() if value not in (None, [], {}))
        emit(facts, as_json=as_json, text=text)
        return
    runs = [(found, found.status()) for found in runs_in(target.settings.storage, target.settings.store)]
    _settle(runs)
    every = [facts for _, facts in runs]
    rows = [[_show(facts.get(column)) for column in _COLUMNS] for facts in every]
    text = table(_COLUMNS, rows) if rows else f"no runs in {target.settings.storage}"
    emit({"runs": every}, as_json=as_json, text=text)


def _settle(runs: Sequence[tuple[Run, dict[str, Any]]]) -> None:
    """Tells trackers of drivers that were killed before they could do so."""
    for run, facts in runs:
        if facts["state"].startswith("died"):
            from pliant.track.background import settle_status

            if problem := settle_status(run.record):
                say(problem)


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{k} {_show(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
