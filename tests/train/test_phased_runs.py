"""Runs whose settings change on the way: killed anywhere, the numbers do not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pliant.config.dump import value_text
from tests.train.processes import KILLED
from tests.train.runs import Run, kill_before

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEP = "pliant.train.step:Step.run"
STEPS = 18
PHASES: list[dict[str, Any]] = [
    # After step 5, where a checkpoint is; within a checkpoint's interval, and not at a step's end; and at a step's end.
    {"from_samples": 160, "settings": {"train.global_batch": 64, "optim.lr": 0.004, "optim.betas": [0.8, 0.99]}},
    {"from_samples": 330, "settings": {"optim.weight_decay": 0.02, "train.clip_norm": None}},
    {"from_samples": 608, "settings": {"train.global_batch": 16, "schedule.kind": "linear"}},
]
PHASED = [f"train.steps={STEPS}", "schedule.unit=samples", "schedule.total=900", f"phases={value_text(PHASES)}"]


def test_killed_at_and_between_boundaries_and_resumed_with_other_workers(tmp_path: Path, dataset: str) -> None:
    whole = Run.begin(str(tmp_path), dataset, *PHASED, name="whole")
    whole.attempt(1)
    batches = [entry["global_batch"] for entry in whole.log("metrics")]
    assert batches == [32] * 5 + [64] * 7 + [16] * 6
    assert len({entry[-1] for entry in whole.curve()}) == STEPS
    run = Run.begin(str(tmp_path), dataset, *PHASED, name="killed")
    # Restored right at the first boundary; then from the second phase in the middle of it, with 3 workers for 8 lanes.
    assert KILLED in run.attempt(2, fault=run.when_committed(5, kill_before(STEP, 6)))
    assert KILLED in run.attempt(3, fault=run.when_committed(10, kill_before(STEP, 8)))
    run.attempt(2)
    assert {entry["attempt"] for entry in run.log("metrics")} == {2, 4, 6}
    assert run.curve() == whole.curve()
    assert run.rows() == whole.rows()
