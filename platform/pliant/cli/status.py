"""``pliant status``: how runs and sweeps stand, from their records alone: no Ray, no process of them is needed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pliant.cli.common import (
    JsonOption,
    OverridesArgument,
    emit,
    emit_lines,
    open_any,
    resolve_run,
    results,
    say,
    table,
    write_result,
)
from pliant.cli.complete import complete_run
from pliant.errors import UsageError

if TYPE_CHECKING:
    from pliant.api import Run
    from pliant.cli.common import RunTarget
    from pliant.sweeps import Sweep

_COLUMNS = ("run", "state", "step", "loss", "checkpoint", "attempts")
_WORDS = {"loss": "train loss", "evaluation": "validation"}
"""Of figures that would be taken for each other: that of the last batch trained, and those of the last evaluation."""
_CHANGES = ("state", "step", "checkpoint", "attempts", "decisions", "counts")
_OPEN = ("running", "waiting for machines", "unknown")
_MOST_LINES = 10
"""Starts of workers that are shown to people; the newest are."""
Facts = dict[str, Any]


def status(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN_OR_SWEEP]",
            help="A run, a sweep or a trial (SWEEP/trials/TRIAL); default: all under run.storage.",
            autocompletion=complete_run,
        ),
    ] = None,
    overrides: OverridesArgument = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Go on until nothing runs: a live table on a terminal, else lines on change."),
    ] = False,
    time_spent: Annotated[
        bool, typer.Option("--time", help="Of one run also where its time went, and why; reads all of its metrics.")
    ] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks of --watch.")] = 2.0,
    as_json: JsonOption = False,
) -> None:
    """Show how runs and sweeps stand. With --watch and --json: a line for each look at which something has changed."""
    if run is not None and "=" in run:  # pliant status run.storage=…
        overrides = [run, *(overrides or [])]
        run = None
    if time_spent and (run is None or watch):
        raise UsageError("status.time", "--time is of one run, and not with --watch", hint="name a run: `pliant ls`")
    target = resolve_run(run or "all", overrides)
    if run is not None:
        from pliant.sweeps import Sweep

        if isinstance(found := open_any(run, overrides), Sweep):
            _sweep(found, run, watch=watch, time_spent=time_spent, every=every, as_json=as_json)
            return
    if not watch:
        every_run = _settled(_runs(target, run))
        if run is not None:
            more = _more(target, time_spent=time_spent)
            text = [_one(every_run[0]), *_lines(more.get("history", [])), *_ledger(more.get("time", {}))]
            emit({**every_run[0], **more}, as_json=as_json, text="\n".join(text))
        else:
            runs = [facts for facts in every_run if "sweep" not in facts]
            sweeps = [facts for facts in every_run if "sweep" in facts]
            emit({"runs": runs, "sweeps": sweeps}, as_json=as_json, text=_table(every_run, target))
        return
    looks = _looks(target, run, every)
    if as_json:
        emit_lines(facts for changed, _ in _changes(looks) for facts in changed)
    elif _on_terminal():
        _live(looks, lambda facts: _one(facts[0]) if run is not None else _table(facts, target))
    else:
        for changed, _ in _changes(looks):
            for facts in changed:
                write_result("  ".join(_line(facts)))


def _sweep(found: Sweep, reference: str, *, watch: bool, time_spent: bool, every: float, as_json: bool) -> None:
    from pliant.cli.sweep_status import show_sweep, watch_sweep

    if time_spent:
        hint = f"its trials are runs: pliant status {reference}/trials/t0000 --time"
        raise UsageError("status.time", "--time is of one run, not of a sweep", hint=hint)
    if watch:
        watch_sweep(found, every, as_json=as_json)
    else:
        show_sweep(found, as_json=as_json)


def _runs(target: RunTarget, run: str | None) -> list[Run | Sweep]:
    from pliant.sweeps import all_in, open_uri

    if run is not None:
        return [open_uri(target.uri, target.settings.store)]
    return all_in(target.settings.storage, target.settings.store)


def _settled(runs: Sequence[Run | Sweep]) -> list[Facts]:
    """How each stands. Tells trackers of drivers that were killed before they could do so."""
    with ThreadPoolExecutor(8) as pool:  # on object storage it is waiting, not work
        every = list(pool.map(_facts, runs))
    for run, facts in zip(runs, every, strict=True):
        if facts["state"].startswith("died"):
            from pliant.track import background
            from pliant.tune.tracking import outbox

            settle_status = outbox.settle_status if run.record.is_sweep else background.settle_status
            if problem := settle_status(run.record):
                say(problem)
    return every


def _facts(run: Run | Sweep) -> Facts:
    """How it stands, of a sweep without its trials; of one whose record cannot be read, what is wrong with it."""
    from pliant.api import Run
    from pliant.errors import DamageError

    try:
        return {key: value for key, value in run.status().items() if key != "trials"}
    except DamageError as error:
        kind = "run" if isinstance(run, Run) else "sweep"
        return {kind: run.store.uri.rpartition("/")[2], "state": "damaged", "detail": str(error), "uri": run.store.uri}


def _looks(target: RunTarget, run: str | None, every: float) -> Iterator[list[Facts]]:
    """How they stand, again and again, until none runs."""
    while True:
        facts = _settled(_runs(target, run))
        yield facts
        if not any(one["state"] in _OPEN for one in facts):
            return
        time.sleep(every)


def _changes(looks: Iterator[list[Facts]]) -> Iterator[tuple[list[Facts], list[Facts]]]:
    """(those that have changed, all of them) of each look at which one has."""
    before: dict[str, tuple[Any, ...]] = {}
    for every in looks:
        now = {facts["uri"]: tuple(facts.get(key) for key in _CHANGES) for facts in every}
        if changed := [facts for facts in every if before.get(facts["uri"]) != now[facts["uri"]]]:
            yield changed, every
        before = now


def _live(looks: Iterator[list[Facts]], text: Any) -> None:
    """Draws each look over the one before, in one write; the last one stays."""
    import shutil

    height = 0
    for every in looks:
        columns, rows = shutil.get_terminal_size()
        lines = [line[: columns - 1] for line in text(every).splitlines()][: max(rows - 1, 1)]
        up = f"\x1b[{height}A" if height else ""
        results().write(f"{up}\r" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        results().flush()
        height = len(lines)


def _on_terminal() -> bool:
    from pliant.observe.console import is_live

    return is_live(results())


def _one(facts: Facts) -> str:
    shown = {_WORDS.get(key, key): value for key, value in facts.items() if value not in (None, [], {})}
    return "\n".join(f"{key:<12} {_show(value)}" for key, value in shown.items())


def _more(target: RunTarget, *, time_spent: bool) -> Facts:
    """Every start of a run's workers, and where its time went; nothing where its record cannot be read."""
    from pliant.api import Run
    from pliant.errors import DamageError

    try:
        run = Run.open(target.uri, target.settings.store)
        return {"history": run.history(), **({"time": run.time_spent()} if time_spent else {})}
    except DamageError:
        return {}


