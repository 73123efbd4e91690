"""How Pliant comes back: notice, killed raylet, vanished host, growth.

    python bench/_recovery_pliant.py --event notice|killed|vanished|growth

The peers' nodes, network, rows a step and checkpoint interval, with what Pliant adds as it is by default: exact sums,
digests, a durable record. Ray's daemons have the health checks of Pliant's own local clusters. Prints a line of JSON:
the recovery as it is taken of the peers, and ``parts``, what the run itself recorded of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from _common import ROOT, end_tidily
from _netns import network
from _ray_nodes import RayNodes
from _recovery_job import GLOBAL_BATCH, SAVE_EVERY
from _recovery_marks import recovery, step_reached
from _recovery_ray_train import DEADLINE_S, EVENT_AT_STEP, EVENTS

from pliant.cluster.local import RAYLET_SETTINGS

PIPELINE = str(ROOT / "bench" / "_recovery_pipeline.py")
GIVE_UP_AFTER_S = 240.0
LANES = 6
JOB = {
    "train.global_batch": GLOBAL_BATCH,
    "data.lanes": LANES,
    "train.micro_batch": GLOBAL_BATCH // LANES,
    "checkpoint.every_steps": SAVE_EVERY,
    "schedule.kind": "constant",
    "elastic.min_workers": 2,
    "elastic.max_workers": 3,
    "data.reader": "local",
    "tracking.kind": "none",
    "run.store.segment_every": 0.2,
}
T = TypeVar("T")


class Training:
    """A ``pliant train``, and what its record says so far.

    Args:
        folder: of the run's storage, as seen from here; the dataset is made in it.
        settings: of the run, over those of JOB.
        popen: starts the command where it is to run.
        seen_as: the folder as seen from there.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], *, popen: Callable[..., Any], seen_as: str = ""
    ) -> None:
        self._run, self._log = folder / "runs" / "bench", folder / "driver.log"
        seen_as = seen_as or str(folder)
        given = {"run.storage": f"{seen_as}/runs", **JOB, **settings}
        pliant, options = [sys.executable, "-m", "pliant"], [f"{key}={value}" for key, value in given.items()]
        prepare = [*pliant, "prepare", PIPELINE, f"data.path={folder}/data", *options]
        subprocess.run(prepare, check=True, capture_output=True, cwd=folder)
        command = [*pliant, "train", PIPELINE, "--name", "bench", f"data.path={seen_as}/data", *options]
        with self._log.open("wb") as log:
            self.driver = popen(command, stdout=log, stderr=log)

    def steps(self) -> list[dict[str, Any]]:
        """All steps that were recorded, those that were done again more than once, in the order of their times."""
        found = []
        for file in sorted((self._run / "logs" / "metrics").glob("a*.jsonl")):
            entries = [json.loads(line) for line in file.read_text().split("\n")[:-1]]
            attempt = file.name.partition("-")[0]
            found += [
                {"kind": "step", "at": e["time"], "step": e["step"], "world": e["world_size"], "group": attempt}
                for e in entries
            ]
        return sorted(found, key=lambda mark: mark["at"])

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What happened to the run, of this kind."""
        lines: list[str] = []
        for file in sorted((self._run / "logs" / "events").glob("a*.jsonl")):
            lines += file.read_text().split("\n")[:-1]
        return [entry for line in lines if (entry := json.loads(line))["kind"] == kind]

    def wait(self, done: Callable[[], T | None], *, within_s: float = GIVE_UP_AFTER_S) -> T:
        """Waits until there is a result; SystemExit with the driver's words when there is none in time."""
        deadline = time.monotonic() + within_s
        while not (found := done()):
            if time.monotonic() > deadline or self.driver.poll() is not None:
                raise SystemExit(f"the run does not go on\n{self._log.read_text()[-4000:]}")
            time.sleep(0.1)
        return found

    def kill(self) -> None:
        """Ends the driver."""
        self.driver.kill()
        self.driver.wait()


def measure(event: str, folder: Path) -> str:
    """Runs the job until it has recovered; the recovery as a line of JSON."""
    shared = folder / "shared"
    shared.mkdir()
    with ExitStack() as stack:
        names = ("alpha", "beta", "gamma")
        hosts = stack.enter_context(network(names, folder, shared=shared)) if event == "vanished" else []
        nodes = RayNodes(folder, hosts=hosts, config=RAYLET_SETTINGS, env={"OMP_NUM_THREADS": "1"})
        stack.enter_context(nodes).start(2 if event == "growth" else 3)
        settings = {"cluster.address": nodes.address, "train.steps": 100_000}
        training = Training(shared, settings, popen=nodes.popen, seen_as="/tmp/shared" if hosts else "")
        stack.callback(training.kill)
        training.wait(lambda: step_reached(training.steps()) >= EVENT_AT_STEP)
        at = time.time()
        if event == "growth":
            at = nodes.begin(2)
        elif event == "notice":
            at = nodes.drain(2, DEADLINE_S)
        elif event == "killed":
            at = nodes.kill(2)
        else:
            hosts[2].cut()
        workers = 3 if event == "growth" else 2
        found = training.wait(lambda: recovery(training.steps(), at, workers=workers))
        (recovered,) = training.wait(lambda: training.events("recovered"), within_s=30)
        return json.dumps({**json.loads(found.to_json()), "parts": recovered["seconds"]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--event", choices=EVENTS, required=True)
    arguments = parser.parse_args()
    end_tidily()
    # A short path: those of Ray's sockets must be.
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        print(measure(arguments.event, Path(folder)))


if __name__ == "__main__":
    main()
