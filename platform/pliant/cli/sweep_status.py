"""What ``pliant status`` shows of a sweep: how it stands, its best configuration as YAML, and a table of its trials."""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pliant.cli.common import emit, emit_lines, results, say, table, write_result

if TYPE_CHECKING:
    from pliant.observe.sweep_table import SweepScreen
    from pliant.sweeps import Sweep

_BRIEF = ("sweep", "state", "trials", "best", "metric", "decisions", "worker-hours")
_OPEN = ("running", "unknown")
_MOST_TRIALS = 40
"""That are shown to people."""
Facts = dict[str, Any]


def show_sweep(sweep: Sweep, *, as_json: bool) -> None:
    """Writes how it stands now. Tells its tracker of a driver that was killed before it could do so."""
    facts, screen = _look(sweep)
    if facts["state"].startswith("died"):
        from pliant.tune.tracking.outbox import settle_status

        if problem := settle_status(sweep.record):
            say(problem)
    text = "" if as_json else "\n".join([*_head(facts), "", *_table(screen)])
    emit(facts, as_json=as_json, text=text)


def watch_sweep(sweep: Sweep, every: float, *, as_json: bool) -> None:
    """Goes on until nobody drives it: a table on a terminal, drawn over; elsewhere a line for each change, with
    ``as_json`` a document for each look at which something has changed."""
    looks = _looks(sweep, every)
    if as_json:
        emit_lines(_changed(looks))
        return
    from pliant.observe.console import Console
    from pliant.observe.sweep_table import SweepTable, head_line

    console = Console(results())
    shown, last = SweepTable(console, every=float("inf")), None
    for facts, screen in looks:
        last = facts, screen
        shown.show(screen, now=console.live)
    if last is None:
        return
    console.close()
    facts, screen = last
    write_result("\n".join([*_head(facts), "", *_table(screen)] if console.live else [head_line(screen)]))


def brief_table(every: Sequence[Facts]) -> str:
    """A line for each sweep."""
    return table(_BRIEF, [_brief(facts) for facts in every])


def brief_line(facts: Facts) -> str:
    """One sweep in a line."""
    name, state, trials, best, metric, decisions, hours = _brief(facts)
    found = f"  best {metric} {best}" if best else ""
    return f"{name}  {state}  {trials} trials{found}  {decisions:,} decisions  {hours} worker-hours"


def _looks(sweep: Sweep, every: float) -> Iterator[tuple[Facts, SweepScreen]]:
    while True:
        facts, screen = _look(sweep)
        yield facts, screen
        if facts["state"] not in _OPEN:
            return
        time.sleep(every)


def _look(sweep: Sweep) -> tuple[Facts, SweepScreen]:
    stand, found = sweep.standing(), sweep.results()
    running = found.running(stand)
    return found.facts(stand, running), found.screen(running)


def _changed(looks: Iterator[tuple[Facts, SweepScreen]]) -> Iterator[Facts]:
    before: Any = None
    for facts, _ in looks:
        now = {key: value for key, value in facts.items() if key != "last_sign_s"}
        if now != before:
            yield facts
        before = now


def _brief(facts: Facts) -> list[Any]:
    if facts["state"] == "damaged":
        return [facts["sweep"], "damaged", "", "", "", "", ""]
    begun = sum(facts["counts"].values())
    best = facts["best"]
    return [
        facts["sweep"],
        facts["state"],
        f"{begun:,}" if facts["planned"] is None else f"{begun:,}/{facts['planned']:,}",
        f"{best['value']:.6g} ({best['trial']})" if best else "",
        facts["metric"],
        facts["decisions"],
        f"{facts['worker_hours']:.2g}",
    ]


def _head(facts: Facts) -> list[str]:
    """What there is to say besides the trials."""
    counts = ", ".join(f"{count:,} {status}" for status, count in facts["counts"].items())
    begun = sum(facts["counts"].values())
    planned = f" of {facts['planned']:,}" if facts["planned"] is not None else ""
    cost = f", cost {facts['cost']:,.2f}" if facts["cost"] is not None else ""
    rows = {
        "sweep": facts["sweep"],
        "state": facts["state"],
        "detail": facts["detail"],
        "search": f"{facts['searcher']}, {facts['scheduler']}: {facts['metric']} ({facts['mode']})",
        "trials": f"{begun:,}{planned}" + (f": {counts}" if counts else ""),
        "decisions": f"{facts['decisions']:,}",
        "worker-hours": f"{facts['worker_hours']:.3g}{cost}",
        "starts": facts["attempts"],
        "owner": facts["owner"],
        "last sign": f"{facts['last_sign_s']:g} s ago" if facts["last_sign_s"] is not None else None,
        "pipeline": facts["pipeline"],
        "uri": facts["uri"],
    }
    lines = [f"{key:<12} {value}" for key, value in rows.items() if value is not None]
    if (best := facts["best"]) is not None:
        lines += [
            f"{'best':<12} {facts['metric']} {best['value']:.6g}: trial {best['trial']} after {best['samples']:,} rows",
            *textwrap.indent(best["yaml"], "  ").splitlines(),
        ]
        if best["command"] is not None:
            lines.append(f"{'train it':<12} {best['command']}")
    return lines


def _table(screen: SweepScreen) -> list[str]:
    """The trials, in the order of suggestion, of many those that matter most; cut to the width of a terminal."""
    from pliant.observe.console import is_live
    from pliant.observe.sweep_table import table_lines

    columns = shutil.get_terminal_size().columns - 1 if is_live(results()) else None
    if len(screen.rows) <= _MOST_TRIALS:
        return table_lines(screen, columns=columns, in_order=True)
    return [*table_lines(screen, columns=columns, rows=_MOST_TRIALS + 2), "  all of them: --json"]
