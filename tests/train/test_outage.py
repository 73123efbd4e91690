"""Object storage that goes away while a run works: waited for, nothing quarantined, the numbers as ever."""

from __future__ import annotations

import signal
import time

import pytest

from tests.s3 import S3Server
from tests.train.processes import KILLED
from tests.train.runs import Before, Run, kill_before

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEP = "pliant.train.step:Step.run"


@pytest.mark.parametrize(
    "moment", ["pliant.checkpoint.reader:check_file", STEP], ids=["while a checkpoint is verified", "while it trains"]
)
def test_storage_that_is_away_is_waited_for(own_s3: S3Server, dataset: str, whole: Run, moment: str) -> None:
    run = Run.begin(own_s3.uri("outage"), dataset)
    assert KILLED in run.attempt(2, fault=run.when_committed(10, kill_before(STEP, 14)))
    group = run.group(2, fault=Before(moment, 1, signal=signal.SIGSTOP))
    group.wait_until_stopped()
    own_s3.kill()
    group.signal(signal.SIGCONT)
    while not run.notes("storage-wait"):
        time.sleep(0.05)
    own_s3.restart()
    group.results()
    assert run.events("quarantine") == []
    assert run.log("metrics")[10]["attempt"] == 4, "the checkpoint of step 10 must have been restored"
    assert run.curve() == whole.curve()
