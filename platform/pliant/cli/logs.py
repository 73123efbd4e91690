"""``pliant logs``: what the workers of a run printed, each rank's own, whatever has become of its cluster."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pliant.cli.common import JsonOption, OverridesArgument, RunOrSweepArgument, emit_lines, open_any, say, write_result
from pliant.errors import UsageError

if TYPE_CHECKING:
    from pliant.api import Run
    from pliant.sweeps import Sweep

_LOOK_EVERY_S = 1.0


def logs(
    run: RunOrSweepArgument,
    overrides: OverridesArgument = None,
    rank: Annotated[
        str, typer.Option("--rank", metavar="N|all|driver", help="Whose lines; the driver's are Ray's own.")
    ] = "0",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what a run's workers printed, and the traceback of what ended one. Of a sweep: what its driver printed; its
    trials are runs, as SWEEP/trials/t0000."""
    from pliant.observe.output import DRIVER_LOG, output_log
    from pliant.sweeps import Sweep

    if rank not in ("all", "driver") and not rank.isdecimal():
        raise UsageError("logs.rank", f"--rank is {rank!r}; allowed: a number from 0, all, or driver")
    found = open_any(run, overrides)
    if isinstance(found, Sweep):
        if rank.isdecimal() and rank != "0":
            hint = f"its trials have them: pliant logs {run}/trials/t0000 --rank {rank}"
            raise UsageError("logs.rank", "a sweep has no ranks of its own", hint=hint)
        rank = "driver"
    wanted = {"all": None, "driver": DRIVER_LOG}.get(rank) if not rank.isdecimal() else output_log(int(rank))
    lines = _followed(found, wanted) if follow else _recorded(found, wanted)
    if as_json:
        emit_lines(lines)
        return
    attempt = None
    for line in lines:
        if line["attempt"] != attempt:
            attempt = line["attempt"]
            say(f"── attempt {attempt}")
        write_result(f"[{line['rank']}] {line['text']}" if wanted is None else line["text"])
    if attempt is None:
        ranks = _ranks(found)
        others = f"; ranks that did: {', '.join(map(str, ranks))}" if ranks else ""
        who = "no rank has printed anything" if wanted is None else f"{wanted.replace('-', ' ')} has printed nothing"
        say(f"{who} yet{others}")


def _ranks(run: Run | Sweep) -> list[int]:
    """Ranks that have printed something in any attempt."""
    from pliant.observe.output import rank_of
    from pliant.storage.layout import LOGS, parse_segment

    names = {segment.log for info in run.store.list(LOGS) if (segment := parse_segment(info.key))}
    return sorted(rank for name in names if (rank := rank_of(name)) is not None)


def _logs(run: Run | Sweep, wanted: str | None) -> list[str]:
    """Names of the logs that are wanted; None for those of all ranks."""
    from pliant.observe.output import output_log

    return [wanted] if wanted is not None else [output_log(rank) for rank in _ranks(run)]


def _recorded(run: Run | Sweep, wanted: str | None) -> Iterator[dict[str, Any]]:
    """The lines so far; of several ranks by attempt and time."""
    logs = [_lines_of(run, log) for log in _logs(run, wanted)]
    return heapq.merge(*logs, key=lambda line: (line["attempt"], line["time"]))


def _lines_of(run: Run | Sweep, log: str) -> Iterator[dict[str, Any]]:
    from pliant.observe.output import rank_of

    for line in run.log(log):
        yield {"rank": rank_of(log), **line}


def _followed(run: Run | Sweep, wanted: str | None) -> Iterator[dict[str, Any]]:
    """The lines so far and those that come, until nobody drives the run any more."""
    from pliant.observe.output import rank_of
    from pliant.storage.logs import read_log_after

    seen: dict[str, dict[int, int]] = {}
    while True:
        over = run.state() not in ("running", "unknown", "not started")  # before reading: the last lines come too
        view, found = run.record.view(), []
        for log in _logs(run, wanted):
            positions = seen.setdefault(log, {})
            for attempt, seq, line in read_log_after(run.store, view, log, dict(positions)):
                positions[attempt] = seq
                found.append({"rank": rank_of(log), **line})
        yield from sorted(found, key=lambda line: (line["attempt"], line["time"]))
        if over:
            return
        time.sleep(_LOOK_EVERY_S)
