"""Writes a sweep's report: one HTML file that needs nothing else, from what its log says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pliant.report.html import template, write_page
from pliant.storage.standing import Standing, standing
from pliant.tune.results import SweepResults


def write_sweep_report(results: SweepResults, out: Path) -> dict[str, Any]:
    """Writes the report of a sweep as it is now; a file that is there is replaced in one go.

    Returns:
        What is in it, in short: as ``pliant report SWEEP --json`` prints it.

    Raises:
        DamageError, StorageError: a part of the record cannot be read, or the file cannot be written.
    """
    stand = standing(results.record)
    size = write_page(render(results, stand), out)
    return {
        "sweep": results.name,
        "uri": results.record.store.uri,
        "state": stand.state,
        "trials": len(results.trials),
        "file": str(out.absolute()),
        "bytes": size,
    }


def render(results: SweepResults, stand: Standing) -> str:
    """The page."""
    return template("sweep.html.j2").render(name=results.name, facts=results.facts(stand))
