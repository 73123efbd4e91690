"""``pliant verify``: reads every byte of a run's checkpoints and compares it with what was written."""

from __future__ import annotations

from dataclasses import asdict

import typer

from pliant.cli.common import JsonOption, OverridesArgument, RunArgument, emit, open_run


def verify(run: RunArgument, overrides: OverridesArgument = None, as_json: JsonOption = False) -> None:
    """Check all checkpoints of a run. Exit code 4 when one that counts is damaged; it changes nothing."""
    from pliant.checkpoint.verify import verify_checkpoints
    from pliant.errors import EXIT_INFRASTRUCTURE
    from pliant.units import format_bytes

    record = open_run(run, overrides).record
    verdicts = {v.checkpoint: v for v in record.view().verdicts()}
    reports = list(verify_checkpoints(record.store, verdicts))
    lines = []
    for report in reports:
        verdict = verdicts[report.ref]
        lines.append(
            f"{report.ref.name}: {report.status}, {format_bytes(report.bytes)} (by the record {verdict.state}:"
            f" {verdict.reason})"
        )
        lines += [f"  {problem}" for problem in report.problems]
    bad = [
        r for r in reports if r.status in ("damaged", "unreadable") and verdicts[r.ref].state in ("usable", "marked")
    ]
    result = {
        "run": record.store.uri,
        "checkpoints": [{**asdict(r), "ref": r.ref.name, "state": verdicts[r.ref].state} for r in reports],
    }
    emit(result, as_json=as_json, text="\n".join(lines) or "no checkpoints")
    if bad:
        raise typer.Exit(EXIT_INFRASTRUCTURE)
