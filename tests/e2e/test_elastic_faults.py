"""What goes wrong with machines, workers and a user's code: the run goes on by itself, or says why it does not.

Workers wait in the tenth step for what is done to them. What comes after a fault is the numbers of a run without any.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from pliant.data.manifest import Manifest
from pliant.storage.layout import attempt_key
from pliant.storage.snapshot import CLUSTER
from pliant.storage.store import Store
from pliant.train.plan import DATA_MANIFESTS
from tests.e2e.commands import Command, store_of
from tests.train.pipelines.masked import ROWS, table
from tests.train.runs import PIPELINE, SETTINGS, STEPS, Run

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

FAILING = str(Path(PIPELINE).with_name("failing.py"))
OWN = [s for s in SETTINGS if not s.startswith(("elastic.", "checkpoint.every"))]
HELD = 9
"""Steps that are done when workers wait; the last checkpoint is then of that step."""
EVERY = 3
WORKER, CONTROLLER = "RayTrainWorker", "ElasticController"


def with_own(*settings: str) -> list[str]:
    return list({text.partition("=")[0]: text for text in (*OWN, *settings)}.values())


class Training(Command):
    """A run on as many nodes, a worker on each, that saves every 3 steps.

    Args:
        held: steps after which each worker waits for ``go``; 0: none does.
    """

    def __init__(
        self, folder: Path, dataset: str, *settings: str, nodes: int = 2, held: int = HELD, pipeline: str = PIPELINE
    ) -> None:
        self.folder, self._go = folder, folder / "go"
        self.store = store_of(str(folder / "runs"), "run")
        forwards = -(-8 // nodes) * 2  # of a step and worker: so many of 8 lanes, with two micro-batches each
        super().__init__(
            "train", pipeline, "--name", "run", f"data.path={dataset}", f"checkpoint.every_steps={EVERY}",
            f"cluster.nodes={nodes}", f"elastic.max_workers={nodes}", "elastic.resources_per_worker={CPU: 0.5}",
            *with_own(*settings),
            cwd=folder, hold_before_forward=held * forwards + 1 if held else 0, hold_until=self._go,
        )  # fmt: skip
        if held:
            self.wait_for_step(self.store, held)
            self.wait_for_checkpoint(self.store, held // EVERY * EVERY)

    @property
    def run(self) -> Run:
        return Run(self.store, "run")

    def go(self) -> None:
        self._go.touch()

    def event(self, kind: str, count: int = 1) -> dict[str, Any]:
        return self.wait_for_event(self.store, kind, count)

    def workers(self) -> list[psutil.Process]:
        return self.processes(WORKER)

    def pliant(self, *arguments: str) -> str:
        return Command(*arguments, cwd=self.folder).finish()

    def chaos(self, fault: str, *options: str) -> None:
        self.pliant("chaos", "run", "--once", fault, *options)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.pliant("status", "run", "--json")))

    def is_done_like(self, whole: Run) -> dict[str, Any]:
        """Ends as a run that nothing disturbed, after one recovery; what was told of that one."""
        output = self.finish()
        assert f"done: step {STEPS} of {STEPS}" in output
        assert self.run.curve() == whole.curve()
        assert self.run.rows() == whole.rows()
        (event,) = self.run.events("recovered")
        assert event["text"] in output
        return dict(event)


# ---------------------------------------------------------------- a user's error


def row_of_step(whole: Run, step: int) -> str:
    """The tokens of a row that the stream gives at this step first, and that no trial sees."""
    starts = np.cumsum([0, *Manifest.from_bytes(whole.store.get(DATA_MANIFESTS["train"])).group_rows])
    assert starts[-1] == ROWS
    epoch, _, group, row = next(place for place in dict(whole.rows())[step] if place[2] > 0)
    assert epoch == 0
    return " ".join(map(str, table(ROWS, 1).column("tokens")[int(starts[group]) + row].as_py()))


def test_the_same_error_twice_at_the_same_step_ends_the_run(
    tmp_path: Path, dataset: str, whole: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAISE_FOR", row_of_step(whole, 5))
    training = Training(tmp_path, dataset, held=0, pipeline=FAILING)
    output = training.finish(1)
    assert output.count("starting again (tried again once)") == 1
    assert "loss raised ValueError: a row that this loss does not like" in output
    assert 'raise ValueError("a row that this loss does not like")' in output, "the user's frames"
    assert "tests/train/pipelines/failing.py" in output
    assert [entry["step"] for entry in training.run.log("metrics")] == [1, 2, 3, 4]
    assert training.run.record.stop_of(1)["reason"] == "user"  # type: ignore[index]
    assert len(training.run.record.attempts()) == 3


def test_an_error_that_does_not_come_again_costs_a_restart(
    tmp_path: Path, dataset: str, whole: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAISE_FOR", row_of_step(whole, 5))
    monkeypatch.setenv("RAISE_ONCE", str(tmp_path / "raised"))
    event = Training(tmp_path, dataset, held=0, pipeline=FAILING).is_done_like(whole)
    assert (event["cause"], event["workers"]) == ("user", 2)
    assert event["steps_lost"] in (1, 4), "4 where the first checkpoint was still on its way"


# ---------------------------------------------------------------- what hangs, and what is lost


def test_a_worker_that_stands_still_is_found_by_the_watchdog(tmp_path: Path, dataset: str, whole: Run) -> None:
    training = Training(tmp_path, dataset, "elastic.stall_timeout=8s", "elastic.spares=false")
    group = training.workers()
    group[-1].send_signal(signal.SIGSTOP)
    training.go()
    event = training.is_done_like(whole)
    assert (event["cause"], event["workers"], event["steps_lost"]) == ("infrastructure", 2, 0)
    assert "8 s are allowed" in event["text"]
    assert "does not answer" in event["text"]
    assert not any(process.is_running() for process in group)
    printed = [entry["text"] for rank in (0, 1) for entry in training.run.log(f"rank-{rank}")]
    assert any(text.startswith("thread TrainingThread") for text in printed)
    assert any("pliant/train/loop.py" in text for text in printed)


def test_the_controller_of_the_workers_is_killed(tmp_path: Path, dataset: str, whole: Run) -> None:
    training = Training(tmp_path, dataset)
    (controller,), group = training.processes(CONTROLLER), training.workers()
    controller.kill()
    training.go()
    training.wait_for_output("the controller of the workers was lost: starting again (1 of 100)")
    assert f"done: step {STEPS} of {STEPS}" in training.finish()
    assert training.run.curve() == whole.curve()
    assert training.run.rows() == whole.rows()
    assert len(training.run.record.attempts()) == 3
    assert not any(process.is_running() for process in group)


def test_a_machine_that_vanishes(tmp_path: Path, dataset: str, whole: Run) -> None:
    training = Training(tmp_path, dataset)
    training.chaos("vanish:node-2", "--for", "200s")
    training.event("failure")
    training.go()
    event = training.is_done_like(whole)
    assert (event["cause"], event["workers_before"], event["workers"]) == ("infrastructure", 2, 1)
    assert event["steps_lost"] == 0
    assert "does not answer" in event["text"] or "is gone" in event["text"], "by who notices it first"


# ---------------------------------------------------------------- too few machines


def waiting(folder: Path, dataset: str, *settings: str) -> Training:
    """A run that needs two machines and has lost one of them."""
    training = Training(folder, dataset, "elastic.min_workers=2", "elastic.spares=false", *settings)
    training.chaos("kill-node:node-2")
    training.event("waiting")
    training.go()
    assert training.workers() == [], "what the survivors held is free"
    return training


def test_below_min_workers_it_waits_and_goes_on_by_itself(tmp_path: Path, dataset: str, whole: Run) -> None:
    training = waiting(tmp_path, dataset, "cluster.back_after=15s")
    status = training.status()
    assert status["state"] == "waiting for machines"
    assert "1 worker fits, elastic.min_workers is 2" in status["detail"]
    event = training.is_done_like(whole)
    assert (event["cause"], event["workers_before"], event["workers"]) == ("infrastructure", 2, 2)
    assert event["steps_lost"] == 0
    assert event["seconds"]["waiting"] > 0


def test_a_run_that_waits_for_machines_can_be_stopped(tmp_path: Path, dataset: str) -> None:
    training = waiting(tmp_path, dataset)
    training.pliant("stop", "run")
    output = training.finish(75)
    assert "waiting for machines: 1 worker fits, elastic.min_workers is 2" in output
    assert "resume with: pliant resume" in output
    assert training.status()["state"] == "stopped (signal)"


# ---------------------------------------------------------------- notices


def test_where_a_save_does_not_fit_before_the_deadline_the_last_checkpoint_serves(
    tmp_path: Path, dataset: str, whole: Run
) -> None:
    training = Training(tmp_path, dataset, held=HELD + 1)
    training.chaos("drain:node-2", "--deadline", "5s")  # the step that they are at does not end before
    # They are asked to leave and do not come so far, or are not asked at all: the next group says that they are gone.
    training.wait_until(lambda: len(training.run.record.attempts()) == 3)
    training.go()
    event = training.is_done_like(whole)
    assert (event["cause"], event["steps_lost"], event["workers"]) == ("preemption", 1, 1)
    assert "goes away in" in event["text"]


def test_two_notices_in_a_row(tmp_path: Path, dataset: str, whole: Run) -> None:
    # What is left to do must not fit before the deadline, or they would stay.
    training = Training(tmp_path, dataset, "train.steps=1000000", f"schedule.total={STEPS}", nodes=3)
    for node in ("node-2", "node-3"):
        training.chaos(f"drain:{node}", "--deadline", "200s")
    training.event("preemption")
    training.go()
    event = training.event("recovered")
    assert (event["cause"], event["steps_lost"]) == ("preemption", 0)
    assert (event["workers_before"], event["workers"]) == (3, 1)
    training.wait_for_step_after(training.store, STEPS)
    training.pliant("stop", "run")
    training.finish(75)
    assert training.run.curve()[:STEPS] == whole.curve()
    assert training.run.rows()[:STEPS] == whole.rows()


def test_a_notice_while_the_group_is_starting(
    tmp_path: Path, dataset: str, whole: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLD_MODEL_UNTIL", str(tmp_path / "go"))
    training = Training(tmp_path, dataset, held=0, pipeline=FAILING)
    training.wait_until(lambda: training.store.head("run.json") is not None)
    training.wait_until(lambda: len(training.run.record.attempts()) == 2)
    training.chaos("drain:node-2", "--deadline", "200s")
    training.event("preemption")
    training.go()
    event = training.is_done_like(whole)
    assert (event["cause"], event["steps_lost"], event["workers"]) == ("preemption", 0, 1)
    assert "nothing is there to save" in event["text"]


# ---------------------------------------------------------------- many of them

KILLS = 5
INVENTORY = """
import json, ray, sys
from ray._private.authentication import authentication_token_setup as tokens
from ray._private.state import actors
from ray.util import placement_group_table
tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
ray.init(address=sys.argv[1], log_to_driver=False)
alive = [one["ActorClassName"] for one in actors().values() if one["State"] != "DEAD"]
groups = [one["state"] for one in placement_group_table().values() if one["state"] != "REMOVED"]
print(json.dumps([alive, groups]))
"""


def inventory(store: Store) -> tuple[Counter[str], list[str]]:
    """Classes of the living actors of a run's cluster, and states of its placement groups."""
    address = json.loads(store.get(attempt_key(1, CLUSTER)))["address"]
    done = subprocess.run([sys.executable, "-c", INVENTORY, address], capture_output=True, text=True, check=True)
    alive, groups = json.loads(done.stdout.splitlines()[-1])
    return Counter(alive), groups


