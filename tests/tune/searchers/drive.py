"""Drives a searcher through trials that take no time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pliant.tune.domains import Dimension
from pliant.tune.searchers import make_searcher
from pliant.tune.settings import SearcherSettings, SweepSettings
from pliant.tune.space import Space
from pliant.tune.types import End, Mode, Params, Report, Searcher, Suggestion, trial_id

LENGTH = 90
MILESTONES = (10, 30, LENGTH)
Value = Callable[[Params], float | None]


def searcher(
    kind: str,
    space: Space,
    *,
    seed: int = 0,
    mode: Mode = "min",
    earlier: Sequence[tuple[Params, float | None]] = (),
    milestones: Sequence[int] = MILESTONES,
    **settings: Any,
) -> Searcher:
    chosen = SweepSettings(seed=seed, searcher=SearcherSettings(kind=kind, **settings))  # type: ignore[arg-type]
    return make_searcher(chosen, space, mode, milestones=milestones, earlier=earlier)


def finish(searcher: Searcher, number: int, params: Params, value: Value, samples: int = LENGTH) -> None:
    """Tells of a trial that has reported once and ended."""
    searcher.add(Suggestion(trial_id(number), number, params))
    searcher.observe(Report(trial_id(number), samples, value(params), {}))
    searcher.end(End(trial_id(number), "completed" if samples >= LENGTH else "stopped", samples))


def search(searcher: Searcher, value: Value, trials: int, *, first: int = 0) -> list[Params]:
    """Points of so many trials, one after the other; fewer when nothing is left."""
    points = []
    for number in range(first, first + trials):
        proposal = searcher.suggest(number)
        if proposal is None:
            break
        finish(searcher, number, proposal[0], value)
        points.append(proposal[0])
    return points


def choice(name: str, *choices: float | str | bool, **others: Any) -> Dimension:
    return Dimension(name, "choice", choices=choices, **others)


BOWL = Space(
    (
        Dimension("lr", "float", 1e-5, 1.0, log=True),
        Dimension("width", "int", 8, 512, log=True),
        Dimension("layers", "int", 1, 8),
        choice("kind", "a", "b", "c"),
        choice("batch", 16, 32, 64, 128),
        Dimension("share", "float", 0.0, 1.0, when={"kind": ("b", "c")}),
    )
)


def bowl(params: Params) -> float:
    """Smooth, best at 0: kind b."""
    return (
        math.log10(params["lr"] / 1e-3) ** 2
        + math.log2(params["width"] / 64) ** 2 / 4
        + (params["layers"] - 4) ** 2 / 8
        + {"a": 1.0, "b": 0.0, "c": 2.0}[params["kind"]]
        + math.log2(params["batch"] / 64) ** 2 / 4
        + (params.get("share", 0.5) - 0.3) ** 2
    )
