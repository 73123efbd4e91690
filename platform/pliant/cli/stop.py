"""``pliant stop``: asks a run or sweep to checkpoint and end, by a request in its storage, so that any host can."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pliant.cli.common import JsonOption, OverridesArgument, RunOrSweepArgument, emit, open_any, say

if TYPE_CHECKING:
    from pliant.storage.owner import Owner
    from pliant.storage.record import RunRecord

_LOOK_EVERY_S = 0.5
_OF_A_RUN = ("run", "state", "step", "checkpoint", "uri")


def stop(
    run: RunOrSweepArgument,
    overrides: OverridesArgument = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return when it has stopped, or at once.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Ask a run, or a sweep's trials, to take a checkpoint and stop, to be resumed. Exit 4 without a sign of life."""
    from pliant.sweeps import Sweep

    found = open_any(run, overrides)
    record = found.record
    owner = record.owner()
    asked = owner is not None and owner.liveness(record.store.settings.heartbeat_fresh) != "dead"
    if owner is not None and asked:
        record.request_stop(owner.attempt, "pliant stop")
        say(f"asked {owner.describe()} to stop after a checkpoint")
        if wait:
            _wait(record, owner)
    facts = found.status()
    kept = ("sweep", "state", "decisions", "uri") if isinstance(found, Sweep) else _OF_A_RUN
    result = {key: facts[key] for key in kept} | {"asked": asked}
    emit(result, as_json=as_json, text=_text(facts, asked=asked, waited=wait))
    if facts["state"] not in ("done", "not started") and (wait or not asked):
        say(f"resume with: pliant resume {run}")


def _wait(record: RunRecord, owner: Owner) -> None:
    """Returns when the owner has written why it ended, or is seen to be dead.

    Raises:
        StorageError: it shows no sign of life; the request stands.
    """
    from pliant.errors import StorageError
    from pliant.storage.layout import attempt_key
    from pliant.storage.owner import process_lives
    from pliant.storage.snapshot import HEARTBEAT

    fresh = record.store.settings.heartbeat_fresh
    sign, seen = None, time.monotonic()
    while record.stop_of(owner.attempt) is None:
        info = record.store.head(attempt_key(owner.attempt, HEARTBEAT))
        if info is not None and info.modified != sign:
            sign, seen = info.modified, time.monotonic()
        lives = process_lives(owner.info)
        if lives is False and record.stop_of(owner.attempt) is None:
            say("its driver died before it could stop")
            return
        if lives is None and time.monotonic() - seen > fresh:
            message = f"{owner.describe()} has shown no sign of life for {fresh:.0f} s"
            hint = "the request stands, in case it comes back; resume the run when its machine is gone for good"
            raise StorageError("run.silent", message, hint=hint, location=record.store.uri)
        time.sleep(_LOOK_EVERY_S)


def _text(facts: dict[str, Any], *, asked: bool, waited: bool) -> str:
    if "sweep" in facts:
        name, step = facts["sweep"], f"{sum(facts['counts'].values()):,} trials, {facts['decisions']:,} decisions"
    else:
        name, step = facts["run"], f"step {facts['step']}, checkpoint {facts['checkpoint']}"
    if asked and not waited:
        return f"{name} will stop after a checkpoint ({step} so far)"
    return f"{name} {'' if asked else 'does not run: '}{facts['state']}, {step}"
