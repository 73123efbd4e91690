"""Writes a run's report: one HTML file that needs nothing else, from the template beside this file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from pliant import __version__
from pliant.errors import StorageError
from pliant.report.collect import Collected, collect
from pliant.report.figures import HEIGHT, WIDTH, figures, steps_of
from pliant.storage.record import RunRecord
from pliant.track.goodput import CATEGORIES, MEANINGS, by_cause, goodput, totals
from pliant.track.lives import column, spent
from pliant.units import format_seconds

REPORT = "report.html"
_MOST_EVENTS = 400
_MOST_ATTEMPTS = 200
_LONGEST = 2_000
_SAVES_SHOWN = 5
_MOST_TILES = 3
_NO_FIGURES = frozenset({"step", "samples", "time", "seconds", "attempt"})


def default_place(record: RunRecord) -> Path:
    """Where a report is written unless something else is asked for: beside the run, or here if that lies elsewhere."""
    uri = record.store.uri
    return Path(f"{record.identity['name']}-{REPORT}") if "://" in uri else Path(uri, REPORT)


def write_report(record: RunRecord, out: Path) -> dict[str, Any]:
    """Writes the report of a run as it is now; a file that is there is replaced in one go.

    Returns:
        What is in it, in short: as ``pliant report --json`` prints it.

    Raises:
        DamageError, StorageError: a part of the record cannot be read, or the file cannot be written.
    """
    run = collect(record)
    size = write_page(render(run), out)
    return summary(run) | {"file": str(out.absolute()), "bytes": size}


def write_page(page: str, out: Path) -> int:
    """Writes a page; a file that is there is replaced in one go.

    Returns:
        Its bytes.

    Raises:
        StorageError: the file cannot be written.
    """
    data = page.encode()
    part = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        part.write_bytes(data)
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        message = f"the report cannot be written: {error.strerror}"
        raise StorageError(
            "report.write", message, hint="write it elsewhere with --out FILE", location=str(out)
        ) from error
    return len(data)


def summary(run: Collected) -> dict[str, Any]:
    """What a report shows, in short."""
    steps = steps_of(run.train)
    return {
        "run": run.identity["name"],
        "uri": run.uri,
        "state": run.state,
        "steps": len(steps),
        "last_step": int(steps[-1]) if len(steps) else 0,
        "figures": [figure.name for figure in figures(run)[0]],
        "attempts": len(run.attempts),
        **spent(run.accounts),
        "events": len(run.events),
        "checkpoints": {v.checkpoint.name: v.state for v in run.checkpoints},
        "settings": len(run.settings),
    }


def render(run: Collected) -> str:
    """The page."""
    shown, left_out = figures(run)
    return template("report.html.j2").render(
        run=run,
        name=run.identity["name"],
        version=__version__,
        width=WIDTH,
        height=HEIGHT,
        figures=shown,
        left_out=left_out,
        tiles=_tiles(run),
        trouble=_trouble(run),
        seconds={c: s for c, s in totals(run.accounts).items() if s > 0},
        causes=by_cause(run.accounts),
        stretches=run.accounts[-_MOST_ATTEMPTS:],
        meanings=MEANINGS,
        categories=CATEGORIES,
        sampled=_sampled(run),
        attempts=run.attempts[-_MOST_ATTEMPTS:],
        events=_events(run),
        settings=_settings(run),
        conditions=_conditions(run),
        provenance=_provenance(run),
        changed={a.number for a in run.attempts if a.comparable is False},
    )


def template(name: str) -> Template:
    """A template beside this file."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"utc": _utc, "duration": format_seconds, "value": _value, "cut": _cut, "percent": _percent}
    return environment.get_template(name)


