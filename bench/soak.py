"""Many losses in a row, then ten minutes of weather: the numbers stay, nothing grows, and nothing is left behind.

    python bench/soak.py [--kills 20] [--minutes 10] [--every 20] [--seed 1]

A job on three nodes of this machine, started by Pliant itself, 60 ms a step, a checkpoint every 5 steps. First a worker
is killed 10 steps after each recovery, then ``pliant chaos`` kills workers and nodes and drains nodes, every 20 s on
average; a node is back 5 s after it has gone. Then the run is stopped, and a run of as many steps that nobody disturbs
is what it is compared with. Memory (resident) and open files are those of the processes that live through all of it:
medians of the last minute of the weather against those of its first. About 15 minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from _common import Bar, end_tidily, report
from _recovery_marks import step_reached
from _recovery_pliant import JOB, PIPELINE, Training
from _same import BARS, STEPS_DIFFER, differences

from pliant.api import Run

STEPS_BETWEEN = 10
SETTINGS = {
    **JOB,
    "train.audit": "true",
    "checkpoint.every_steps": 5,
    "elastic.min_workers": 1,
    "elastic.settle": "1s",
    "elastic.resize_interval": "5s",
}
DRIVER = "driver"
LASTING = {"ElasticController": "controller", "Board": "board", "gcs_server": "Ray's head"}
"""Processes that live as long as the driver, by a part of their command line."""
GROWTH = 1.1
"""Most that memory may grow by, as a ratio."""
Sample = dict[str, tuple[int, int]]
"""Resident bytes and open files by process."""


class Watch:
    """Looks at the processes of a run.

    Attributes:
        seen: all that it has had.
        samples: of those that last, with the times at which they were taken (monotonic).
    """

    def __init__(self, driver: int) -> None:
        self._driver = psutil.Process(driver)
        self.seen: set[psutil.Process] = set()
        self.samples: list[tuple[float, Sample]] = []

    def look(self) -> None:
        """Takes a sample."""
        sample: Sample = {}
        processes = [self._driver]
        with suppress(psutil.NoSuchProcess):
            processes += self._driver.children(recursive=True)
        self.seen |= set(processes)
        for process in processes:
            with suppress(psutil.Error):
                title = " ".join(process.cmdline())
                name = next((name for part, name in LASTING.items() if part in title), None)
                name = DRIVER if process == self._driver else name
                if name is not None:
                    sample[name] = process.memory_info().rss, process.num_fds()
        self.samples.append((time.monotonic(), sample))

    def growth(self, began: float, ended: float) -> dict[str, float]:
        """MiB and open files in the last of the minutes between two times, and as ratios to the first of them."""
        figures: dict[str, float] = {}
        found: dict[str, list[list[tuple[int, int]]]] = defaultdict(lambda: [[], []])
        minute_s = min(60.0, (ended - began) / 2)
        for at, sample in self.samples:
            for place, within in enumerate((began <= at <= began + minute_s, ended - minute_s <= at <= ended)):
                for name, values in sample.items() if within else ():
                    found[name][place].append(values)
        for name, (first, last) in sorted(found.items()):
            for kind, what, unit in ((0, "memory", 2**20), (1, "open files", 1)):
                before, after = (statistics.median(values[kind] for values in part) for part in (first, last))
                figures[f"{name}, {what}"] = after / unit
                figures[f"{name}, {what}, ÷ first minute"] = after / before
        return figures


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kills", type=int, default=20)
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--every", type=float, default=20.0, help="mean seconds between two faults of the weather")
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    end_tidily()
    # Short paths: those of Ray's sockets must be. One folder for the record, one for all that is temporary.
    with tempfile.TemporaryDirectory(prefix="bench-") as kept, tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder, shared_memory = Path(kept), set(os.listdir("/dev/shm"))
        # torch makes a folder in TMPDIR that is one for all of a user's processes, and empty.
        own = {"TMPDIR": scratch, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        environment = {**os.environ, **own}

        def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, env=environment, cwd=folder, **options)

        def pliant(*arguments: str, stdout: Any = None) -> subprocess.Popen[bytes]:
            return popen([sys.executable, "-m", "pliant", *arguments, f"run.storage={folder}/runs"], stdout=stdout)

        machines = {"cluster.nodes": 3, "cluster.back_after": "5s", "train.steps": 1_000_000}
        training = Training(folder, {**SETTINGS, **machines}, popen=popen)
        watch = Watch(training.driver.pid)
        try:
            training.wait(lambda: step_reached(training.steps()) >= STEPS_BETWEEN)
            for count in range(1, options.kills + 1):
                _ended_well(pliant("chaos", "bench", "--once", "kill", "--seed", str(count)))
                watch.look()
                training.wait(lambda: len(training.events("recovered")) >= count)  # noqa: B023
                reached = step_reached(training.steps())
                training.wait(lambda: step_reached(training.steps()) >= reached + STEPS_BETWEEN)  # noqa: B023
            killed, began = len(training.events("recovered")), time.monotonic()
            print(f"{options.kills} kills, {killed} recoveries, step {step_reached(training.steps())}", flush=True)
            trace = ["--every", f"{options.every}s", "--seed", str(options.seed), "--duration", f"{options.minutes}min"]
            weather = pliant("chaos", "bench", *trace)
            while weather.poll() is None:
                watch.look()
                time.sleep(1)
            ended = time.monotonic()
            _ended_well(weather)
            _ended_well(pliant("stop", "bench"))
            training.driver.wait(120)
        finally:
            training.kill()
            psutil.wait_procs(list(watch.seen), timeout=30)
        left = [process for process in watch.seen if process.is_running()]
        print(*left, *os.listdir(scratch), *set(os.listdir("/dev/shm")) - shared_memory, sep="\n")
        figures = {
            "exit code": training.driver.returncode,
            "recoveries": len(training.events("recovered")),
            **watch.growth(began, ended),
            "processes left": len(left),
            "temporary files left": len(os.listdir(scratch)),
            "shared memory left": len(set(os.listdir("/dev/shm")) - shared_memory),
            **_numbers(folder, environment),
        }
    bars = {
        "exit code": Bar(at_least=75, at_most=75),
        **{name: Bar(at_most=GROWTH) for name in figures if name.endswith("÷ first minute")},
        **{name: Bar(at_most=0) for name in figures if name.endswith(" left")},
        **BARS,
    }
    return report("soak", figures, bars)


def _ended_well(command: subprocess.Popen[bytes]) -> None:
    if code := command.wait():
        raise SystemExit(f"{command.args}: exit {code}")


def _numbers(folder: Path, environment: dict[str, str]) -> dict[str, float]:
    """Counts what differs from a run of as many steps in one process, in which no row takes its time."""
    broken = Run.open(str(folder / "runs" / "bench"))
    steps = int(broken.status()["step"])
    given = {**SETTINGS, "train.steps": steps, "checkpoint.every_steps": 1000, "data.path": folder / "data"}
    command = [sys.executable, "-m", "pliant", "train", PIPELINE, "--name", "calm", "--in-process"]
    command += [f"{key}={value}" for key, value in {**given, "run.storage": folder / "runs"}.items()]
    environment = {**environment, "BENCH_ROW_S": "0"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n")
        return {STEPS_DIFFER: steps}
    return {"steps": steps, **differences(Run.open(str(folder / "runs" / "calm")), broken, steps)}


if __name__ == "__main__":
    sys.exit(main())
