"""``pliant report``: one offline HTML file that shows a run or a sweep, from its record alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pliant.cli.common import JsonOption, OverridesArgument, RunOrSweepArgument, emit, open_any, say


def report(
    run: RunOrSweepArgument,
    overrides: OverridesArgument = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Default: report.html in the run, here for one that is elsewhere."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a run (curves, time, events, settings, provenance) or of a sweep. Works while it runs too."""
    from pliant.units import format_bytes

    written = open_any(run, overrides).report(out)
    if not as_json:
        done = f"step {written['last_step']:,}" if "run" in written else f"{written['trials']:,} trials"
        name = written.get("run") or written["sweep"]
        say(f"{name}: {written['state']}, {done}, {format_bytes(written['bytes'])}")
    emit(written, as_json=as_json, text=str(written["file"]))
