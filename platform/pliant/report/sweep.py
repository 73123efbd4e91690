"""Writes a sweep's report: one HTML file that needs nothing else, from what its log says.

What is shown depends on the log and on how the driver stands alone: the same record gives the same file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant import __version__
from pliant.report.figures import HEIGHT, WIDTH
from pliant.report.html import template, write_page
from pliant.report.sweep_axes import dimensions_of
from pliant.report.sweep_figures import best_so_far, curves, look_of
from pliant.report.sweep_importance import importance
from pliant.report.sweep_lineage import lineage
from pliant.report.sweep_parallel import CLASSES, parallel
from pliant.report.sweep_rates import rates_of
from pliant.report.sweep_rungs import rungs
from pliant.storage.standing import standing
from pliant.tune.lineage import Segment, ancestry
from pliant.tune.recorded import first_search, recorded_search
from pliant.tune.results import SweepResults
from pliant.tune.searchers.evidence import LOST
from pliant.tune.types import loss_of
from pliant.tune.words import first_line, params_text
from pliant.units import format_seconds

_HOUR_S = 3600.0
_MOST_FAILURES = 50
_MOST_LOSSES = 200
_MOST_NAMED = 20
_BY_A_LOSS = ("failed", "out-of-memory")


@dataclass(frozen=True)
class Failure:
    """Trials that ended alike.

    Attributes:
        how: as in ``End``. text: of the first of them.
    """

    how: str
    text: str
    trials: list[str]


def write_sweep_report(results: SweepResults, out: Path) -> dict[str, Any]:
    """Writes the report of a sweep as it is now; a file that is there is replaced in one go.

    Returns:
        What is in it, in short: as ``pliant report SWEEP --json`` prints it.

    Raises:
        DamageError, StorageError: a part of the record cannot be read, or the file cannot be written.
    """
    facts = results.facts(standing(results.record))
    size = write_page(render(results, facts), out)
    short = ("sweep", "uri", "state", "metric", "mode", "counts", "decisions", "worker_hours", "cost")
    best = facts["best"] and {key: facts["best"][key] for key in ("trial", "value", "samples", "params")}
    return {
        **{key: facts[key] for key in short},
        "trials": len(results.trials),
        "best": best,
        "file": str(out.absolute()),
        "bytes": size,
    }


def render(results: SweepResults, facts: Mapping[str, Any]) -> str:
    """The page.

    Args:
        facts: of ``SweepResults.facts``.
    """
    record = results.record
    first, newest = first_search(record), recorded_search(record)
    points = [generation.params for trial in results.trials for generation in trial.generations]
    dimensions = dimensions_of(first.content if first else None, points)
    return template("sweep.html.j2").render(
        name=results.name,
        version=__version__,
        width=WIDTH,
        height=HEIGHT,
        facts=facts,
        taken=results.log[-1].time if results.log else None,
        metric=results.metric,
        rows=int(record.identity["rows"]),
        length=results.milestones[-1],
        tiles=list(_tiles(results, facts)),
        trouble=_trouble(results, facts),
        line=_line(results),
        curves=curves(results),
        best_so_far=best_so_far(results),
        parallel=parallel(results, dimensions),
        shades=CLASSES,
        rungs=rungs(results),
        lineage=lineage(results, dimensions, rates_of(results)),
        importance=importance(results, dimensions) if results.trials else [],
        columns=[dimension.name for dimension in dimensions],
        trials=_table(results, facts),
        told=_told(results, facts),
        failures=_failures(results),
        losses=_losses(results),
        most_losses=_MOST_LOSSES,
        most_named=_MOST_NAMED,
        settings=newest.text if newest else None,
        identity=_identity(results),
    )


def _tiles(results: SweepResults, facts: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The figures that are looked at first: name, value, what else there is to say."""
    best, hours = results.best, float(facts["worker_hours"])
    if best is not None:
        yield f"best {results.metric}", f"{best.value:.5g}", f"{best.trial}, at {best.samples:,} rows"
    planned, begun = facts["planned"], len(results.trials)
    yield "trials", f"{begun:,}", f"of {planned:,}" if planned not in (None, begun) else "all that there will be"
    for status, count in facts["counts"].items():
        yield status, f"{count:,}", f"{count / begun:.0%} of trials"
    yield "worker-hours", f"{hours:.3g}", f"{format_seconds(hours * _HOUR_S)} of one worker, lost work included"
    if facts["cost"] is not None:
        price = results.settings.budget.price_per_worker_hour
        yield "cost", f"{facts['cost']:,.2f}", f"at {price:g} for a worker-hour"
    starts = facts["attempts"]
    yield "decisions", f"{facts['decisions']:,}", f"in {starts} start{'s' * (starts != 1)}"


