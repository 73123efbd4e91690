"""Whether the decisions of a recorded sweep follow from its log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pliant.errors import UsageError
from pliant.tune.decisions import DecisionLog, open_log
from pliant.tune.types import Decision, Suggestion
from pliant.tune.verification import verify_decisions
from tests.tune.recording import ASHA, DEAD, PBT, RecordedSweep


@pytest.mark.parametrize("settings", [ASHA, PBT, {**ASHA, "searcher": {"kind": "tpe", "startup_trials": 3}}])
def test_what_was_decided_follows(settings: Mapping[str, Any], tmp_path: Path) -> None:
    sweep = RecordedSweep(tmp_path, settings=settings, pipeline="digits")
    sweep.drive(entries=15)
    sweep.drive(entries=9)
    sweep.drive()
    assert verify_decisions(sweep.record) is None


def test_an_extended_sweep_follows_too(tmp_path: Path) -> None:
    sweep = RecordedSweep(tmp_path, pipeline="digits")
    sweep.drive()
    sweep.drive(settings={**ASHA, "trials": 12})
    assert sum(isinstance(entry, Suggestion) for entry in _entries(sweep)) > 12
    assert verify_decisions(sweep.record) is None


def test_what_does_not_follow_is_named(tmp_path: Path) -> None:
    sweep = RecordedSweep(tmp_path, pipeline="digits")
    sweep.drive(entries=15)
    number = len(_entries(sweep))
    _append(sweep).record([Decision("t0001", 300, "pause", "because")])
    difference = verify_decisions(sweep.record)
    assert difference is not None
    assert difference.number == number + 1
    assert f"entry {number + 1} is " in str(difference)


def test_a_pipeline_that_is_gone_is_told(tmp_path: Path) -> None:
    sweep = RecordedSweep(tmp_path)
    assert verify_decisions(sweep.record) is None, "nothing is in its log"
    sweep.drive(entries=15)
    with pytest.raises(UsageError, match="the run's pipeline is not there"):
        verify_decisions(sweep.record)


def _entries(sweep: RecordedSweep) -> list[Any]:
    from pliant.tune.decisions import read_entries

    return read_entries(sweep.record)


def _append(sweep: RecordedSweep) -> DecisionLog:
    log, _ = open_log(sweep.record, sweep.record.claim_driver(DEAD))
    return log
