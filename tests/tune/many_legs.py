"""Runs many trials in one process, one after the other, and prints a line about it after each.

python -m tests.tune.many_legs DATASET FOLDER COUNT
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import psutil
import torch
import torch.distributed as dist

from pliant.tune.trial import run_leg
from tests.tune.legs import leg


def main() -> None:
    dataset, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    process = psutil.Process()
    for number in range(count):
        reported: list[str] = []

        def ask(samples: int, values: Mapping[str, float], seconds: float, told: list[str] = reported) -> bool:
            told.append(f"{samples} {sorted(values.items())}")
            return True

        outcome = run_leg(leg(dataset, folder, trial=f"t{number:04d}"), ask, lambda notes: 0)
        assert outcome.how == "done", outcome
        print(
            json.dumps(
                {
                    "threads": threading.active_count(),
                    "files": process.num_fds(),
                    "bytes": process.memory_info().rss,
                    "random": [random.getstate()[1][:4], torch.get_rng_state()[:64].tolist(), torch.get_num_threads()],
                    "process_group": dist.is_initialized(),
                    "reported": reported[-1],
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
