"""``pliant preflight``: what it finds, and that nothing of it stays."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from safetensors.torch import save_file

from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from tests.cli.conftest import Run
from tests.s3 import S3Server
from tests.train.pipelines.masked import Masked
from tests.train.pipelines.masked_settings import ModelSettings
from tests.train.runs import PIPELINE, prepare

FAILING = """
from tests.train.pipelines.masked import Masked
from tests.train.pipelines.masked_settings import ModelSettings

class Failing(Masked):
    def loss(self, model, batch):
        return super().loss(model, batch) if not model.training else self.missing

pipeline = Failing
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare(str(tmp_path_factory.mktemp("preflight") / "data"))


def settings(dataset: str) -> list[str]:
    train = ["train.global_batch=32", "train.micro_batch=2", "train.steps=1000", "schedule.warmup=100"]
    return [f"data.path={dataset}", *train, "data.lanes=8", "data.reader=local", "tracking.kind=none"]


def states(shown: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+) +(ok|failed|skipped) ", shown, flags=re.MULTILINE))


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "runs")
    server: S3Server = request.getfixturevalue("s3_server")
    return server.uri(f"t-{uuid.uuid4().hex}")


def test_all_is_well_and_nothing_is_left_behind(dataset: str, storage: str, tmp_path: Path, run: Run) -> None:
    done = run("preflight", PIPELINE, *settings(dataset), f"run.storage={storage}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = ("data", "schedule", "storage", "batches", "checkpoint", "restore")
    assert states(done.stderr) == dict.fromkeys(names, "ok") | {"tracking": "skipped"}
    assert re.search(r"^data .* 203 rows, 4 files, ", done.stderr, flags=re.MULTILINE)
    assert "writes " in done.stderr
    assert "2 of 16 rows: read " in done.stderr, "a micro-batch of each lane, not the whole batch"
    assert "a second attempt goes on from step 2" in done.stderr
    assert done.stdout.startswith("masked is ready (")
    assert Store(storage, StorageSettings()).list() == []
    if "://" not in storage:
        assert list(Path(storage).iterdir()) == []


def test_code_that_fails_is_shown_with_the_users_lines_and_stops_what_needs_it(
    dataset: str, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    done = run("preflight", "./failing.py", *settings(dataset), cwd=tmp_path)
    assert done.returncode == 3
    assert states(done.stderr) == {
        "data": "ok", "schedule": "ok", "storage": "ok", "batches": "failed", "checkpoint": "skipped",
        "restore": "skipped", "tracking": "skipped",
    }  # fmt: skip
    assert "'Failing' object has no attribute 'missing'" in done.stderr
    assert f'File "{tmp_path / "failing.py"}", line 7, in loss' in done.stderr
    assert "platform/pliant" not in done.stderr
    assert done.stdout == "failing would not run: batches failed\n"
    assert list((tmp_path / "runs").iterdir()) == []


def test_for_one_process_and_with_parameters_to_begin_with(dataset: str, tmp_path: Path, run: Run) -> None:
    net = Masked(ModelSettings()).model()
    save_file(
        {name: t.clone() for name, t in net.state_dict().items() if name != "head.weight"}, tmp_path / "m.safetensors"
    )
    many = ["elastic.min_workers=2", "elastic.max_workers=2", "init.from=m.safetensors"]
    done = run("preflight", PIPELINE, "--in-process", *settings(dataset), *many, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert states(done.stderr)["init"] == "ok"
    assert re.search(r"^schedule +ok .* 1 worker, ", done.stderr, flags=re.MULTILINE)
    assert f"start it with: pliant train {PIPELINE} --in-process data.path=" in done.stderr
    done = run("preflight", PIPELINE, *settings(dataset), "init.from=none.safetensors", cwd=tmp_path)
    assert done.returncode == 3
    assert (states(done.stderr)["init"], states(done.stderr)["batches"]) == ("failed", "skipped")
    assert "error[init.unknown]" in done.stderr


def test_a_dataset_that_is_not_there(tmp_path: Path, run: Run) -> None:
    done = run("preflight", PIPELINE, *settings(str(tmp_path / "none")), cwd=tmp_path)
    assert done.returncode == 3
    found = states(done.stderr)
    assert (found["data"], found["schedule"], found["storage"], found["batches"]) == (
        "failed",
        "skipped",
        "ok",
        "skipped",
    )
    assert f"{tmp_path / 'none'}" in done.stderr


def test_settings_that_are_wrong_are_bad_usage(dataset: str, tmp_path: Path, run: Run) -> None:
    done = run("preflight", PIPELINE, *settings(dataset), "optim.lrr=3", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean optim.lr" in done.stderr
