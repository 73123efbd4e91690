"""A job of five minutes on machines that come and go, against the same job left alone and against plain Ray Train.

    python bench/chaos.py [--steps 4200] [--every 60] [--seed 1] [--without-peer]

Three nodes with a worker each. A seeded trace takes one of the two that are not the head, every 60 s on average: by a
kill, or by a drain with 15 s of notice. A machine is back 15 s after it has gone. Compared are the seconds from the
command to its end, every loss and parameter digest bit by bit, the rows of every epoch, and what MLflow has. Plain Ray
Train, with its default settings, gets the same trace and exactly as long as Pliant took; how far it came stands beside.
About 20 minutes.
"""

from __future__ import annotations

import argparse
import heapq
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _common import ROOT, Bar, end_tidily, report
from _ray_nodes import RayNodes
from _recovery_marks import read_marks, step_reached
from _recovery_pliant import Training
from _same import BARS, differences, not_once

from pliant.api import Run
from pliant.cluster.local import RAYLET_SETTINGS
from pliant.cluster.trace import random_trace

NODES = 3
NOTICE_S, BACK_AFTER_S = 15.0, 15.0
GIVE_UP_AFTER_S = 1800.0
PEER = str(ROOT / "bench" / "_recovery_ray_train.py")


class Weather:
    """Does to the nodes what the trace says, from now on; ``pass_by`` is called often.

    Attributes:
        done: what was done so far.
    """

    def __init__(self, nodes: RayNodes, *, every_s: float, seed: int) -> None:
        self._nodes, self._begun = nodes, time.monotonic()
        self._trace = random_trace(("kill-node", "drain"), every_s=every_s, seed=seed)
        self._next = next(self._trace)
        self._here = list(range(1, NODES))
        self._due: list[tuple[float, int, Callable[[int], None]]] = []
        self.done: list[str] = []

    def pass_by(self) -> None:
        """Carries out what is due."""
        now = time.monotonic() - self._begun
        while self._due and self._due[0][0] <= now:
            _, index, deed = heapq.heappop(self._due)
            deed(index)
        if now < self._next.at_s:
            return
        if self._here:  # else there is nothing left to take
            index = self._here.pop(int(self._next.pick * len(self._here)))
            self.done.append(f"{now:.0f} s: {self._next.fault} node-{index}")
            print(self.done[-1], flush=True)
            if self._next.fault == "drain":
                self._nodes.drain(index, NOTICE_S)
                heapq.heappush(self._due, (now + NOTICE_S, index, self._gone))
            else:
                self._gone(index)
        self._next = next(self._trace)

    def _gone(self, index: int) -> None:
        self._nodes.remove(index)
        heapq.heappush(self._due, (time.monotonic() - self._begun + BACK_AFTER_S, index, self._back))

    def _back(self, index: int) -> None:
        self._nodes.begin(index)
        self._here = sorted([*self._here, index])


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument(
        "--steps", type=int, default=4200, help="a multiple of those of an epoch counts whole epochs"
    )
    arguments.add_argument("--every", type=float, default=60.0, help="mean seconds between two events")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--without-peer", action="store_true", help="Pliant alone")
    options = arguments.parse_args()
    end_tidily()
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        calm, calm_s, _ = _pliant(Path(folder) / "a", options.steps)
        print(f"undisturbed: {calm_s:.0f} s", flush=True)
        stormy, storm_s, events = _pliant(Path(folder) / "b", options.steps, every_s=options.every, seed=options.seed)
        print(f"under the trace: {storm_s:.0f} s", flush=True)
        figures = {
            "undisturbed, s": calm_s,
            "under the trace, s": storm_s,
            "events": events,
            "undisturbed ÷ under the trace": calm_s / storm_s,
            "goodput under the trace": stormy.time_spent()["goodput"],
            "steps done again": sum(e["steps_lost"] for e in stormy.events() if e["kind"] == "recovered"),
            **differences(calm, stormy, options.steps),
            **_mlflow(Path(folder) / "b", options.steps),
        }
        if not options.without_peer:
            reached = _peer(Path(folder) / "c", storm_s, every_s=options.every, seed=options.seed)
            figures["plain Ray Train in that time, steps"] = reached
            figures["Pliant in that time, steps"] = options.steps
    bars = {
        "undisturbed, s": Bar(at_least=300),
        "undisturbed ÷ under the trace": Bar(at_least=0.7),
        "goodput under the trace": Bar(at_least=0.7),
        "MLflow: steps not exactly once": Bar(at_most=0),
        "MLflow: runs": Bar(at_most=1),
        **BARS,
    }
    return report("chaos", figures, bars)


def _pliant(folder: Path, steps: int, *, every_s: float | None = None, seed: int = 0) -> tuple[Run, float, int]:
    """A whole run of Pliant; its record, the seconds that it took, and the number of events."""
    folder.mkdir()
    with RayNodes(folder, config=RAYLET_SETTINGS, env={"OMP_NUM_THREADS": "1"}) as nodes:
        nodes.start(NODES)
        settings = {
            "cluster.address": nodes.address,
            "train.steps": steps,
            "train.audit": "true",
            "elastic.min_workers": 1,
            "checkpoint.every_steps": "null",
            "tracking.kind": "mlflow",
            "tracking.uri": f"sqlite:///{folder}/mlflow.db",
        }
        training = Training(folder, settings, popen=nodes.popen)
        began = time.monotonic()
        weather = None if every_s is None else Weather(nodes, every_s=every_s, seed=seed)
        try:
            while training.driver.poll() is None and time.monotonic() < began + GIVE_UP_AFTER_S:
                if weather is not None:
                    weather.pass_by()
                time.sleep(0.05)
        finally:
            training.kill()
        seconds = time.monotonic() - began
    if training.driver.returncode:
        raise SystemExit(f"exit {training.driver.returncode}\n{(folder / 'driver.log').read_text()[-4000:]}")
    return Run.open(str(folder / "runs" / "bench")), seconds, len(weather.done) if weather else 0


def _mlflow(folder: Path, steps: int) -> dict[str, float]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    recorded = [metric.step for metric in client.get_metric_history(runs[0].info.run_id, "loss")]
    return {"MLflow: runs": len(runs), "MLflow: steps not exactly once": not_once(recorded, steps)}


def _peer(folder: Path, seconds: float, *, every_s: float, seed: int) -> int:
    """Plain Ray Train under the same trace for so long; the step that it has reached."""
    folder.mkdir()
    with RayNodes(folder, env={"OMP_NUM_THREADS": "1"}) as nodes:
        nodes.start(NODES)
        command = [sys.executable, PEER, "--driver", nodes.address, "--folder", str(folder), "--min-workers", "1"]
        until = time.monotonic() + seconds
        with open(folder / "driver.log", "wb") as log:
            driver = nodes.popen(command, stdout=log, stderr=subprocess.STDOUT)
        weather = Weather(nodes, every_s=every_s, seed=seed)
        try:
            while time.monotonic() < until:
                weather.pass_by()
                time.sleep(0.05)
        finally:
            driver.kill()
            driver.wait()
        return step_reached(read_marks(folder / "marks"))


if __name__ == "__main__":
    sys.exit(main())
