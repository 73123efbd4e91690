"""What a resume may change: every frozen setting is refused by name, with exit code 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pliant.config.schema import leaves
from pliant.errors import EXIT_USAGE, ConfigError, UsageError
from pliant.settings import run_config_for
from pliant.storage.layout import CheckpointRef
from pliant.train.launch import resumed_run
from tests.train.pipelines.masked_settings import ModelSettings
from tests.train.runs import Run

OTHER: dict[str, str] = {
    "seed": "7",
    "run.storage": "elsewhere",
    "data.lanes": "16",
    "data.window": "3",
    "data.tail": "pad",
    "data.columns": "[tokens]",
    "data.nulls": "{mask: mask}",
    "init.from": "other",
    "init.skip": "[head.*]",
    "model.allow_rank_local": "true",
    "model.width": "25",
    "model.dropout": "0.2",
    "train.reduction": "fast",
    "train.precision": "bf16",
    "optim.kind": "sgd",
    "optim.momentum": "0.5",
    "optim.nesterov": "true",
    "optim.allow_unverified": "true",
    "schedule.unit": "samples",
}
FROZEN = [leaf.dotted for leaf in leaves(run_config_for(ModelSettings)) if leaf.on_resume == "frozen"]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, dataset: str) -> Run:
    """A run whose settings are recorded, with a checkpoint by name; no worker has to have run."""
    return begun(Run.begin(str(tmp_path_factory.mktemp("frozen")), dataset))


@pytest.fixture(scope="module")
def started_with_sgd(tmp_path_factory: pytest.TempPathFactory, dataset: str) -> Run:
    settings = ["optim.kind=sgd", "optim.momentum=0.9"]
    return begun(Run.begin(str(tmp_path_factory.mktemp("frozen")), dataset, *settings))


def begun(run: Run) -> Run:
    _, attempt = run.record_start()
    run.store.put_if_absent(CheckpointRef(1, attempt.number).manifest, b"{}")
    return run


def resume(run: Run, *changes: str) -> Any:
    return resumed_run(run.store, list(changes), take_over=True, in_process=False)


def test_every_frozen_setting_is_tried() -> None:
    assert sorted(FROZEN) == sorted(OTHER)


@pytest.mark.parametrize("key", FROZEN)
def test_a_frozen_setting_is_refused(started: Run, started_with_sgd: Run, key: str) -> None:
    run = started_with_sgd if key in ("optim.momentum", "optim.nesterov") else started
    with pytest.raises(ConfigError) as caught:
        resume(run, f"{key}={OTHER[key]}")
    assert caught.value.code == "resume.frozen"
    assert caught.value.exit_code == EXIT_USAGE
    assert key in str(caught.value)


def test_before_the_first_checkpoint_what_training_depends_on_may_change_and_what_the_run_is_may_not(
    tmp_path: Path, dataset: str
) -> None:
    run = Run.begin(str(tmp_path), dataset)
    run.record_start()
    may = ["model.width", "model.dropout", "train.reduction", "train.precision", "optim.kind", "schedule.unit"]
    changes = resume(run, *(f"{key}={OTHER[key]}" for key in may)).changes
    assert sorted(change.key for change in changes.curve) == sorted(may)
    assert changes.frozen == ()
    for key in (key for key in FROZEN if not key.startswith(("model.", "train.", "schedule.", "optim."))):
        with pytest.raises(ConfigError) as caught:
            resume(run, f"{key}={OTHER[key]}")
        assert caught.value.code == "resume.frozen"


def test_more_workers_than_lanes_are_refused(started: Run) -> None:
    with pytest.raises(ConfigError, match=r"elastic\.max_workers is 9, above data\.lanes 8") as caught:
        resume(started, "elastic.max_workers=9")
    assert caught.value.exit_code == EXIT_USAGE


def test_what_changes_the_curve_is_allowed_and_known(started: Run) -> None:
    launch = resume(started, "optim.lr=0.5", "elastic.max_workers=3", "train.global_batch=48")
    assert sorted(change.key for change in launch.changes.curve) == ["optim.lr", "train.global_batch"]
    assert [change.key for change in launch.changes.free] == ["elastic.max_workers"]


def test_another_dataset_is_refused_with_the_difference(started: Run, tmp_path: Path, dataset: str) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    assert resume(started, f"data.path={copy}").changes.free[0].key == "data.path"  # a copy is the same dataset
    (copy / "train" / "part-00001.parquet").unlink()
    (copy / "train" / "_pliant_manifest.json").unlink()
    with pytest.raises(ConfigError) as caught:
        resume(started, f"data.path={copy}")
    assert caught.value.code == "data.changed"
    assert "part-00001.parquet" in str(caught.value)


def test_an_unknown_run_is_refused(tmp_path: Path) -> None:
    from pliant.storage.settings import StorageSettings
    from pliant.storage.store import Store

    with pytest.raises(UsageError, match="there is no run here"):
        resumed_run(Store(str(tmp_path / "nothing"), StorageSettings()), [], take_over=False, in_process=False)
