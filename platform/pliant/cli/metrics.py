"""``pliant metrics``: what a run measured, each step once, whatever interrupted it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pliant.cli.common import JsonOption, OverridesArgument, RunArgument, emit_lines, resolve_run, table

if TYPE_CHECKING:
    from pliant.storage.record import RunRecord

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
    from pliant.storage.logs import read_log
    from pliant.storage.record import RunRecord
    from pliant.storage.store import Store

    if audit and evaluations:
        raise UsageError("metrics.one", "--audit and --eval exclude each other")
    target = resolve_run(run, overrides)
    record = RunRecord.open(Store(target.uri, target.settings.store))
    name = "audit" if audit else "evaluations" if evaluations else "metrics"
    entries: Iterator[dict[str, Any]] = read_log(record.store, record.view(), name)
    if audit:
        entries = _samples(record, entries)
    if as_json:
        emit_lines(entries)
        return
    first = next(entries, None)
    if first is None:
        typer.echo(f"no {name} yet" + (": run it with train.audit=true" if audit else ""), err=True)
        return
    columns = _COLUMNS if name == "metrics" else tuple(k for k in first if k not in ("time", "seconds"))
    rows = [[_cell(entry.get(c)) for c in columns] for entry in itertools.chain([first], entries)]
    typer.echo(table(columns, rows))


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else value


def _samples(record: RunRecord, entries: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One entry per sample: step, attempt, lane, file, row in the file."""
    import numpy as np

    from pliant.data.manifest import Manifest
    from pliant.train.plan import DATA_MANIFESTS

    manifest = Manifest.from_bytes(record.store.get(DATA_MANIFESTS["train"]))
    before = np.cumsum(manifest.group_rows) - manifest.group_rows
    first_of_file = {int(f): int(before[i]) for i, f in reversed(list(enumerate(manifest.group_file)))}
    for entry in entries:
        for lane, group, row in entry["rows"]:
            file = int(manifest.group_file[group])
            yield {
                "step": entry["step"],
                "attempt": entry["attempt"],
                "lane": lane,
                "file": manifest.files[file].path,
                "row": int(before[group]) - first_of_file[file] + row,
            }
