"""``pliant metrics``: what a run measured, each step once, whatever interrupted it; of a sweep its decision log."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pliant.cli.common import (
    JsonOption,
    OverridesArgument,
    RunOrSweepArgument,
    emit,
    emit_lines,
    open_any,
    open_run,
    say,
    table,
    write_result,
)
from pliant.errors import EXIT_USER

if TYPE_CHECKING:
    from pliant.api import Run
    from pliant.sweeps import Sweep

_COLUMNS = ("step", "epoch", "position", "loss", "lr", "grad_norm", "world_size", "attempt")


def metrics(
    run: RunOrSweepArgument,
    overrides: OverridesArgument = None,
    audit: Annotated[bool, typer.Option("--audit", help="File and row of every sample of every step.")] = False,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="RUN", help="Compare with another run, bit by bit."),
    ] = None,
    evaluations: Annotated[bool, typer.Option("--eval", help="Evaluations instead of steps.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a run's metrics, a line per step, or a sweep's decision log. Works without Ray, while it runs and after."""
    from pliant.errors import UsageError
    from pliant.sweeps import Sweep

    if sum((audit, evaluations, against is not None)) > 1:
        raise UsageError("metrics.one", "--audit, --eval and --against exclude each other")
    found = open_any(run, overrides)
    if isinstance(found, Sweep):
        if audit or evaluations or against is not None:
            hint = f"its trials are runs: {run}/trials/t0000"
            raise UsageError("metrics.one", "--audit, --eval and --against are of runs, not of sweeps", hint=hint)
        _decisions(found, as_json=as_json)
        return
    if against is not None:
        _compare(found, open_run(against, overrides), as_json=as_json)
        return
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


def _decisions(sweep: Sweep, *, as_json: bool) -> None:
    """A sweep's decision log, an entry a line."""
    from pliant.tune.words import entry_line

    entries = sweep.decisions()
    if as_json:
        emit_lines(entries)
        return
    number = 0
    for number, entry in enumerate(entries, 1):
        write_result(f"{number:>6}  {entry_line(entry)}")
    if not number:
        say("nothing yet")


def _compare(one: Run, other: Run, *, as_json: bool) -> None:
    """Says where two runs' curves part."""
    from pliant.observe.comparison import compare

    found = compare(one.metrics(), other.metrics())
    lines = [f"{found.same:,} of {found.steps:,} steps that both have are the same, bit for bit"]
    if found.digests:
        lines.append(f"the parameters' digests at {found.digests:,} of them are compared too")
    else:
        lines.append("parameters are not compared: both runs need train.audit=true for that")
    if found.first_difference is not None:
        lines.append(f"the first difference is at step {found.first_difference}:")
        lines += [f"  {name}: {ours} against {theirs}" for name, (ours, theirs) in found.differences.items()]
    for name, alone in ((one.name, found.only_one), (other.name, found.only_other)):
        if alone:
            lines.append(f"{alone:,} steps are in {name} alone")
    emit({"run": one.store.uri, "against": other.store.uri, **asdict(found)}, as_json=as_json, text="\n".join(lines))
    if found.same < found.steps or not found.steps:
        raise typer.Exit(EXIT_USER)


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else value
