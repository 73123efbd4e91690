"""What all benches share: figures, bars, the machine, and the last line of JSON."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]


@dataclass(frozen=True)
class Bar:
    """What a figure must reach: ``at_most`` or ``at_least``."""

    at_most: float | None = None
    at_least: float | None = None

    def holds(self, figure: float) -> bool:
        low = self.at_least is None or figure >= self.at_least
        return low and (self.at_most is None or figure <= self.at_most)

    def __str__(self) -> str:
        return f"≤ {self.at_most:g}" if self.at_most is not None else f"≥ {self.at_least:g}"


def end_tidily() -> None:
    """SIGTERM ends this process by SystemExit, so that what it has started ends with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def machine() -> str:
    """The machine in words."""
    model = "unknown CPU"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"


def report(name: str, figures: Mapping[str, float], bars: Mapping[str, Bar]) -> int:
    """Prints every figure with its bar, and last a line of JSON; returns the exit code."""
    missed = [key for key, bar in bars.items() if not bar.holds(figures[key])]
    for key, value in figures.items():
        bar = bars.get(key)
        verdict = f"  {bar}  {'missed' if key in missed else 'held'}" if bar else ""
        print(f"{key:<44} {value:>14,.4g}{verdict}")
    document = {
        "name": name,
        "machine": machine(),
        "figures": dict(figures),
        "bars": {key: str(bar) for key, bar in bars.items()},
        "passed": not missed,
    }
    print(json.dumps(document, ensure_ascii=False))
    return 1 if missed else 0
