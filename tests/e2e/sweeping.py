"""Sweeps of the test pipeline for tests of whole commands: their files, and what stands in their logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from pliant.storage.record import RunRecord
from pliant.storage.store import Store
from pliant.tune.decisions import read_decisions, to_dict
from tests.e2e.commands import Command
from tests.train.runs import PIPELINE

FORWARDS = 8
"""Forward passes of a trial's step: one of each lane."""
SETTINGS: Mapping[str, Any] = {
    "train.epochs": 4,
    "train.global_batch": 32,
    "train.micro_batch": 8,
    "data.lanes": 8,
    "data.reader": "local",
    "elastic.max_workers": 1,
    "elastic.resources_per_worker": {"CPU": 0.5},
    "tracking.kind": "none",
    "run.store.heartbeat_every": 0.5,
    "run.store.segment_every": 0.2,
}
SWEEP: Mapping[str, Any] = {"trials": 6, "slots": 1, "scheduler": {"kind": "asha", "eta": 2, "first_epochs": 1}}
SPACE: Mapping[str, Any] = {
    "schedule": {"kind": ["cosine", "linear"], "peak": {"log": [0.001, 0.1]}},
    "train.global_batch": {"choice": [16, 32, 64], "lr": "sqrt"},
}


def space_file(
    folder: Path,
    dataset: str,
    *,
    sweep: Mapping[str, Any] = SWEEP,
    space: Mapping[str, Any] = SPACE,
    settings: Mapping[str, Any] | None = None,
    name: str = "space",
) -> str:
    """Path of a space's file. Its trials write below ``folder/runs``."""
    own = {**SETTINGS, "data.path": dataset, "run.storage": str(folder / "runs"), **(settings or {})}
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps({"sweep": sweep, "settings": own, "space": space}))  # JSON is YAML
    return str(file)


def begin(folder: Path, space: str, *, name: str = "s", pipeline: str = PIPELINE, **options: Any) -> Command:
    """Starts ``pliant sweep`` of the sweep ``folder/runs/NAME``."""
    return Command("sweep", pipeline, "--space", space, "--name", name, cwd=folder, **options)


def log_of(store: Store, *kinds: str) -> list[dict[str, Any]]:
    """The entries of its decision log, of these kinds only unless there are none, without what time and place say."""
    if store.head("run.json") is None:
        return []
    entries = [to_dict(logged.entry) for logged in read_decisions(RunRecord.open(store))]
    return [
        {name: value for name, value in entry.items() if name not in ("worker_seconds", "settings")}
        for entry in entries
        if not kinds or entry["kind"] in kinds
    ]


def decided(store: Store) -> list[dict[str, Any]]:
    """Entries that must not depend on interruptions."""
    return [entry for entry in log_of(store) if entry["kind"] not in ("loss", "settings")]


def legs(command: Command) -> list[psutil.Process]:
    """Processes of its legs of one worker."""
    return [process for process in command.processes("ray::") if "Leg" in " ".join(process.cmdline())]


def status(folder: Path, name: str = "s") -> dict[str, Any]:
    """What ``pliant status --json`` says of a sweep."""
    output = Command("status", f"runs/{name}", "--json", cwd=folder).finish()
    found: dict[str, Any] = json.loads(output)
    return found
