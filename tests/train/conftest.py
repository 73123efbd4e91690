"""Datasets and places for runs."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.s3 import S3Server
from tests.train.runs import Run, prepare


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dataset of the pipeline ``masked``, on a local path."""
    return prepare(tmp_path_factory.mktemp("data"))


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for runs, in each kind of storage."""
    if request.param == "local":
        return str(tmp_path / "runs")
    server: S3Server = request.getfixturevalue("s3_server")
    return server.uri(f"t-{uuid.uuid4().hex}")


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, dataset: str) -> Run:
    """A run that nothing interrupted."""
    run = Run.begin(str(tmp_path_factory.mktemp("whole")), dataset)
    run.attempt(2)
    return run