def _lines(history: Sequence[Facts]) -> list[str]:
    """The newest starts of the workers, a line each: number, workers, steps, why it ended."""
    shown = history[-_MOST_LINES:]
    rows = []
    for group in shown:
        workers, first, last = group["workers"], group["from_step"] + 1, group["to_step"]
        steps = "no step" if last is None else f"step {last}" if last == first else f"steps {first}–{last}"
        count = "" if workers is None else f"{workers} worker{'s' * (workers != 1)}"
        rows.append((f"attempt {group['attempt']}", count, steps, group["why"]))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    widths[0] = max(widths[0], 12)
    lines = ["  ".join([*map(str.ljust, row[:3], widths), row[3]]).rstrip() for row in rows]
    hidden = len(history) - len(shown)
    return [f"{'':<12} {hidden} earlier ones: --json shows them", *lines] if hidden else lines


def _ledger(spent: Facts) -> list[str]:
    """Where the time went, a line for each category: seconds, share, causes."""
    if not spent:
        return []
    from pliant.units import format_seconds

    whole = sum(spent["seconds"].values())
    rows = []
    for category, seconds in spent["seconds"].items():
        if seconds:
            causes = (f"{cause} {format_seconds(s)}" for cause, s in spent["causes"].get(category, {}).items())
            rows.append((f"  {category}", format_seconds(seconds), f"{seconds / whole:.1%}", ", ".join(causes)))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    widths[0] = max(widths[0], 12)
    lines = [f"{c:<{widths[0]}} {s:>{widths[1]}}  {p:>{widths[2]}}  {why}".rstrip() for c, s, p, why in rows]
    share = "" if spent["goodput"] is None else f", goodput {spent['goodput']:.1%}"
    return [f"{'time':<12} {format_seconds(whole)}{share}", *lines]


def _table(every: Sequence[Facts], target: RunTarget) -> str:
    from pliant.cli.sweep_status import brief_table

    rows = [[_show(facts.get(column)) for column in _COLUMNS] for facts in every if "sweep" not in facts]
    header = [_WORDS.get(name, name) for name in _COLUMNS]
    parts = [table(header, rows)] if rows else []
    if sweeps := [facts for facts in every if "sweep" in facts]:
        parts.append(brief_table(sweeps))
    return "\n\n".join(parts) or f"no runs in {target.settings.storage}"


def _line(facts: Facts) -> Iterator[str]:
    if "sweep" in facts:
        from pliant.cli.sweep_status import brief_line

        yield brief_line(facts)
        return
    yield f"{facts['run']}  {facts['state']}"
    for key in ("step", "loss", "checkpoint", "workers"):
        if facts.get(key) is not None:
            yield f"{_WORDS.get(key, key)} {_show(facts[key])}"


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{k} {_show(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
