"""What a resume may change: each setting declares it, and this module compares. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from pliant.config.problems import raise_all
from pliant.config.schema import Keys, Leaf, leaves, show, value_of
from pliant.errors import ConfigError

_REASONS = {
    "seed": "it decides initialisation, order and dropout",
    "run": "it says where the run lives",
    "data": "it decides which row stands at which position",
    "model": "it decides what the parameters mean",
    "train": "it decides the bits of every step",
    "optim": "it decides what the optimizer's state means",
    "schedule": "it decides what progress is counted in",
    "init": "it decides where the parameters started",
}


@dataclass(frozen=True)
class Change:
    """One changed setting; a side that does not know the setting at all holds None.

    Attributes:
        key: dotted key.
        old: value in the run.
        new: value asked for.
        why: for a frozen setting, what it decides.
    """

    key: str
    old: Any
    new: Any
    why: str = ""

    def __str__(self) -> str:
        return f"{self.key}: {show(self.old)} → {show(self.new)}"


@dataclass(frozen=True)
class ResumeChanges:
    """Changed settings by what a resume may do with them: nothing, change the curve (recorded), anything."""

    frozen: tuple[Change, ...]
    curve: tuple[Change, ...]
    free: tuple[Change, ...]

    def refuse_frozen(self) -> None:
        """Raises:
        ConfigError: ``resume.frozen``, listing every changed frozen setting with both values and the reason.
        """
        raise_all(
            [
                ConfigError(
                    "resume.frozen",
                    f"{c.key} is frozen for the life of a run: it was {show(c.old)}, found {show(c.new)}",
                    hint=f"{c.why}; leave it, or start a new run",
                )
                for c in self.frozen
            ]
        )


def compare_for_resume(old: BaseModel, new: BaseModel) -> ResumeChanges:
    """Compares two configurations setting by setting.

    Args:
        old: the run's own.
        new: the one to go on with. Its declarations count; the old one's for settings that it no longer has.
    """
    known: dict[Keys, Leaf] = {leaf.keys: leaf for side in (old, new) for leaf in leaves(type(side))}
    changes: dict[str, list[Change]] = {"frozen": [], "curve": [], "free": []}
    for keys, leaf in known.items():
        before, after = value_of(old, keys), value_of(new, keys)
        if before != after:
            why = _REASONS.get(keys[0], "the run was started with it") if leaf.on_resume == "frozen" else ""
            changes[leaf.on_resume].append(Change(leaf.dotted, before, after, why))
    return ResumeChanges(tuple(changes["frozen"]), tuple(changes["curve"]), tuple(changes["free"]))
