"""``pliant status``: how a run stands, from its record alone: no Ray, no process of the run is needed."""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any

import typer

from pliant.cli.common import JsonOption, OverridesArgument, emit, resolve_run, table

_RUN_COLUMNS = ("run", "state", "step", "loss", "checkpoint", "attempts")


def status(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run; default: all under run.storage.")] = None,
    overrides: OverridesArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Show how runs stand."""
    from pliant.storage.store import Store

    if run is not None and "=" in run:  # pliant status run.storage=…
        overrides = [run, *(overrides or [])]
        run = None
    target = resolve_run(run or "all", overrides)
    if run is not None:
        facts = _facts(Store(target.uri, target.settings.store))
        text = "\n".join(f"{key:<12} {_show(value)}" for key, value in facts.items() if value not in (None, [], {}))
        emit(facts, as_json=as_json, text=text)
        return
    root = Store(target.settings.storage, target.settings.store)
    names = sorted(
        {
            info.key.removesuffix("/run.json")
            for info in root.list()
            if info.key.count("/") == 1 and info.key.endswith("/run.json")
        }
    )
    runs = [_facts(root.child(name)) for name in names]
    rows = [[_show(facts.get(column)) for column in _RUN_COLUMNS] for facts in runs]
    emit({"runs": runs}, as_json=as_json, text=table(_RUN_COLUMNS, rows) if rows else f"no runs in {root.uri}")


def _facts(store: Any) -> dict[str, Any]:
    from pliant.storage.logs import read_log
    from pliant.storage.record import RunRecord

    record = RunRecord.open(store)
    view, attempts, owner = record.view(), record.attempts(), record.owner()
    drivers = [a.number for a in attempts if a.claim.kind == "driver"]
    last = next(iter(deque(read_log(store, view, "metrics"), maxlen=1)), {})
    evaluation = next(iter(deque(read_log(store, view, "evaluations"), maxlen=1)), {})
    stop = record.stop_of(drivers[-1]) if drivers and owner is None else None
    if owner is not None:
        alive = owner.liveness(store.settings.heartbeat_fresh)
        state = {"alive": "running", "dead": "died, resumable", "unknown": "unknown"}[alive]
    else:
        state = "not started" if stop is None else "done" if stop["reason"] == "done" else f"stopped ({stop['reason']})"
    usable = view.checkpoints()
    return {
        "run": record.identity["name"],
        "state": state,
        "step": last.get("step", 0),
        "loss": last.get("loss"),
        "evaluation": {k: v for k, v in evaluation.items() if k not in ("time", "seconds", "attempt")},
        "checkpoint": usable[0].step if usable else None,
        "checkpoints": [ref.name for ref in usable],
        "workers": last.get("world_size"),
        "attempts": len(drivers),
        "owner": owner.describe() if owner else None,
        "detail": stop["detail"].splitlines()[0] if stop and stop.get("detail") else None,
        "pipeline": record.identity["pipeline"],
        "uri": store.uri,
    }


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{k} {_show(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
