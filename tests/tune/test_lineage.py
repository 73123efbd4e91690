"""Whose training a trial goes on from; and that one run with phases, on Ray, repeats it bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pliant.checkpoint.clone import begin_clone, checkpoint_at
from pliant.checkpoint.verify import verify_checkpoints
from pliant.config.dump import config_to_dict, config_to_yaml
from pliant.configure import load_config
from pliant.registry import find_pipeline
from pliant.settings import RunConfig
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.train.recorded import Code, record_start
from pliant.train.work import WorkSpec
from pliant.tune.lineage import ancestry, replay_config
from pliant.tune.table import Generation, Trial
from pliant.tune.types import Params, Suggestion
from tests.e2e.commands import Command
from tests.train.pipelines.masked import ROWS
from tests.train.processes import Group
from tests.train.runs import PIPELINE, SETTINGS, Run, prepare, worker

FIRST = {"optim.lr": 0.001, "train.global_batch": 32}
SECOND = {"optim.lr": 0.004, "train.global_batch": 64, "optim.weight_decay": 0.02}
THIRD = {"optim.lr": 0.002, "train.global_batch": 16, "optim.weight_decay": 0.02, "schedule.kind": "linear"}
LENGTH = 600


def _trial(number: int, *generations: Generation) -> Trial:
    suggestion = Suggestion(f"t{number:04d}", number, generations[0].params)
    return Trial(suggestion, 1, list(generations))


TRIALS = {
    trial.id: trial
    for trial in [
        _trial(0, Generation(FIRST)),
        _trial(1, Generation(THIRD), Generation(SECOND, 160, "t0000"), Generation(FIRST, 500, "t0002")),
        _trial(2, Generation(SECOND), Generation(FIRST, 160, "t0001"), Generation(THIRD, 480, "t0001", 1)),
        _trial(3, Generation(SECOND), Generation(FIRST, 480, "t0002", 2)),
    ]
}


def test_the_line_of_a_trial_goes_through_its_donors_generations() -> None:
    line = ancestry(TRIALS, "t0002")
    assert [(s.run, s.params, s.samples, s.until) for s in line] == [
        ("t0000", FIRST, 0, 160), ("t0001.g1", SECOND, 160, 480), ("t0002.g2", THIRD, 480, None),
    ]  # fmt: skip
    assert [s.run for s in ancestry(TRIALS, "t0002", 1)] == ["t0001", "t0002.g1"]
    assert [s.run for s in ancestry(TRIALS, "t0000")] == ["t0000"]


def _settings(params: Params, *places: str) -> RunConfig:
    """Of a trial, the way a sweep makes them: the schedule counts samples, to the trial's length."""
    base: dict[str, Any] = dict(text.split("=", 1) for text in [*SETTINGS, "data.path=nowhere", *places])
    base = {key: value for key, value in base.items() if not key.startswith("schedule.")}
    base |= {"schedule.unit": "samples", "schedule.total": str(LENGTH), "schedule.warmup": "96"}
    batch = int(params["train.global_batch"])
    base |= {key: str(value) for key, value in params.items()} | {"train.steps": str(-(-LENGTH // batch))}
    return load_config(PIPELINE, [f"{key}={value}" for key, value in base.items()]).config


def test_a_replay_changes_what_differs_where_it_does() -> None:
    config = replay_config(ancestry(TRIALS, "t0002"), _settings, rows=ROWS, samples=LENGTH)
    assert [(p.from_samples, p.settings) for p in config.phases] == [
        (160, SECOND), (480, {k: v for k, v in THIRD.items() if k != "optim.weight_decay"}),
    ]  # fmt: skip
    assert (config.train.steps, config.train.global_batch) == (5 + 5 + 8, 32)
    # Cloned where its donor had just begun itself: nobody has trained with the donor's settings.
    (only,) = replay_config(ancestry(TRIALS, "t0003"), _settings, rows=ROWS, samples=LENGTH).phases[1:]
    assert (only.from_samples, only.settings["optim.lr"]) == (480, 0.001)
    # What all trials share goes on; a clone that begins with a phase of theirs changes the rest.
    shared = "phases=[{from_samples: 100, settings: {optim.eps: 0.1}}, {from_samples: 160, settings: {optim.eps: 0.2}}]"
    both = replay_config(ancestry(TRIALS, "t0002"), lambda p: _settings(p, shared), rows=ROWS, samples=LENGTH).phases
    assert [p.from_samples for p in both] == [100, 160, 480]
    assert both[1].settings == {"optim.eps": 0.2, **SECOND}
    alone = replay_config(ancestry(TRIALS, "t0000"), _settings, rows=ROWS, samples=LENGTH)
    assert alone == _settings(FIRST)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_run_repeats_the_segments_of_a_trial_bit_by_bit(tmp_path: Path) -> None:
    dataset, storage = prepare(str(tmp_path / "data")), str(tmp_path / "runs")
    places = (f"data.path={dataset}", f"run.storage={storage}")

    def settings(params: Params) -> RunConfig:
        return _settings(params, *places)

    line, runs = ancestry(TRIALS, "t0002"), []
    for number, segment in enumerate(line):
        config = settings(segment.params)
        store = Store(f"{storage}/{segment.run}", config.run.store)
        batch = config.train.global_batch
        steps = -(-((segment.until or LENGTH) - segment.samples) // batch)
        if number:
            donor = Store(f"{storage}/{line[number - 1].run}", config.run.store)
            record = begin_clone(donor, checkpoint_at(donor, segment.samples), store, {"name": segment.run})
            steps += checkpoint_at(donor, segment.samples).step
        else:
            record = Run.begin(storage, dataset, name=segment.run).record
        run = Run(store, segment.run)
        attempt, ref = record.claim_driver(), find_pipeline(PIPELINE)
        record_start(attempt, config, {}, Code.of(ref))
        spec = WorkSpec(
            name=segment.run, run_uri=store.uri, driver=attempt.number, pipeline=ref, settings=config_to_dict(config),
            total_steps=steps, validation=True,
        )  # fmt: skip
        Group(2 if number == 1 else 1, worker, spec, str(run.notes_file), None).results()
        assert {r.status for r in verify_checkpoints(store, run.record.view().checkpoints())} == {"intact"}
        assert not run.record.view().pins
        runs.append(run)
    parts = [entry for run in runs for entry in run.curve()]
    assert [entry[0] for entry in parts] == list(range(1, 19))
    assert [event["step"] for run in runs for event in run.events("clone")] == [5, 10]

    file = tmp_path / "best.yaml"
    file.write_text(config_to_yaml(replay_config(line, settings, rows=ROWS, samples=LENGTH)))
    workers = ["data.reader=ray", "elastic.max_workers=2", "elastic.resources_per_worker={CPU: 0.5}"]
    arguments = [f"@{file}", *workers]
    Command("train", PIPELINE, "--name", "replay", *arguments, cwd=tmp_path).finish()
    whole = Run(Store(f"{storage}/replay", StorageSettings()), "replay")
    assert whole.curve() == parts
    assert whole.rows() == [entry for run in runs for entry in run.rows()]
