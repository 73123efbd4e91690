"""Recorded sweeps for their reports, larger than those of the commands' tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pliant.tune.draws import unit
from pliant.tune.simulate import Fault
from pliant.tune.sweep import Leg
from pliant.tune.types import End, Entry, Loss, Suggestion
from tests.tune.recording import RecordedSweep, story

ASHA: Mapping[str, Any] = {
    "trials": 40,
    "slots": 3,
    "scheduler": {"kind": "asha", "first_epochs": 1.0},
    "budget": {"price_per_worker_hour": 36.0},
}
PBT: Mapping[str, Any] = {"slots": 6, "scheduler": {"kind": "pbt", "population": 6, "every_epochs": 1.5}}
RANDOM: Mapping[str, Any] = {"trials": 30, "slots": 4, "scheduler": {"kind": "none", "every_epochs": 0.5}}
MARKUP = "RuntimeError: <b>shapes</b> & <script>alert(1)</script>\n  at model.py:12"


def faults(leg: Leg, samples: int) -> Fault | None:
    """Some legs are lost, and two trials run into the same error."""
    if leg.number in (7, 11):
        return Fault("user", signature="RuntimeError: shapes")
    return Fault("preemption") if leg.leg == 0 and unit(0, "lost", leg.trial, samples) < 0.1 else None


def recorded(folder: Path, name: str, settings: Mapping[str, Any], **own: Any) -> RecordedSweep:
    """A sweep that was driven to its end."""
    sweep = RecordedSweep(folder, name, settings, **own)
    sweep.drive()
    return sweep


def strange(folder: Path) -> RecordedSweep:
    """A sweep that was stopped, whose texts look like markup."""
    sweep = RecordedSweep(folder, "a<script>alert(1)<b>")
    entries: list[Entry] = [
        *story(),
        Suggestion("t0005", 5, {"optim.lr": 0.3, "train.global_batch": 32}, "<i>model</i>"),
        Loss("t0005", "user", MARKUP, "RuntimeError", worker_seconds=1.0),
        End("t0005", "failed", 0, MARKUP, "RuntimeError"),
    ]
    sweep.write(entries)
    return sweep
