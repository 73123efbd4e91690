"""Machines come and go under a run that goes on by itself, with the numbers of one that nothing disturbed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pliant.storage.store import Store
from tests.e2e.commands import Command, store_of
from tests.train.runs import PIPELINE, SETTINGS, STEPS, Run

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

NODES = ["cluster.nodes=3", "elastic.max_workers=3", "data.reader=ray", "elastic.resources_per_worker={CPU: 0.5}"]
OWN = [s for s in SETTINGS if not s.startswith(("data.reader", "elastic."))]
CURVE = ("step", "loss", "grad_norm", "lr", "digest", "epoch", "position", "samples")


def chaos(folder: Path, fault: str, *options: str) -> None:
    Command("chaos", "run", "--once", fault, *options, cwd=folder).finish()


def recovered(store: Store, count: int) -> dict[str, Any]:
    """The run's last recovery, once there are so many."""
    while len(found := Run(store, "run").events("recovered")) < count:
        time.sleep(0.2)
    return found[count - 1]


def test_a_notice_costs_no_step_and_changes_no_number(tmp_path: Path, dataset: str, whole: Run) -> None:
    go, store = tmp_path / "go", store_of(str(tmp_path / "runs"), "run")
    forwards = 6  # of a step and worker: 3 of 8 lanes with two micro-batches each
    # What is left to do must not fit before the deadline, or it would be done first.
    much = [*(s for s in OWN if not s.startswith("train.steps")), "train.steps=1000000", f"schedule.total={STEPS}"]
    command = Command(
        "train", PIPELINE, "--name", "run", f"data.path={dataset}", *much, *NODES,
        cwd=tmp_path, hold_before_forward=9 * forwards + 1, hold_until=go,
    )  # fmt: skip
    command.wait_for_step(store, 9)
    notice = Command("chaos", "run", "--once", "drain", "--deadline", "60s", cwd=tmp_path)
    command.wait_for_output("goes away in")
    go.touch()
    command.wait_for_step_after(store, STEPS)
    Command("stop", "run", cwd=tmp_path).finish()
    output = command.finish(75)
    notice.kill()  # the machine need not go away
    run = Run(store, "run")
    (event,) = run.events("recovered")
    assert (event["cause"], event["steps_lost"], event["workers_before"], event["workers"]) == ("preemption", 0, 3, 2)
    assert event["text"] in output
    assert run.curve()[:STEPS] == whole.curve()
    assert run.rows()[:STEPS] == whole.rows()
    assert [entry["world_size"] for entry in run.log("metrics")][:STEPS] == [3] * 10 + [2] * (STEPS - 10)
    assert [run.record.stop_of(n)["reason"] for n in (1, 2, 3)] == ["signal", "preemption", "signal"]  # type: ignore[index]


@pytest.mark.long
def test_notices_losses_and_machines_that_come_back(tmp_path: Path, dataset: str) -> None:
    store = store_of(str(tmp_path / "runs"), "run")
    settings = [s for s in OWN if not s.startswith(("train.steps", "checkpoint.", "eval."))]
    settings += ["schedule.kind=constant", "train.steps=1000000", "checkpoint.every_steps=50", f"data.path={dataset}"]
    patience = ["elastic.settle=0.5s", "elastic.resize_interval=1s", "cluster.back_after=2s"]
    command = Command("train", PIPELINE, "--name", "run", *settings, *NODES, *patience, cwd=tmp_path)
    command.wait_for_step_after(store, 20)
    chaos(tmp_path, "drain:node-3", "--deadline", "10s")
    notice, growth = recovered(store, 1), recovered(store, 2)
    assert (notice["cause"], notice["steps_lost"], notice["workers"]) == ("preemption", 0, 2)
    assert (growth["cause"], growth["steps_lost"], growth["workers"]) == ("resize", 0, 3)
    chaos(tmp_path, "kill:node-2")
    assert (killed := recovered(store, 3))["cause"] == "infrastructure"
    assert killed["workers"] == 3
    assert killed["steps_lost"] <= 50
    chaos(tmp_path, "kill-node:node-3")
    lost = recovered(store, 4)
    assert (lost["cause"], lost["workers_before"], lost["workers"]) == ("infrastructure", 3, 2)
    assert recovered(store, 5)["workers"] == 3
    Command("stop", "run", cwd=tmp_path).finish()
    output = command.finish(75)
    assert all(event["text"] in output for event in (notice, growth, killed, lost))
    run = Run(store, "run")
    last = run.log("metrics")[-1]["step"]

    reference = [*(s for s in settings if not s.startswith("train.steps")), f"train.steps={last}", "--in-process"]
    Command("train", PIPELINE, "--name", "undisturbed", *reference, cwd=tmp_path).finish()
    undisturbed = Run(store_of(str(tmp_path / "runs"), "undisturbed"), "undisturbed")
    assert [[e[k] for k in CURVE] for e in run.log("metrics")] == [
        [e[k] for k in CURVE] for e in undisturbed.log("metrics")
    ]
    assert run.rows() == undisturbed.rows()
    said = json.loads(Command("status", "run", "--json", cwd=tmp_path).finish().splitlines()[-1])
    assert said["step"] == last
