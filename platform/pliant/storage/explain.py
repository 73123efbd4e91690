"""What a resume would do with a run, in words, from its record alone."""

from __future__ import annotations

from typing import Any

from pliant.storage.record import RunRecord
from pliant.storage.store import Store


def explain_resume(store: Store) -> list[str]:
    """Lines for people: how its drivers ended, who owns the run, which checkpoint would be taken and why not others.

    Raises:
        UsageError: there is no run.
        DamageError: its record is damaged.
    """
    record = RunRecord.open(store)
    lines = explain_drivers(record)
    view = record.view()
    lines += view.explain()
    usable = view.checkpoints()
    if usable:
        lines.append(f"a resume would verify {usable[0].name} and go on from it")
    elif any(verdict.state == "quarantined" for verdict in view.verdicts()):
        lines.append("a resume would refuse: every checkpoint is damaged")
    else:
        lines.append("a resume would start from the beginning: no checkpoint has been committed")
    return lines


def explain_drivers(record: RunRecord) -> list[str]:
    """Lines for people: how its drivers ended, and who owns it."""
    lines = []
    for info in record.attempts():
        if info.claim.kind == "driver":
            who = f"pid {info.claim.info.get('pid')} on {info.claim.info.get('host')}"
            lines.append(f"attempt {info.number}: {who}: {_why(record.stop_of(info.number))}")
    owner = record.owner()
    if owner is not None:
        lines.append(f"owner: {owner.describe()}, {owner.liveness(record.store.settings.heartbeat_fresh)}")
    return lines


def _why(stop: dict[str, Any] | None) -> str:
    if stop is None:
        return "did not say why it ended"
    detail = str(stop.get("detail") or "").splitlines()
    return f"{stop['reason']} ({detail[0]})" if detail else str(stop["reason"])
