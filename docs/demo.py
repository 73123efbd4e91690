"""What ``make demo`` shows: three nodes, of which one is drained and one killed, and the numbers of a quiet run.

It runs Pliant's own commands, and shows each; the runs stay in ``runs/``, to be looked at.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from pliant import Run
from pliant.errors import PliantError

SETTINGS = [
    *("train.epochs=null", "train.steps=500", "train.global_batch=48", "train.micro_batch=4", "data.lanes=12"),
    *("elastic.max_workers=3", "eval.every_steps=250", "checkpoint.every_steps=50", "train.audit=true"),
]
NODES = ["cluster.nodes=3", "cluster.back_after=10s", "elastic.resize_interval=10s"]
FAULTS = ["--at", "5s:drain:node-2", "--deadline", "20s", "--at", "45s:kill-node:node-3"]


def main() -> int:
    """The exit code: 0 when the disturbed run has the numbers of the other."""
    name = time.strftime("demo-%m%d-%H%M%S")
    calm, broken = f"{name}-calm", f"{name}-broken"
    _title("A run that nobody disturbs, in one process")
    _must("prepare", "digits")
    _must("train", "digits", "--name", calm, "--in-process", "--quiet", *SETTINGS)
    _title("The same on three nodes; one is drained, one killed, and both come back")
    training = _start("train", "digits", "--name", broken, *SETTINGS, *NODES)
    try:
        _wait_for_steps(broken, training)
        _must("chaos", broken, *FAULTS)
        if code := training.wait():
            return code
    finally:
        training.terminate()  # of no effect on one that has ended
        training.wait()
    _title("Its numbers, step by step, against those of the quiet run")
    differs = _start("metrics", broken, "--against", calm).wait()
    _title("What it has cost")
    _must("status", broken, "--time")
    _say(f"\nMore of it: pliant report {broken}")
    return differs


def _wait_for_steps(name: str, training: subprocess.Popen[bytes]) -> None:
    """Returns when the run trains, or has ended."""
    while training.poll() is None:
        try:
            if Run.open(f"runs/{name}").status()["step"] > 0:
                return
        except PliantError:
            pass  # it is still to come
        time.sleep(0.5)


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    _say(f"$ pliant {' '.join(arguments)}")
    return subprocess.Popen([sys.executable, "-m", "pliant", *arguments], cwd=Path(__file__).parents[1])


def _must(*arguments: str) -> None:
    if code := _start(*arguments).wait():
        raise SystemExit(code)


def _title(text: str) -> None:
    _say(f"\n{text}\n{'-' * len(text)}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
