"""``pliant report``: one offline HTML file that shows a run, from its record alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pliant.cli.common import JsonOption, OverridesArgument, RunArgument, emit, open_run, say


def report(
    run: RunArgument,
    overrides: OverridesArgument = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Default: report.html in the run, here for one that is elsewhere."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's report: curves, time, events, settings, provenance. Works while it runs and when it is over."""
    from pliant.units import format_bytes

    written = open_run(run, overrides).report(out)
    if not as_json:
        say(f"{written['run']}: {written['state']}, step {written['last_step']:,}, {format_bytes(written['bytes'])}")
    emit(written, as_json=as_json, text=str(written["file"]))
