"""Where a run's history goes, settled once and by absolute path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from pliant.errors import ConfigError
from pliant.track.settings import TrackingSettings, masked, settle_uri, sqlite_file


def settled(uri: str | None = None, storage: str = "/runs", **environment: str) -> str:
    return settle_uri(TrackingSettings(uri=uri), storage, environment)[0]


def test_the_default_lies_beside_the_runs_by_absolute_path() -> None:
    assert settle_uri(TrackingSettings(), "/runs", {}) == ("sqlite:////runs/mlflow.db", "mlflow.db under run.storage")
    assert settled(storage="s3://bucket/runs") == f"sqlite:///{Path.home()}/.local/share/pliant/mlflow.db"


def test_a_setting_wins_over_the_environment_and_that_over_the_default() -> None:
    assert settled("http://a", MLFLOW_TRACKING_URI="http://b") == "http://a"
    assert settled(MLFLOW_TRACKING_URI="http://b") == "http://b"
    assert settled(MLFLOW_TRACKING_URI="") == "sqlite:////runs/mlflow.db"


def test_relative_paths_become_absolute() -> None:
    assert settled("sqlite:///here/m.db?timeout=5") == f"sqlite:///{os.getcwd()}/here/m.db?timeout=5"
    assert settled("sqlite:////there/m.db") == "sqlite:////there/m.db"
    assert sqlite_file("sqlite:////there/m.db?x=1") == Path("/there/m.db")
    assert sqlite_file("postgresql://host/db") is None


@pytest.mark.parametrize("uri", ["mlruns", "/tmp/mlruns", "file:///tmp/mlruns", "databricks", ""])
def test_stores_that_would_count_a_repeated_batch_twice_are_refused(uri: str) -> None:
    with pytest.raises(ValidationError, match="allowed: sqlite://"):
        TrackingSettings(uri=uri)
    if uri:
        with pytest.raises(ConfigError, match="arrives twice") as caught:
            settled(MLFLOW_TRACKING_URI=uri)
        assert caught.value.location == "variable MLFLOW_TRACKING_URI"


def test_passwords_are_not_shown() -> None:
    assert masked("at postgresql://me:secret@host/db it") == "at postgresql://me:***@host/db it"
    assert masked("http://host:80/x sqlite:////a@b:c") == "http://host:80/x sqlite:////a@b:c"


@pytest.mark.parametrize("name", ["a/b", "a:b", "..", ""])
def test_a_name_that_the_registry_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="register_as"):
        TrackingSettings(register_as=name)


@pytest.mark.parametrize("alias", ["latest", "Latest", "v3", "a b", "b@c"])
def test_an_alias_that_means_a_version_or_nothing_is_refused(alias: str) -> None:
    with pytest.raises(ValidationError, match="no alias that MLflow takes"):
        TrackingSettings(register_as="net", alias=alias)
    assert TrackingSettings(register_as="net", alias="best-of_3").alias == "best-of_3"