def _trouble(results: SweepResults, facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a reader must not miss: headline, text."""
    found = []
    if (halt := results.state.halt) is not None:
        found.append((f"The sweep stopped before it was done ({halt.what})", halt.text))
    elif facts["state"] not in ("done", "running", "not started") and facts["detail"]:
        found.append((f"The sweep {facts['state']}", facts["detail"]))
    if results.trials and results.best is None and any(trial.end for trial in results.trials):
        found.append(("No trial has a value", "See “What went wrong”."))
    return found


def _line(results: SweepResults) -> tuple[Segment, ...]:
    """The stretches that the best trial's state came through; empty where it is the work of one run."""
    if (best := results.best) is None:
        return ()
    segments = ancestry(results.state.trials, best.trial, best.generation)
    return segments if len(segments) > 1 else ()


def _table(results: SweepResults, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the table: the best trial first, those without a value last."""
    price, mode = results.settings.budget.price_per_worker_hour, results.state.mode
    rows = [
        {
            **row,
            "number": trial.number,
            "look": look_of(results, trial),
            "best_samples": trial.best.samples if trial.best else None,
            "cost": None if price is None else row["worker_hours"] * price,
            "bad": sum(point.value is None for point in trial.reports),
        }
        for trial, row in zip(results.trials, facts["trials"], strict=True)
    ]
    return sorted(rows, key=lambda row: (row["best"] is None, loss_of(row["best"], mode), row["number"]))


def _told(results: SweepResults, facts: Mapping[str, Any]) -> list[str]:
    """By number of a trial, what is read off a figure."""
    texts = []
    for row in facts["trials"]:
        best = "no value" if row["best"] is None else f"{results.metric} {row['best']:.5g}"
        head = f"{row['trial']} · {row['status']} · {best} · {row['samples']:,} rows"
        texts.append(f"{head} · {params_text(row['params'])}")
    return texts


def _failures(results: SweepResults) -> list[Failure]:
    """Trials that ended without being stopped or trained, by their errors, the most frequent first."""
    groups: dict[tuple[str, str], Failure] = {}
    for trial in results.trials:
        if trial.end is not None and trial.end.how in LOST:
            key = (
                trial.end.how,
                "" if trial.end.how == "diverged" else trial.end.signature or first_line(trial.end.text),
            )
            groups.setdefault(key, Failure(trial.end.how, trial.end.text, [])).trials.append(trial.id)
    return sorted(groups.values(), key=lambda group: -len(group.trials))[:_MOST_FAILURES]


def _losses(results: SweepResults) -> dict[str, Any]:
    """Legs that were lost on the way, after which their trials went on: how many by cause, the seconds of one worker in
    them, and each of them. The loss by which a trial ended is its failure."""
    lost = [
        (trial, setback)
        for trial in results.trials
        for setback in trial.losses[: -1 if trial.end is not None and trial.end.how in _BY_A_LOSS else None]
    ]
    rows = [
        {"trial": trial.id, "cause": s.loss.cause, "samples": s.samples, "text": first_line(s.loss.text)}
        for trial, s in lost
    ]
    seconds = sum(s.loss.worker_seconds for _, s in lost)
    return {"counts": dict(Counter(row["cause"] for row in rows).most_common()), "rows": rows, "seconds": seconds}


def _identity(results: SweepResults) -> list[tuple[str, str]]:
    identity, settings = results.record.identity, results.settings
    rows = {
        "pipeline": identity.get("pipeline"),
        "metric": f"{results.metric}, {'smaller' if results.state.mode == 'min' else 'larger'} is better",
        "scheduler": settings.scheduler.kind,
        "searcher": settings.searcher.kind,
        "a trial's length": f"{results.milestones[-1]:,} rows, of {int(identity['rows']):,} in the dataset",
        "reports at": ", ".join(f"{samples:,}" for samples in results.milestones),
        "run id": identity.get("run_id"),
        "pliant": identity.get("pliant"),
    }
    return [(name, str(value)) for name, value in rows.items() if value]
