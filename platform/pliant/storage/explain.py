"""What a resume would do with a run, in words, from its record alone."""

from __future__ import annotations

from pliant.storage.record import RunRecord
from pliant.storage.store import Store


def explain_resume(store: Store) -> list[str]:
    """Lines for people: who owns the run, how its attempts ended, which checkpoint would be taken and why not others.

    Raises:
        UsageError: there is no run.
        DamageError: its record is damaged.
    """
    record = RunRecord.open(store)
    owner = record.owner()
    lines = []
    for info in record.attempts():
        if info.claim.kind == "driver":
            stop = record.stop_of(info.number)
            why = (
                f"{stop['reason']}" + (f" ({str(stop['detail']).splitlines()[0]})" if stop.get("detail") else "")
                if stop
                else "no stop reason"
            )
            lines.append(
                f"attempt {info.number}: pid {info.claim.info.get('pid')} on {info.claim.info.get('host')}: {why}"
            )
    if owner is not None:
        state = owner.liveness(store.settings.heartbeat_fresh)
        lines.append(f"owner: {owner.describe()}, {state}")
    view = record.view()
    lines += view.explain()
    usable = view.checkpoints()
    lines.append(
        f"a resume would verify and take {usable[0].name}"
        if usable
        else "a resume would start from the beginning: no checkpoint was ever committed"
        if not view.verdicts()
        else "no checkpoint is usable: a resume would refuse"
    )
    return lines
