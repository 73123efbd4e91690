"""What a resume may change: each setting declares it, and this module compares. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from pliant.config.base import rule
from pliant.config.problems import Problem
from pliant.config.schema import Keys, Leaf, leaves, show, value_of

M = TypeVar("M", bound=BaseModel)

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


_OF_TRAINING = frozenset({"model", "train", "optim", "schedule"})
"""Sections that matter from the first checkpoint on. The others decide what the run is: they stand in its identity."""


def frozen_rule(old: M, *reads: str, settle: Callable[[M], M], begun: bool = True) -> Callable[[M], Iterator[Problem]]:
    """The rule that a resume changes no frozen setting; it says both values and the reason.

    Args:
        old: the run's own configuration.
        reads: what ``settle`` reads.
        settle: what is done with a configuration before it is recorded.
        begun: as in ``compare_for_resume``.
    """

    @rule(*reads)
    def frozen(new: M) -> Iterator[Problem]:
        for change in compare_for_resume(old, settle(new), begun=begun).frozen:
            message = (
                f"{change.key} is frozen for the life of a run: it was {show(change.old)}, found {show(change.new)}"
            )
            yield Problem(change.key, "resume.frozen", message, f"{change.why}; leave it, or start a new run", True)

    return frozen


def compare_for_resume(old: BaseModel, new: BaseModel, *, begun: bool = True) -> ResumeChanges:
    """Compares two configurations setting by setting.

    Args:
        old: the run's own.
        new: the one to go on with. Its declarations count; the old one's for settings that it no longer has.
        begun: whether there is a checkpoint to go on with. Where there is none training starts over, and what is
            frozen for the sake of its state may be changed like anything else that changes the curve.
    """
    known: dict[Keys, Leaf] = {leaf.keys: leaf for side in (old, new) for leaf in leaves(type(side))}
    changes: dict[str, list[Change]] = {"frozen": [], "curve": [], "free": []}
    for keys, leaf in known.items():
        before, after = value_of(old, keys), value_of(new, keys)
        if before != after:
            kind = leaf.on_resume
            if kind == "frozen" and not begun and keys[0] in _OF_TRAINING:
                kind = "curve"
            why = _REASONS.get(keys[0], "the run was started with it") if kind == "frozen" else ""
            changes[kind].append(Change(leaf.dotted, before, after, why))
    return ResumeChanges(tuple(changes["frozen"]), tuple(changes["curve"]), tuple(changes["free"]))
