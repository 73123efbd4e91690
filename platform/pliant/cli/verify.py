"""``pliant verify``: reads every byte of a run's checkpoints and compares it with what was written; of a sweep those of
its trials, and whether its decisions follow from its log."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from pliant.cli.common import JsonOption, OverridesArgument, RunOrSweepArgument, emit, open_any

if TYPE_CHECKING:
    from pliant.storage.record import RunRecord
    from pliant.sweeps import Sweep


def verify(run: RunOrSweepArgument, overrides: OverridesArgument = None, as_json: JsonOption = False) -> None:
    """Check all checkpoints of a run, or a sweep's decisions and its trials' checkpoints. Exit code 4 when one that
    counts is damaged; it changes nothing."""
    from pliant.errors import EXIT_INFRASTRUCTURE
    from pliant.sweeps import Sweep

    found = open_any(run, overrides)
    if isinstance(found, Sweep):
        bad = _verify_sweep(found, as_json=as_json)
    else:
        checked = _checked(found.record)
        emit(checked.result, as_json=as_json, text="\n".join(checked.lines) or "no checkpoints")
        bad = bool(checked.bad)
    if bad:
        raise typer.Exit(EXIT_INFRASTRUCTURE)


class _Checked(NamedTuple):
    """What was found in a run's checkpoints: as JSON, for people, and how many that count are damaged."""

    result: dict[str, Any]
    lines: list[str]
    bad: int


def _checked(record: RunRecord) -> _Checked:
    from pliant.checkpoint.verify import verify_checkpoints
    from pliant.units import format_bytes

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
    checkpoints = [{**asdict(r), "ref": r.ref.name, "state": verdicts[r.ref].state} for r in reports]
    return _Checked({"run": record.store.uri, "checkpoints": checkpoints}, lines, len(bad))


def _verify_sweep(sweep: Sweep, *, as_json: bool) -> bool:
    """Writes what was found; returns whether something is wrong."""
    from pliant.errors import PliantError
    from pliant.tune.verification import verify_decisions

    record = sweep.record
    entries = sum(1 for _ in sweep.decisions())
    try:
        difference = verify_decisions(record)
        status, detail = ("follow", "") if difference is None else ("differ", str(difference))
    except PliantError as error:  # the log itself is whole; what it takes to ask again is not there
        status, detail = "unknown", str(error)
    runs = [_checked(run.record) for run in sweep.runs()]
    decisions = {"entries": entries, "status": status, "detail": detail}
    said = {
        "follow": "each decision follows from those before it",
        "differ": f"{detail}",
        "unknown": f"whole, but whether the decisions follow cannot be seen: {detail}",
    }
    lines = [f"decision log: {entries:,} entries: {said[status]}"]
    for checked in runs:
        name = checked.result["run"].rpartition("/")[2]
        if checked.bad or len(runs) <= 1:
            lines += [f"{name}/{line}" if not line.startswith(" ") else line for line in checked.lines]
    checkpoints = sum(len(checked.result["checkpoints"]) for checked in runs)
    bad = sum(checked.bad for checked in runs)
    damaged = f"{bad or 'none'} of those that count damaged"
    lines.append(f"{len(runs):,} runs of trials, {checkpoints:,} checkpoints, {damaged}")
    result = {"sweep": record.store.uri, "decisions": decisions, "runs": [checked.result for checked in runs]}
    emit(result, as_json=as_json, text="\n".join(lines))
    return bad > 0 or status == "differ"
