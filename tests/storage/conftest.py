"""Stores on a local path and on a real S3 server; every test that takes ``store`` runs on both."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from tests.s3 import S3Server

QUICK = StorageSettings(retry_for=20.0, request_timeout=5.0)


@pytest.fixture(params=["local", "s3"])
def base_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place in each kind of storage."""
    if request.param == "local":
        return str(tmp_path / "store")
    server: S3Server = request.getfixturevalue("s3_server")
    return server.uri(f"t-{uuid.uuid4().hex}")


@pytest.fixture
def store(base_uri: str) -> Store:
    """A store at an empty place."""
    return Store(base_uri, QUICK)


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    """A store on a local path."""
    return Store(str(tmp_path / "store"), QUICK)


@pytest.fixture
def own_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server of the test's own, to be killed and restarted."""
    with S3Server() as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def waits() -> tuple[list[str], Callable[[str, float], None]]:
    """A list of reasons, and the ``on_wait`` that fills it."""
    reasons: list[str] = []
    return reasons, lambda reason, _: reasons.append(reason)
