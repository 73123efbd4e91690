"""Pliant's step against a plain FSDP2 loop with its rows in memory: the same model, batch and optimizer.

    python bench/step.py [--rounds 3] [--steps 40]

Both sides run in turns, so that a machine whose speed drifts slows both. The plain loop gets the micro-batch at which
it is fastest; Pliant runs as users run it: Ray Train, Ray Data, metrics, checkpoints. What is compared is the time from
one step's end to the next one's, the median of a run, and of the rounds' ratios again the median. It is that of a run
under way: both sides take the same steps before that, during which Pliant's processes that stand by import what they
need, its tracker MLflow, and Ray settles, on cores that the workers need.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from _common import ROOT, Bar, report
from _plain_fsdp2 import best_micro_batch, measure

GLOBAL_BATCH = 16
WARMUP = 45
"""Steps before the timed ones: 20 s where a step takes half a second; what a start entails lasts for about 12 s."""
BARS = {"fast": 1.05, "exact": 1.2}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--steps", type=int, default=40)
    options = arguments.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        _pliant("prepare", "stdlib_lm", f"data.path={folder}/data", cwd=folder)
        for workers in (1, 2):
            micro_batch = best_micro_batch(workers, global_batch=GLOBAL_BATCH)
            figures[f"plain, {workers} workers, micro-batch"] = micro_batch
            seconds: dict[str, list[float]] = {"plain": [], "fast": [], "exact": []}
            for number in range(options.rounds):
                seconds["plain"].append(
                    statistics.median(
                        measure(
                            workers,
                            global_batch=GLOBAL_BATCH,
                            micro_batch=micro_batch,
                            steps=options.steps,
                            warmup=WARMUP,
                        )
                    )
                )
                for reduction in BARS:
                    name = f"{reduction}-{workers}-{number}"
                    seconds[reduction].append(_run(folder, name, workers, micro_batch, reduction, options.steps))
            figures[f"plain, {workers} workers, s/step"] = statistics.median(seconds["plain"])
            for reduction in BARS:
                ratios = [ours / plain for ours, plain in zip(seconds[reduction], seconds["plain"], strict=True)]
                figures[f"{reduction}, {workers} workers, × plain"] = statistics.median(ratios)
    bars = {f"{r}, {w} workers, × plain": Bar(at_most=bar) for w in (1, 2) for r, bar in BARS.items()}
    return report("step", figures, bars)


def _run(folder: str, name: str, workers: int, micro_batch: int, reduction: str, steps: int) -> float:
    """One run of Pliant; its median seconds from step to step."""
    from pliant.storage.logs import read_log
    from pliant.storage.record import RunRecord
    from pliant.storage.settings import StorageSettings
    from pliant.storage.store import Store

    _pliant(
        "train", "stdlib_lm", "--name", name, f"data.path={folder}/data", f"run.storage={folder}/runs",
        f"train.steps={steps + WARMUP}", f"train.global_batch={GLOBAL_BATCH}", f"train.micro_batch={micro_batch}",
        f"data.lanes={workers}",
        f"train.reduction={reduction}", "eval.at_end=false", "schedule.warmup=0",
        f"elastic.min_workers={workers}", f"elastic.max_workers={workers}", cwd=folder,
    )  # fmt: skip
    record = RunRecord.open(Store(f"{folder}/runs/{name}", StorageSettings()))
    times = [entry["time"] for entry in read_log(record.store, record.view(), "metrics")]
    return statistics.median(later - earlier for earlier, later in pairwise(times[WARMUP:]))


def _pliant(*arguments: str, cwd: str) -> None:
    link = Path(cwd) / "pipelines"
    if not link.exists():
        link.symlink_to(ROOT / "pipelines")
    done = subprocess.run(
        [sys.executable, "-m", "pliant", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"pliant {' '.join(arguments)} failed:\n{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
