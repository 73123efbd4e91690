"""Which checkpoints to keep. Pure.

Removal has two phases: a save marks what is no longer needed, a later save removes what an earlier one marked. So
whoever chose a checkpoint to restore just before it was marked still finds it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from pliant.storage.layout import CheckpointRef


@dataclass(frozen=True)
class Stored:
    """A committed checkpoint that counts in the run.

    Attributes:
        metric: value of the pipeline's main metric measured at its step; None where it was not evaluated.
        marked: an earlier save has marked it for removal.
        intact: nothing is known against it; False once it is quarantined, then it is left alone.
    """

    ref: CheckpointRef
    metric: float | None = None
    marked: bool = False
    intact: bool = True


@dataclass(frozen=True)
class Removal:
    """What a save does about older checkpoints: ``mark`` now for a later save, ``delete`` now. Oldest first."""

    mark: tuple[CheckpointRef, ...]
    delete: tuple[CheckpointRef, ...]


def plan_removal(
    stored: Iterable[Stored],
    *,
    keep_last: int,
    keep_best: int,
    better: Literal["min", "max"],
    keep_every_steps: int | None,
    pinned: Collection[CheckpointRef] = (),
) -> Removal:
    """Decides after a commit what goes.

    Kept are the newest of all, the newest ``keep_last`` intact ones, the best ``keep_best`` intact ones, multiples
    of ``keep_every_steps``, and what a restore decision names. A mark does not count against what is kept: what was
    marked and is needed again stays.

    Args:
        stored: every committed checkpoint that counts, marked and quarantined ones included.
        keep_last: at least 1; the settings ask for 2.
        keep_best: by ``metric``; of equals the newer one.
        better: whether a lower or a higher metric is better.
        keep_every_steps: None for none.
        pinned: named by a restore decision.
    """
    newest_first = sorted(stored, key=lambda s: s.ref, reverse=True)
    keep = set(pinned) | {s.ref for s in newest_first[:1]}
    keep |= {s.ref for s in [s for s in newest_first if s.intact][: max(keep_last, 1)]}
    keep |= set(_best(newest_first, keep_best, better))
    if keep_every_steps:
        keep |= {s.ref for s in newest_first if s.ref.step % keep_every_steps == 0}
    gone = [s for s in reversed(newest_first) if s.intact and s.ref not in keep]
    return Removal(
        mark=tuple(s.ref for s in gone if not s.marked),
        delete=tuple(s.ref for s in gone if s.marked),
    )


def _best(newest_first: list[Stored], count: int, better: Literal["min", "max"]) -> list[CheckpointRef]:
    measured = [
        (s.metric, s.ref) for s in newest_first if s.intact and s.metric is not None and not math.isnan(s.metric)
    ]
    measured.sort(key=lambda m: m[0] if better == "min" else -m[0])  # stable: of equals the newer one comes first
    return [ref for _, ref in measured[:count]]
