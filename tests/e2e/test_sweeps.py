"""Sweeps as a user has them: the command line, Ray Tune, kill -9 of the driver, and `pliant resume`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pliant.storage.record import RunRecord
from pliant.storage.store import Store
from pliant.tune.decisions import DECISIONS, read_decisions
from tests.command import python
from tests.e2e.commands import Command, store_of
from tests.train.runs import PIPELINE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SPACE = """
sweep:
  trials: 9
  slots: {slots}
  scheduler: {scheduler}
settings:
  train.epochs: 4
  train.global_batch: 32
  train.micro_batch: 8
  data.lanes: 8
  data.path: {data}
  data.reader: local
  elastic.max_workers: 1
  elastic.resources_per_worker: {{CPU: 0.5}}
  tracking.kind: none
  run.storage: {storage}
space:
  schedule:
    kind: [cosine, linear]
    peak: {{log: [1e-3, 1e-1]}}
    warmup_ratio: {{float: [0, 0.2]}}
  train.global_batch: {{choice: [16, 32, 64], lr: sqrt}}
"""
SCHEDULERS = {
    "asha": ("{kind: asha, eta: 2, first_epochs: 1}", 1),
    "halving": ("{kind: halving, eta: 3, first_epochs: 1}", 2),
    "pbt": ("{kind: pbt, population: 4, every_epochs: 1}", 1),
}


def written(tmp_path: Path, storage: str, dataset: str, kind: str) -> str:
    scheduler, slots = SCHEDULERS[kind]
    file = tmp_path / f"{kind}.yaml"
    text = SPACE.format(scheduler=scheduler, slots=slots, data=dataset, storage=storage)
    file.write_text(text if kind != "pbt" else text.replace("  trials: 9\n", ""))
    return str(file)


def log_of(store: Store) -> list[dict[str, Any]]:
    """The decision log without what time and place say."""
    found = []
    for logged in read_decisions(RunRecord.open(store)):
        entry = {"kind": type(logged.entry).__name__, **vars(logged.entry)}
        entry.pop("worker_seconds", None)
        entry.pop("settings", None)  # the folder of the test
        found.append(entry)
    return found


def decided(store: Store) -> int:
    """Entries of its log so far."""
    if store.head("run.json") is None:
        return 0
    return len([line for info in store.list(f"logs/{DECISIONS}") for line in store.get(info.key).splitlines()])


def without_order(log: list[dict[str, Any]]) -> list[str]:
    """Its entries in an order that does not depend on which of several slots was faster."""
    return sorted(json.dumps(entry, sort_keys=True) for entry in log)


@pytest.mark.parametrize(
    "kind", ["asha", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("halving", "pbt"))]
)  # over a minute each
def test_killed_twice_and_resumed_a_sweep_decides_as_if_nothing_had_happened(
    kind: str, dataset: str, tmp_path: Path
) -> None:
    storage = str(tmp_path / "runs")
    space = written(tmp_path, storage, dataset, kind)
    whole = Command("sweep", PIPELINE, "--space", space, "--name", "whole", cwd=tmp_path)
    output = whole.finish()
    assert "done: all" in output
    expected = log_of(store_of(storage, "whole"))

    store = store_of(storage, "killed")
    first = Command("sweep", PIPELINE, "--space", space, "--name", "killed", cwd=tmp_path)
    first.wait_until(lambda: decided(store) >= len(expected) // 3)
    first.kill()
    second = Command("resume", f"{storage}/killed", cwd=tmp_path)
    second.wait_until(lambda: decided(store) >= 2 * len(expected) // 3)
    second.kill()
    Command("resume", f"{storage}/killed", cwd=tmp_path).finish()
    found = log_of(store)
    if SCHEDULERS[kind][1] == 1:
        assert found == expected
    else:
        assert without_order(found) == without_order(expected)
    status = json.loads(python("-m", "pliant", "status", f"{storage}/killed", "--json", cwd=tmp_path).stdout)
    assert {trial["status"] for trial in status["trials"]} <= {"completed", "stopped"}
    if kind == "pbt":
        assert [entry for entry in found if entry.get("action") == "exploit"]
