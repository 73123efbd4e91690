"""Datasets and places for runs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3 import S3Server
from tests.train.runs import Run, prepare


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dataset of the pipeline ``masked``, on a local path."""
    return prepare(str(tmp_path_factory.mktemp("data") / "masked"))


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for runs, in each kind of storage."""
    if request.param == "local":
        return str(tmp_path / "runs")
    server: S3Server = request.getfixturevalue("s3_server")
    return server.uri(f"t-{uuid.uuid4().hex}")


@pytest.fixture
def own_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server of the test's own, to be killed and restarted."""
    with S3Server() as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, dataset: str) -> Run:
    """A run that nothing interrupted."""
    run = Run.begin(str(tmp_path_factory.mktemp("whole")), dataset)
    run.attempt(2)
    return run