def test_kill_after_kill_and_nothing_is_left_behind(
    tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = EVERY * KILLS + 10
    settings = ["schedule.kind=constant", f"train.steps={last}"]
    with tempfile.TemporaryDirectory(prefix="pt-", dir="/tmp") as scratch:  # Ray's sockets need short paths
        monkeypatch.setenv("TMPDIR", scratch)
        training = Training(tmp_path, dataset, *settings, held=5)
        seen: set[psutil.Process] = set()
        for count in range(1, KILLS + 1):  # each group waits after 5 steps, 3 of which are saved
            seen |= set(training.processes())
            # Not one that only stands by.
            max(training.workers(), key=lambda process: sum(process.cpu_times()[:2])).kill()
            event = training.event("recovered", count)
            assert (event["cause"], event["workers"], event["steps_lost"]) == ("infrastructure", 2, 2)
            training.wait_for_step(training.store, EVERY * count + 5)
            training.wait_for_checkpoint(training.store, EVERY * count + 3)
        alive, groups = inventory(training.store)
        assert groups == ["CREATED"]
        assert alive[CONTROLLER] == alive["Board"] == alive["SynchronizationActor"] == 1
        assert 2 <= alive[WORKER] <= 4, "two that train, two that may stand by"
        seen |= set(training.processes())
        training.go()
        training.finish()
        psutil.wait_procs(list(seen), timeout=30)
        assert [process for process in seen if process.is_running()] == []
        assert os.listdir(scratch) == []
    assert [entry["step"] for entry in training.run.log("metrics")] == list(range(1, last + 1))
    monkeypatch.delenv("TMPDIR")
    undisturbed = ["--in-process", f"data.path={dataset}", *with_own(*settings)]
    training.pliant("train", PIPELINE, "--name", "undisturbed", *undisturbed)
    reference = Run(store_of(str(tmp_path / "runs"), "undisturbed"), "undisturbed")
    assert training.run.curve() == reference.curve()
    assert training.run.rows() == reference.rows()
