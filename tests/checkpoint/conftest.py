"""Stores for checkpoints: a local path, and a real S3 server."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from tests.s3 import S3Server


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A run's storage, once on each kind."""
    settings = StorageSettings(retry_for=20.0, request_timeout=5.0)
    if request.param == "local":
        return Store(str(tmp_path / "run"), settings)
    server: S3Server = request.getfixturevalue("s3_server")
    return Store(server.uri(f"t-{uuid.uuid4().hex}"), settings)


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    """A run's storage on a local path, which gives up at once."""
    return Store(str(tmp_path / "run"), StorageSettings(retry_for=0.0))