def _tiles(run: Collected) -> list[tuple[str, str, str]]:
    """The figures that are looked at first: name, value, what else there is to say."""
    steps, loss = steps_of(run.train), column(run.train, "loss")
    tiles: list[tuple[str, str, str]] = []
    if len(steps):
        epoch = int(column(run.train, "epoch")[-1]) if "epoch" in run.train else 0
        tiles += [
            ("step", f"{steps[-1]:,}", f"in epoch {epoch}, counted from 0"),
            ("training loss", _value(loss[-1]), "at the last step"),
        ]
    tiles += [
        (name, _value(float(values[-1])), f"validation, step {at[-1]:,}")
        for name, (at, values) in run.evaluations.items()
        if name not in _NO_FIGURES
    ][:_MOST_TILES]
    if run.best is not None:
        metric, step, best = run.best
        tiles.append((f"best {metric}", _value(best), f"validation, step {step:,}"))
    if run.accounts:
        whole = run.accounts[-1].end - run.accounts[0].begin
        drivers = len({a.driver for a in run.attempts})
        tiles.append(("time", format_seconds(whole), f"{drivers} start{'s' * (drivers != 1)}"))
    if (share := goodput(run.accounts)) is not None:
        tiles.append(("goodput", _percent(share), "of running time in steps that count"))
    return tiles


def _trouble(run: Collected) -> list[tuple[str, str]]:
    """What a reader must not miss: headline, text."""
    last = run.attempts[-1].driver if run.attempts else 0
    found = [(f"The run stopped ({a.ended})", a.detail) for a in run.attempts if a.detail and a.driver == last]
    found += [("A damaged checkpoint", str(e.get("text", ""))) for e in run.events if e["kind"] == "quarantine"][-5:]
    changed = [str(card.number) for card in run.attempts if card.comparable is False]
    if changed:
        text = f"Attempt {', '.join(changed)} ran under other conditions than the first: see Conditions."
        found.append(("Not comparable bit by bit", text))
    if bad := int((~np.isfinite(column(run.train, "loss"))).sum()):
        found.append(("The loss was not finite", f"at {bad:,} steps; they are marked in the curve"))
    return found


def _sampled(run: Collected) -> bool:
    """Whether not every step was recorded, so that some stand for others."""
    steps = steps_of(run.train)
    return bool(len(steps) and steps[-1] > len(steps))


def _events(run: Collected) -> dict[str, Any]:
    """Events without the saves that went well, which are many; of those the last few."""
    saves = [event for event in run.events if event["kind"] == "checkpoint"]
    listed = [event for event in run.events if event["kind"] != "checkpoint"]
    hidden = max(len(listed) - _MOST_EVENTS, 0)
    shown = sorted([*listed[hidden:], *saves[-_SAVES_SHOWN:]], key=lambda event: float(event.get("time", 0.0)))
    return {"shown": shown, "hidden": hidden, "saves": len(saves), "saves_shown": min(len(saves), _SAVES_SHOWN)}


def _settings(run: Collected) -> dict[str, Sequence[Any]]:
    """Those that someone set, and those that are as they come."""
    own = [s for s in run.settings if s.origin != "default"]
    return {"own": own, "default": [s for s in run.settings if s.origin == "default"]}


def _conditions(run: Collected) -> list[dict[str, Any]]:
    """Each different set of conditions, with the attempts that ran under it and what differs from the first."""
    found: list[dict[str, Any]] = []
    for card in run.attempts:
        if not card.conditions:
            continue
        same = next((c for c in found if c["values"] == card.conditions), None)
        if same is None:
            first = found[0]["values"] if found else card.conditions
            differs = {k for k, v in card.conditions.items() if first.get(k) != v}
            found.append({"values": card.conditions, "attempts": [card.number], "differs": differs})
        else:
            same["attempts"].append(card.number)
    return found


def _provenance(run: Collected) -> list[tuple[str, str]]:
    known, git = run.provenance, run.provenance.get("git") or {}
    versions = ", ".join(f"{name} {known[name]}" for name in ("pliant", "torch", "ray", "python") if name in known)
    rows = {
        "pipeline": run.identity.get("pipeline"),
        "run id": run.identity.get("run_id"),
        "created": _utc(float(run.identity["created"])) if "created" in run.identity else None,
        "by": known.get("user"),
        "command": " ".join(map(str, known.get("command", []))),
        "versions": versions,
        "git commit": git.get("commit"),
        "git branch": git.get("branch"),
        "git remote": git.get("remote"),
        "working tree": _tree(git) if git else None,
        **{f"file {name}": digest for name, digest in run.code.items()},
    }
    return [(name, str(value)) for name, value in rows.items() if value]


def _tree(git: Mapping[str, Any]) -> str:
    return "differs from the commit; the difference is in the run's record" if git.get("dirty") else "as committed"


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def _value(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text):,} characters)"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.0005 else f"{share:.2%}"
