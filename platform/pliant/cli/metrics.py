"""``pliant metrics``: what a run measured, each step once, whatever interrupted it."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import typer

from pliant.cli.common import JsonOption, OverridesArgument, RunArgument, emit_lines, open_run, say, table, write_result

_COLUMNS = ("step", "epoch", "position", "loss", "lr", "grad_norm", "world_size", "attempt")


def metrics(
    run: RunArgument,
    overrides: OverridesArgument = None,
    audit: Annotated[bool, typer.Option("--audit", help="File and row of every sample of every step.")] = False,
    evaluations: Annotated[bool, typer.Option("--eval", help="Evaluations instead of steps.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a run's metrics, a line per step. Works without Ray, while it runs and when it is over."""
    from pliant.errors import UsageError

    if audit and evaluations:
        raise UsageError("metrics.one", "--audit and --eval exclude each other")
    found = open_run(run, overrides)
    entries = found.samples() if audit else found.evaluations() if evaluations else found.metrics()
    if as_json:
        emit_lines(entries)
        return
    first = next(entries, None)
    if first is None:
        say("nothing yet" + (": row ids are recorded with train.audit=true" if audit else ""))
        return
    columns = tuple(k for k in first if k not in ("time", "seconds")) if audit or evaluations else _COLUMNS
    rows = [[_cell(entry.get(c)) for c in columns] for entry in itertools.chain([first], entries)]
    write_result(table(columns, rows))


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else value
