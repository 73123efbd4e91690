"""``pliant gc``: removes what no reader of a run will ever look at again; shows it first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pliant.cli.common import JsonOption, OverridesArgument, RunOrSweepArgument, emit, open_any, say

if TYPE_CHECKING:
    from pliant.storage.record import RunRecord
    from pliant.storage.types import ObjectInfo

_GARBAGE = ("uncommitted", "superseded", "void", "marked")
_KEPT = {
    "usable": "it can be resumed from (how many: checkpoint.keep_last, keep_best, keep_every_steps)",
    "quarantined": "it is damaged: for whoever wants to know how",
}


def gc(
    run: RunOrSweepArgument,
    overrides: OverridesArgument = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only shown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove uncommitted and superseded checkpoints of a run, or of a sweep's trials, that nobody drives. Quarantined
    ones stay."""
    from pliant.sweeps import Sweep
    from pliant.units import format_bytes

    found = open_any(run, overrides)
    _refuse_driven(found.record)
    if isinstance(found, Sweep):
        garbage = {f"{one.store.uri.rpartition('/')[2]}/": _garbage(one.record) for one in found.runs()}
    else:
        garbage = {"": _garbage(found.record)}
    files = [info for one in garbage.values() for info in one.files]
    size = sum(info.size for info in files)
    lines = [f"{prefix}{line}" for prefix, one in garbage.items() for line in one.lines]
    if isinstance(found, Sweep):  # of so many runs what is kept is no news
        lines = [line for line in lines if ": kept, " not in line]
    how = "" if yes or not files else "; remove them with --yes"
    lines.append(f"to remove: {len(files)} files, {format_bytes(size)}{how}")
    if yes:
        for one in garbage.values():
            one.remove()
        say(f"removed {len(files)} files")
    result = {
        "checkpoints": [f"{prefix}{name}" for prefix, one in garbage.items() for name in one.checkpoints],
        "files": len(files),
        "bytes": size,
        "removed": yes,
    }
    emit(result, as_json=as_json, text="\n".join(lines))


class _Garbage(NamedTuple):
    """What can be removed of a run, and what is said of its checkpoints."""

    record: RunRecord
    checkpoints: list[str]
    files: list[ObjectInfo]
    lines: list[str]

    def remove(self) -> None:
        # Manifests first: a folder that is half removed must not pass for a checkpoint.
        for info in sorted(self.files, key=lambda info: not info.key.endswith("/manifest.json")):
            self.record.store.delete(info.key)


def _garbage(record: RunRecord) -> _Garbage:
    from pliant.storage.layout import parse_checkpoint

    view = record.view()
    every = view.verdicts()
    verdicts = {v.checkpoint: v for v in every if v.state in _GARBAGE and v.checkpoint not in view.pins}
    files = [
        info
        for info in record.store.list("checkpoints")
        if (parsed := parse_checkpoint(info.key)) and parsed[0] in verdicts
    ]
    lines = [f"{v.checkpoint.name}: {v.state}, {v.reason}" for v in verdicts.values()]
    lines += [f"{v.checkpoint.name}: kept, {_KEPT[v.state]}" for v in every if v.state in _KEPT]
    pinned = [v.checkpoint for v in every if v.state in _GARBAGE and v.checkpoint in view.pins]
    lines += [f"{ref.name}: kept, another run is being cloned from it" for ref in pinned]
    return _Garbage(record, [v.checkpoint.name for v in verdicts.values()], files, lines)


def _refuse_driven(record: RunRecord) -> None:
    from pliant.errors import UsageError

    owner = record.owner()
    if owner is not None and record.wait_for_owner(owner, lambda left: None):
        message = f"{record.identity['name']} is being driven by {owner.describe()}"
        raise UsageError("run.owned", message, hint="stop it first", location=record.store.uri)
