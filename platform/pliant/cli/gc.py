"""``pliant gc``: removes what no reader of a run will ever look at again; shows it first."""

from __future__ import annotations

from typing import Annotated

import typer

from pliant.cli.common import JsonOption, OverridesArgument, RunArgument, emit, open_run, say

_GARBAGE = ("uncommitted", "superseded", "void", "marked")
_KEPT = {
    "usable": "it can be resumed from (how many: checkpoint.keep_last, keep_best, keep_every_steps)",
    "quarantined": "it is damaged: for whoever wants to know how",
}


def gc(
    run: RunArgument,
    overrides: OverridesArgument = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only shown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove uncommitted and superseded checkpoints of a run that nobody drives. Quarantined ones stay."""
    from pliant.errors import UsageError
    from pliant.storage.layout import parse_checkpoint
    from pliant.units import format_bytes

    record = open_run(run, overrides).record
    store = record.store
    owner = record.owner()
    if owner is not None and record.wait_for_owner(owner, lambda left: None):
        raise UsageError(
            "run.owned", f"the run is being driven by {owner.describe()}", hint="stop it first", location=store.uri
        )
    view = record.view()
    every = view.verdicts()
    verdicts = {v.checkpoint: v for v in every if v.state in _GARBAGE and v.checkpoint not in view.pins}
    files = [
        (info, parsed[0])
        for info in store.list("checkpoints")
        if (parsed := parse_checkpoint(info.key)) and parsed[0] in verdicts
    ]
    size = sum(info.size for info, _ in files)
    lines = [f"{v.checkpoint.name}: {v.state}, {v.reason}" for v in verdicts.values()]
    lines += [f"{v.checkpoint.name}: kept, {_KEPT[v.state]}" for v in every if v.state in _KEPT]
    lines += [f"{ref.name}: kept, another run is being cloned from it" for ref in sorted(view.pins)]
    how = "" if yes or not files else "; remove them with --yes"
    lines.append(f"to remove: {len(files)} files, {format_bytes(size)}{how}")
    if yes:
        # Manifests first: a folder that is half removed must not pass for a checkpoint.
        for info, _ in sorted(files, key=lambda item: not item[0].key.endswith("/manifest.json")):
            store.delete(info.key)
        say(f"removed {len(files)} files")
    result = {
        "checkpoints": [v.checkpoint.name for v in verdicts.values()],
        "files": len(files),
        "bytes": size,
        "removed": yes,
    }
    emit(result, as_json=as_json, text="\n".join(lines))
