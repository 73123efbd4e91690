"""MLflow stores of a test's own: real SQLite files, and a real server."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.track.mlflow import MlflowTracker
from tests.s3 import S3Server
from tests.track.records import DrivenRun
from tests.train.runs import prepare


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without runs: making its tables takes seconds."""
    file = tmp_path_factory.mktemp("mlflow") / "empty.db"
    MlflowTracker(f"sqlite:///{file}", str(file.parent))
    return file


@pytest.fixture
def uri(tmp_path: Path, empty_database: Path) -> str:
    """An MLflow store."""
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.fixture
def run(tmp_path: Path) -> DrivenRun:
    return DrivenRun(Store(str(tmp_path / "runs" / "run"), StorageSettings()))


@pytest.fixture(params=["local", "s3"])
def stored_run(request: pytest.FixtureRequest, tmp_path: Path) -> DrivenRun:
    """The same on each kind of storage."""
    if request.param == "local":
        return DrivenRun(Store(str(tmp_path / "runs" / "run"), StorageSettings()))
    server: S3Server = request.getfixturevalue("s3_server")
    return DrivenRun(Store(f"{server.uri(f't-{uuid.uuid4().hex}')}/run", StorageSettings()))


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dataset of the pipeline ``masked``."""
    return prepare(str(tmp_path_factory.mktemp("data") / "masked"))
