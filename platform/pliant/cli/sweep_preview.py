"""What ``pliant sweep --dry-run`` shows: trials per rung, rows, worker-hours and cost, before anything starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pliant.cli.common import emit, open_any, table
from pliant.errors import UsageError

if TYPE_CHECKING:
    from pliant.api import Run
    from pliant.sweeps import Sweep
    from pliant.tune.build import Search
    from pliant.tune.preview import Preview, Stage


def show_preview(pipeline: str, space: str, overrides: Sequence[str], speed: str | None, *, as_json: bool) -> None:
    """Settles a sweep as if it began, and writes what it will come to.

    Args:
        speed: rows per second of a trial as a number, or the name of an earlier run or sweep; None: not known.

    Raises:
        PliantError: it cannot begin, or ``speed`` is neither.
    """
    from pliant.tune.launch import plan_sweep, search_of
    from pliant.tune.preview import preview

    loaded, datasets = plan_sweep(pipeline, space, overrides)
    search = search_of(loaded, loaded.base, datasets, ())
    per_row, source = (None, None) if speed is None else _seconds_per_row(speed, search, overrides)
    found = preview(search, worker_seconds_per_row=per_row)
    facts = _facts(loaded.ref.name, search, found, per_row)
    emit(facts, as_json=as_json, text="\n".join(_lines(loaded.ref.name, loaded.source, search, found, source)))


def _facts(pipeline: str, search: Search, found: Preview, per_row: float | None) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "scheduler": search.settings.scheduler.kind,
        "searcher": search.settings.searcher.kind,
        "metric": search.metric,
        "mode": search.mode,
        **asdict(found),
        "workers_per_trial": search.workers.usual,
        "worker_seconds_per_row": per_row,
    }


def _lines(pipeline: str, space: str, search: Search, found: Preview, source: str | None) -> list[str]:
    settings = search.settings
    about = "" if found.exact else "about "
    share = found.rows / found.to_the_end
    lines = [
        f"a sweep of {pipeline} over {space}: {settings.searcher.kind}, {settings.scheduler.kind}, "
        f"{search.metric} ({search.mode})",
        f"{found.trials:,} trials, the longest of {found.length:,} rows ({found.length / search.rows:.3g} epochs), "
        f"{_workers(search.workers.usual)} each",
        "",
        *_stages(found.stages, search.rows),
        "",
        f"{'rows in all':<13} {about}{found.rows:,}: {share:.0%} of all trials to their end",
    ]
    if found.worker_hours is None:
        lines.append(f"{'worker-hours':<13} not known: --rows-per-second N, or an earlier RUN or SWEEP to take it from")
    else:
        lines.append(f"{'worker-hours':<13} {about}{found.worker_hours:.3g}, {source}")
        limit = settings.budget.worker_hours
        if limit is not None and found.worker_hours > limit:
            lines.append(f"{'':<13} sweep.budget.worker_hours={limit:g} ends it before, to be resumed with more")
        price = settings.budget.price_per_worker_hour
        cost = "no price: sweep.budget.price_per_worker_hour" if price is None else f"{about}{found.cost:,.2f}"
        lines.append(f"{'cost':<13} {cost}" + (f", at {price:g} a worker-hour" if price is not None else ""))
    if not found.exact:
        lines.append(f"{'':<13} how many go on depends on the order in which they report: means over random ones")
    return lines


def _stages(stages: Sequence[Stage], rows_of_an_epoch: int) -> list[str]:
    """A line for each stage; those of the same trials and rows in one."""
    rows: list[list[Any]] = []
    first: Stage | None = None
    for stage, after in zip(stages, [*stages[1:], None], strict=True):
        first = first or stage
        if after is not None and (after.trials, after.rows) == (stage.trials, stage.rows) and after.at != "end":
            continue
        at = stage.at if first is stage else f"{first.at.partition(' of ')[0]} to {stage.at.partition(' ')[2]}"
        number = stages.index(stage) - stages.index(first) + 1
        rows.append([at, f"{stage.samples / rows_of_an_epoch:.3g}", stage.samples, stage.trials, number * stage.rows])
        first = None
    return table(["to", "epochs", "rows a trial", "trials", "rows"], rows).splitlines()


def _seconds_per_row(speed: str, search: Search, overrides: Sequence[str]) -> tuple[float, str]:
    """Worker-seconds per row, and where they are from."""
    workers = search.workers.usual
    try:
        rate = float(speed)
    except ValueError:
        from pliant.api import Run

        found = open_any(speed, [text for text in overrides if text.startswith("run.")])
        per_row = _of_run(found) if isinstance(found, Run) else _of_sweep(found)
        if per_row is None:
            message, hint = f"{speed} has trained nothing that could be measured", "name another, or give a number"
            raise UsageError("sweep.speed", message, hint=hint, location=found.store.uri) from None
        what = "its steps alone, no evaluations and starts" if isinstance(found, Run) else "its trials as they were"
        return per_row, f"as {speed} took: {what}"
    if not (math.isfinite(rate) and rate > 0):
        raise UsageError("sweep.speed", f"--rows-per-second is {speed}; allowed: a number above 0, a run, or a sweep")
    return workers / rate, f"at {rate:g} rows/s a trial"


def _of_run(run: Run) -> float | None:
    """Seconds of a run's steps times its workers, by its rows; None with less than two steps."""
    seconds, rows, before = 0.0, 0, None
    for entry in run.metrics():
        if before is not None:
            seconds += (entry["data_s"] + entry["step_s"]) * entry["world_size"]
            rows += entry["samples"] - before
        before = entry["samples"]
    return seconds / rows if rows and seconds else None


def _of_sweep(sweep: Sweep) -> float | None:
    """Worker-seconds of a sweep by the rows of its trials; None before the first report."""
    found = sweep.results()
    rows = sum(trained for trial in found.trials for trained in trial_rows(trial))
    return found.state.worker_seconds / rows if rows and found.state.worker_seconds else None


def trial_rows(trial: Any) -> list[int]:
    """Rows between the reports of a trial, each generation from where it began."""
    rows, seen = [], {number: one.samples for number, one in enumerate(trial.generations)}
    for report in trial.reports:
        rows.append(report.samples - seen[report.generation])
        seen[report.generation] = report.samples
    return rows


def _workers(count: int) -> str:
    return f"{count} worker{'s' * (count != 1)}"
