"""How long training stands still when machines come and go: Pliant, plain Ray Train elastic and torchrun elastic.

    python bench/recovery.py [--events notice killed …] [--sides default tuned torchrun pliant] [--rounds 1]

The same small network on three workers, 50 to 100 ms a step, a checkpoint every 50 steps, and one event at step 175:

    notice     a node will go away in 8 s (torchrun: SIGTERM to its agent)
    killed     kill -9 of a node's raylet (torchrun: of an agent and its worker)
    vanished   a host's link is cut and nothing is ever said of it: hosts as network namespaces, needs root
    growth     a third node joins two

Seconds run from the event, for growth the start of ``ray start`` or of the agent, to the end of the new group's first
step that had not been completed before. ``default`` and ``tuned`` are Ray Train as it comes and with better settings;
what each side does and with which settings stands in its own script, ``bench/_recovery_*.py``. About 15 minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from _common import Bar, report

FOLDER = Path(__file__).resolve().parent
EVENTS = ("notice", "killed", "vanished", "growth")
SIDES = {
    "default": ["_recovery_ray_train.py", "--settings", "default"],
    "tuned": ["_recovery_ray_train.py", "--settings", "tuned"],
    "torchrun": ["_recovery_torchrun.py"],
    "pliant": ["_recovery_pliant.py"],
}
NOT_RUN = {("torchrun", "vanished")}
"""Its agents share this machine's network."""
RATIOS = {
    ("notice", "default"): 0.12,
    ("notice", "tuned"): 1.0,
    ("killed", "default"): 0.15,
    ("killed", "torchrun"): 1.2,
    ("vanished", "default"): 0.3,
    ("growth", "torchrun"): 1.2,
}
"""Pliant's seconds against a peer's."""
REPLAYED = {"notice": 1, "killed": 50, "vanished": 50, "growth": 0}
OWN_S = 3.0
"""Most that Pliant's recovery may take besides the start of processes and their imports."""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--events", nargs="+", choices=EVENTS, default=list(EVENTS))
    arguments.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    arguments.add_argument("--rounds", type=int, default=1)
    options = arguments.parse_args()
    found: dict[tuple[str, str], list[dict[str, Any] | None]] = {}
    for _ in range(options.rounds):
        for event in options.events:
            for side in options.sides:
                if (side, event) not in NOT_RUN:
                    found.setdefault((event, side), []).append(_run(event, side))
    figures: dict[str, float] = {}
    bars: dict[str, Bar] = {}
    for (event, side), runs in found.items():
        rounds = [run for run in runs if run is not None]
        if len(rounds) < len(runs):
            failed = f"{event}, {side}, runs that did not recover"
            figures[failed] = len(runs) - len(rounds)
            bars[failed] = Bar(at_most=0)
        if not rounds:
            continue
        seconds = statistics.median(run["seconds"] for run in rounds)
        figures[f"{event}, {side}, s"] = seconds
        figures[f"{event}, {side}, steps replayed"] = max(run["steps_replayed"] for run in rounds)
        if side == "pliant":
            bars[f"{event}, {side}, steps replayed"] = Bar(at_most=REPLAYED[event])
            own = f"{event}, {side}, s without process start"
            figures[own] = statistics.median(run["parts"]["total"] - run["parts"].get("start", 0.0) for run in rounds)
            bars[own] = Bar(at_most=OWN_S)
            figures[f"{event}, {side}, s of steps done again"] = statistics.median(
                run["parts"]["replay"] for run in rounds
            )
    for (event, peer), bar in RATIOS.items():
        mine, theirs = figures.get(f"{event}, pliant, s"), figures.get(f"{event}, {peer}, s")
        if mine and theirs:
            ratio = f"{event}, pliant ÷ {peer}"
            figures[ratio] = mine / theirs
            bars[ratio] = Bar(at_most=bar)
    return report("recovery", figures, bars)


def _run(event: str, side: str) -> dict[str, Any] | None:
    """One side and one event, in a process of its own; prints where the seconds went. None: it did not recover."""
    script, *options = SIDES[side]
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), "--event", event, *options], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{event}, {side}: exit {done.returncode}\n{done.stdout}{done.stderr}", flush=True)
        return None
    last = done.stdout.strip().splitlines()[-1]
    print(f"{event}, {side}: {last}", flush=True)
    return dict(json.loads(last))


if __name__ == "__main__":
    sys.exit(main())
