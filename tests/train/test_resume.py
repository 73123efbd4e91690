"""The signature: killed between checkpoints, resumed with another number of workers, and the numbers do not change.

Losses, gradient norms and digests of all parameters are compared bit by bit with an uninterrupted run's, step by
step; and every row of the dataset is seen once an epoch, over all attempts together.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.train.pipelines.masked import ROWS
from tests.train.processes import KILLED
from tests.train.runs import STEPS, Run, kill_before

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEP = "pliant.train.step:Step.run"

CASES = {
    "fp32 adamw": [],
    "bf16 adamw": ["train.precision=bf16"],
    "fp32 sgd": ["optim.kind=sgd", "optim.momentum=0.9", "optim.lr=0.05"],
    "bf16 sgd": ["train.precision=bf16", "optim.kind=sgd", "optim.lr=0.05"],
}


def assert_each_row_once_an_epoch(run: Run) -> None:
    """The stream of all attempts together: position after position, epoch after epoch, each row exactly once."""
    places, rows = [], []
    for expected, (step, batch) in enumerate(run.rows(), 1):
        assert step == expected
        places += [(epoch, position) for epoch, position, _, _ in batch]
        rows += [(group, row) for _, _, group, row in batch]
    assert places == [divmod(place, ROWS) for place in range(STEPS * 32)]
    for start in range(0, len(rows), ROWS):
        epoch = rows[start : start + ROWS]
        assert len(set(epoch)) == len(epoch)
    assert set(rows[:ROWS]) == set(rows[ROWS : 2 * ROWS])
    assert rows[:ROWS] != rows[ROWS : 2 * ROWS]


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
def test_killed_and_resumed_with_2_1_3_4_workers(tmp_path: Path, dataset: str, settings: list[str]) -> None:
    whole = Run.begin(str(tmp_path), dataset, *settings, name="whole")
    whole.attempt(2)
    run = Run.begin(str(tmp_path), dataset, *settings, name="killed")
    # Step 9, after the checkpoint of 5, in the second epoch; again in that epoch before the next checkpoint; then with
    # 3 workers, which do not divide 8 lanes.
    assert KILLED in run.attempt(2, fault=run.when_committed(5, kill_before(STEP, 9)))
    assert KILLED in run.attempt(1, fault=kill_before(STEP, 4))
    assert KILLED in run.attempt(3, fault=run.when_committed(10, kill_before(STEP, 8)))
    assert KILLED not in run.attempt(4)
    assert [entry[0] for entry in run.curve()] == list(range(1, STEPS + 1))
    assert run.curve() == whole.curve()
    strip = ("seconds", "time", "attempt")
    assert [{k: v for k, v in e.items() if k not in strip} for e in run.log("evaluations")] == [
        {k: v for k, v in e.items() if k not in strip} for e in whole.log("evaluations")
    ]
    assert run.rows() == whole.rows()
    assert_each_row_once_an_epoch(run)
    assert {entry["attempt"] for entry in run.log("metrics")} == {2, 6, 8}
    assert not run.events("not-comparable")
