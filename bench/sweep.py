"""What a trial of a sweep costs: Pliant, plain Ray Tune, and Ray Train inside of Ray Tune.

    python bench/sweep.py [--parts trials no-trials simulated log] [--sides plain pliant nested] [--rounds 3]

trials      8 trials of the digit classifier, two at a time, 281 steps of 64 images, five reports with an evaluation and
            a checkpoint each. Pliant's trials are whole runs, with their records and logs; on the other side the loop
            is bare, in a function as the documentation of Ray Tune shows it (``plain``), or in a Train run inside of
            each trial as that of Ray Train does (``nested``). Seconds run from the first trial's start to the last
            one's end, so without the start of the cluster; the sides run in turns, and of the rounds' ratios the median
            counts
no-trials   500 trials that report at once, two at a time: all that the driver and Ray Tune do for one
simulated   trials on the virtual clock
log         a report and its decision, until they are durable: on a local path, and on an S3 server on this machine
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from _common import ROOT, Bar, report

PARTS = ("trials", "no-trials", "simulated", "log")
SIDES = ("plain", "pliant", "nested")
SPACE = """
sweep: {trials: 8, slots: 2, scheduler: {kind: none, every_epochs: 2.4}}
settings:
  train.micro_batch: 64
  train.reduction: fast
  data.lanes: 1
  data.reader: local
  eval.every_steps: null
  eval.micro_batch: 64
  checkpoint.every_steps: null
  elastic.max_workers: 1
  tracking.kind: none
space:
  optim.lr: {log: [1e-3, 1e-2]}
"""
BARS = {
    "a trial, × plain": Bar(at_most=1.1),
    "a trial, × nested": Bar(at_most=0.15),
    "a trial that does nothing, s": Bar(at_most=0.15),
    "simulated trials per second": Bar(at_least=200),
    "a decision, local path, s": Bar(at_most=0.002),
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    arguments.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--no-trials", type=int, default=500, help="how many")
    options = arguments.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        Path(folder, "pipelines").symlink_to(ROOT / "pipelines")
        Path(folder, "space.yaml").write_text(SPACE)
        os.chdir(folder)
        if {"trials", "no-trials"} & set(options.parts):
            run("-m", "pliant", "prepare", "digits", "data.path=data")
        if "trials" in options.parts:
            figures |= trials(options.sides, options.rounds)
        if "no-trials" in options.parts:
            from _sweep_parts import seconds_of_no_trials

            figures["a trial that does nothing, s"] = seconds_of_no_trials(
                folder, f"{folder}/data", options.no_trials, slots=2
            )
        if "simulated" in options.parts:
            from _sweep_parts import simulated_trials_per_second

            figures["simulated trials per second"] = simulated_trials_per_second(5000)
        if "log" in options.parts:
            figures |= log(folder)
    return report("sweep", figures, {name: bar for name, bar in BARS.items() if name in figures})


def trials(sides: Sequence[str], rounds: int) -> dict[str, float]:
    """Seconds a trial of each side, and Pliant's against the others'."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds):
        for side, found in seconds.items():
            found.append(pliant(f"sweep-{number}") if side == "pliant" else tune(side))
            print(f"round {number + 1}: {side}, 8 trials in {found[-1]:.1f} s", flush=True)
    figures = {f"a trial, {side}, s": statistics.median(found) / 8 for side, found in seconds.items()}
    for side in {"plain", "nested"} & set(sides):
        ratios = [ours / theirs for ours, theirs in zip(seconds.get("pliant", []), seconds[side], strict=False)]
        if ratios:
            figures[f"a trial, × {side}"] = statistics.median(ratios)
    return figures


def pliant(name: str) -> float:
    """Seconds from the claim of the first trial's run to the last trial's end."""
    from pliant.storage.record import RunRecord
    from pliant.storage.settings import StorageSettings
    from pliant.storage.store import Store
    from pliant.tune.decisions import read_decisions
    from pliant.tune.types import End, Report

    run(
        "-m", "pliant", "sweep", "digits", "--space", "space.yaml", "--name", name, "data.path=data", "run.storage=runs"
    )
    store = Store(f"{os.getcwd()}/runs/{name}", StorageSettings())
    logged = list(read_decisions(RunRecord.open(store)))
    ends = [one.time for one in logged if isinstance(one.entry, End) and one.entry.how == "completed"]
    reports = sum(isinstance(one.entry, Report) for one in logged)
    if (len(ends), reports) != (8, 40):
        raise SystemExit(f"{len(ends)} trials of 8, {reports} reports of 40")
    first = RunRecord.open(store.child("trials/t0000")).attempts()[0]
    return max(ends) - float(first.claim.info["time"])


def tune(kind: str) -> float:
    """The same of Ray Tune."""
    script = str(ROOT / "bench" / "_sweep_tune.py")
    printed = run(script, "--kind", kind, "--data", f"{os.getcwd()}/data")
    return float(json.loads(printed.splitlines()[-1])["seconds"])


def log(folder: str) -> dict[str, float]:
    """Seconds of a decision, in each kind of storage."""
    from _sweep_parts import seconds_of_a_decision

    from tests.s3 import S3Server

    figures = {"a decision, local path, s": seconds_of_a_decision(f"{folder}/log", 500)}
    with S3Server() as server:
        os.environ.update(server.env)
        figures["a decision, S3 here, s"] = seconds_of_a_decision(server.uri("log"), 200)
    return figures


def run(*arguments: str) -> str:
    """Runs Python; what it prints."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "RAY_TRAIN_V2_ENABLED": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
