"""Whether a run has the numbers of another one, and every step and row once."""

from __future__ import annotations

from collections.abc import Sequence

from _common import Bar
from _recovery_job import GLOBAL_BATCH
from _recovery_pipeline import ROWS

from pliant.api import Run

STEPS_DIFFER, STEPS_NOT_ONCE, EPOCHS = "steps that differ", "steps not exactly once", "epochs with a row not once"
BARS = {name: Bar(at_most=0) for name in (STEPS_DIFFER, STEPS_NOT_ONCE, EPOCHS)}


def differences(calm: Run, stormy: Run, steps: int) -> dict[str, float]:
    """Counts what is not the same in the first ``steps`` of both, bit for bit, or not once in the other one."""
    left, right = ([(e["step"], e["loss"], e["digest"]) for e in run.metrics()] for run in (calm, stormy))
    differ = sum(a != b for a, b in zip(left, right, strict=False)) + abs(len(left) - len(right))
    rows = [(sample["file"], sample["row"]) for sample in stormy.samples()]
    epochs = [rows[start : start + ROWS] for start in range(0, steps * GLOBAL_BATCH, ROWS)]
    return {
        STEPS_DIFFER: differ,
        STEPS_NOT_ONCE: not_once([step for step, _, _ in right], steps),
        EPOCHS: sum(len(set(epoch)) != len(epoch) or not epoch for epoch in epochs),
    }


def not_once(recorded: Sequence[int], steps: int) -> int:
    """How many of the steps 1 to ``steps`` are missing or there again, and how many others there are."""
    return len(set(range(1, steps + 1)) ^ set(recorded)) + len(recorded) - len(set(recorded))
