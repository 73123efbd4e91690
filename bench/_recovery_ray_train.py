"""How plain Ray Train elastic comes back: notice, killed raylet, vanished host, growth.

    python bench/_recovery_ray_train.py --event notice|killed|vanished|growth --settings default|tuned

Three nodes of one CPU on this machine, or on three hosts as network namespaces for the one that vanishes; 2 to 3
workers. ``default``: Ray Train and Ray as they come, but for the failures that are borne: by default none is, and a
killed raylet would end the run. ``tuned``: workers are asked every 0.5 s instead of 2 s, drains are looked for every
second instead of every 5 s, a process group that is closed is waited for 2 s instead of 30 s, a group that cannot start
15 s instead of 60 s, a report 30 s for the other workers instead of for ever, and new capacity is looked for every
second instead of every minute. At the deadline of a notice the node is killed, as a machine is that goes away. Prints a
line of JSON.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

EVENTS = ("notice", "killed", "vanished", "growth")
EVENT_AT_STEP = 175  # steady by then, and 25 steps after a checkpoint
DEADLINE_S = 8.0
GIVE_UP_AFTER_S = 240.0
SETTINGS: dict[str, dict[str, str]] = {
    "default": {},
    "tuned": {
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "1",
        "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "2",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "15",
        "RAY_TRAIN_COLLECTIVE_TIMEOUT_S": "30",
    },
}
RESIZE_EVERY_S = {"default": None, "tuned": 1.0}


def measure(event: str, settings: str, folder: Path) -> str:
    """Runs the job until it has recovered; the recovery as a line of JSON."""
    from _netns import network
    from _ray_nodes import RayNodes
    from _recovery_marks import read_marks, recovery, step_reached

    shared = folder / "shared"
    shared.mkdir()
    with ExitStack() as stack:
        names = ("alpha", "beta", "gamma")
        hosts = stack.enter_context(network(names, folder, shared=shared)) if event == "vanished" else []
        nodes = stack.enter_context(RayNodes(folder, hosts=hosts, env={"OMP_NUM_THREADS": "1", **SETTINGS[settings]}))
        nodes.start(2 if event == "growth" else 3)
        seen_as = "/tmp/shared" if hosts else str(shared)
        command = [sys.executable, str(Path(__file__).resolve()), "--driver", nodes.address, "--folder", seen_as]
        with open(folder / "driver.log", "wb") as log:
            driver = nodes.popen([*command, "--settings", settings], stdout=log, stderr=log)
        stack.callback(driver.wait)
        stack.callback(driver.kill)

        def wait(done: Any, then: Any = lambda: None) -> Any:
            deadline = time.monotonic() + GIVE_UP_AFTER_S
            while not (found := done(read_marks(shared / "marks"))):
                if time.monotonic() > deadline or driver.poll() is not None:
                    raise SystemExit(f"{event}: it does not go on\n{(folder / 'driver.log').read_text()[-4000:]}")
                then()
                time.sleep(0.1)
            return found

        wait(lambda marks: step_reached(marks) >= EVENT_AT_STEP)
        at = time.time()
        if event == "growth":
            at = nodes.begin(2)
        elif event == "notice":
            at = nodes.drain(2, DEADLINE_S)
        elif event == "killed":
            at = nodes.kill(2)
        else:
            hosts[2].cut()

        def machine_goes() -> None:
            if event == "notice" and time.time() > at + DEADLINE_S:
                nodes.kill(2)

        found = wait(lambda marks: recovery(marks, at, workers=3 if event == "growth" else 2), machine_goes)
        return str(found.to_json())


def drive(address: str, folder: Path, settings: str, min_workers: int) -> None:
    """The driver: a TorchTrainer that trains until it is killed."""
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    ray.init(address=address)
    every_s = RESIZE_EVERY_S[settings]
    TorchTrainer(
        _train_function,
        train_loop_config={"folder": str(folder)},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(
            num_workers=(min_workers, 3),
            resources_per_worker={"CPU": 1},
            **({} if every_s is None else {"elastic_resize_monitor_interval_s": every_s}),
        ),
        run_config=RunConfig(name="bench", storage_path=str(folder), failure_config=FailureConfig(max_failures=-1)),
    ).fit()


def _train_function(config: dict[str, Any]) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    import ray.train
    import torch
    from _recovery_job import STATE, train
    from _recovery_marks import Marks

    imported_at = time.time()

    def save(state: dict[str, Any] | None) -> None:
        with tempfile.TemporaryDirectory() as place:
            checkpoint = None
            if state is not None:
                torch.save(state, os.path.join(place, STATE))
                checkpoint = ray.train.Checkpoint.from_directory(place)
            ray.train.report({}, checkpoint=checkpoint)

    marks = Marks(Path(config["folder"]) / "marks")
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        train(marks, None, save, imported_at=imported_at)
        return
    with checkpoint.as_directory() as place:
        train(marks, Path(place) / STATE, save, imported_at=imported_at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--event", choices=EVENTS)
    parser.add_argument("--settings", choices=sorted(SETTINGS), default="default")
    parser.add_argument("--driver", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--min-workers", type=int, default=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.driver:
        drive(arguments.driver, arguments.folder, arguments.settings, arguments.min_workers)
        return
    from _common import end_tidily

    end_tidily()
    # A short path: those of Ray's sockets must be.
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        print(measure(arguments.event, arguments.settings, Path(folder)))


if __name__ == "__main__":
    main()
