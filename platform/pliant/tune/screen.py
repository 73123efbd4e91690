"""The start screen of a sweep: what it will do, what was chosen and where, and the commands that go with it."""

from __future__ import annotations

from pliant.train.screen import chosen_settings, run_reference
from pliant.tune.launch import SweepLaunch


def sweep_lines(launch: SweepLaunch) -> list[str]:
    """All of it, for people."""
    search, settings = launch.search, launch.search.settings
    better = "smaller" if search.mode == "min" else "larger"
    lines = [
        f"sweep {launch.name} at {launch.record.store.uri}{', which goes on' if launch.changes is not None else ''}",
        f"{settings.trials} trials of up to {search.length:,} rows ({search.length / search.rows:g} epochs),"
        f" scheduler {settings.scheduler.kind}, searcher {settings.searcher.kind}, seed {settings.seed}",
        f"metric {search.metric}, {better} is better",
        f"searched: {', '.join(dimension.name for dimension in search.space.dimensions)}",
        "settings that were given or derived, where a trial has none of its own:",
        *chosen_settings(launch.base, launch.origins),
    ]
    if launch.changes:
        lines += [f"changed: {change}" for change in launch.changes.free]
        lines += [f"changed code, accepted: {file}" for file in launch.code_changes]
    if launch.narrowed is not None:
        lines.append("the search space is narrower than before")
    name = run_reference(launch.name, launch.record.store.uri)
    return [*lines, f"watch it: pliant status {name} --watch", f"stop it after checkpoints: pliant stop {name}"]
