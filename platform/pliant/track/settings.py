"""Settings of tracking: whether and where MLflow holds the history of runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import field_validator

from pliant.config.base import Settings, setting, where
from pliant.errors import ConfigError
from pliant.units import Seconds

_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https")
_URI_VARIABLE = "MLFLOW_TRACKING_URI"
_ON = where("tracking.kind", "mlflow")
_MODEL = (_ON, where("tracking.model", True))


class TrackingSettings(Settings):
    """The run's history in MLflow. It is delivered beside training, and never holds up a step."""

    kind: Literal["mlflow", "none"] = setting("mlflow", on_resume="free")
    """``none`` tells nobody; ``pliant sync`` can do so later."""
    uri: str | None = setting(None, on_resume="free")
    """``sqlite:////PATH/mlflow.db``, another database URL, or a server's ``http(s)://…``. Default, settled when the
    run begins: the variable MLFLOW_TRACKING_URI, else ``mlflow.db`` under a local ``run.storage``, else
    ``~/.local/share/pliant/mlflow.db``."""
    experiment: str | None = setting(None, on_resume="free", min_length=1, max_length=500)
    """MLflow experiment that the run is created in; default: the pipeline's name."""
    every: Seconds = setting(15.0, on_resume="free", only_with=_ON, gt=0)
    """Time between two deliveries."""
    finish_within: Seconds = setting(120.0, on_resume="free", only_with=_ON, ge=0)
    """How long the end of a run may take to deliver the rest; what is left then is named, with the command for it."""
    stop_within: Seconds = setting(8.0, on_resume="free", only_with=_ON, ge=0)
    """The same for a run that is stopped by a signal, whose time may be short."""
    model: bool = setting(True, on_resume="free", only_with=_ON)
    """Log the trained model at the end of a run, of a sweep that of its best trial. The driver's host holds it whole in
    memory meanwhile."""
    register_as: str | None = setting(None, on_resume="free", only_with=_MODEL, min_length=1, max_length=200)
    """Name in MLflow's model registry under which this model is registered; null: it is not."""
    alias: str = setting("best", on_resume="free", only_with=_MODEL, min_length=1, max_length=200)
    """Alias in the registry that the newest such version has."""
    system_every: Seconds | None = setting(10.0, on_resume="free", only_with=_ON, gt=0)
    """Time between two samples of each node's CPU, memory, disk and network; null switches them off."""

    @field_validator("uri")
    @classmethod
    def _known_scheme(cls, uri: str | None) -> str | None:
        if uri is not None and (problem := _problem(uri)):
            raise ValueError(problem)
        return uri

    @field_validator("register_as")
    @classmethod
    def _registrable(cls, name: str | None) -> str | None:
        if name is not None and (re.search("[/:]", name) or name in (".", "..")):
            raise ValueError(f"{name!r} is no name for MLflow's registry: it cannot hold / or :")
        return name

    @field_validator("alias")
    @classmethod
    def _known_to_mlflow(cls, alias: str) -> str:
        if not re.fullmatch(r"[\w-]+", alias, re.ASCII) or alias.lower() == "latest" or re.fullmatch(r"[vV]\d+", alias):
            allowed = "letters, digits, - and _, neither latest nor v and a number, which mean versions"
            raise ValueError(f"{alias!r} is no alias that MLflow takes; allowed: {allowed}")
        return alias


def settle_uri(settings: TrackingSettings, storage: str, environment: Mapping[str, str]) -> tuple[str, str | None]:
    """The tracking URI, with absolute paths: every later resume finds the same store.

    Args:
        storage: ``run.storage``, absolute or a URI.
        environment: of this process.

    Returns:
        (URI, where it came from when the settings leave it open).

    Raises:
        ConfigError: the environment names a store that cannot be used.
    """
    if settings.uri is not None:
        return _absolute(settings.uri), None
    if environment.get(_URI_VARIABLE):
        uri = environment[_URI_VARIABLE]
        if problem := _problem(uri):
            hint = "set tracking.uri, which wins over it, or tracking.kind=none"
            raise ConfigError("tracking.uri", problem, hint=hint, location=f"variable {_URI_VARIABLE}")
        return _absolute(uri), f"variable {_URI_VARIABLE}"
    if "://" not in storage:
        return f"sqlite:///{Path(storage, 'mlflow.db')}", "mlflow.db under run.storage"
    return f"sqlite:///{home() / 'mlflow.db'}", "run.storage is remote: mlflow.db in the home directory"


def home() -> Path:
    """Where this user's things lie that belong to no run."""
    return Path("~/.local/share/pliant").expanduser()


def sqlite_file(uri: str) -> Path | None:
    """The file of an SQLite URI; None for anything else."""
    scheme, _, path = uri.partition(":///")
    return Path(path.partition("?")[0]) if scheme.partition("+")[0] == "sqlite" and path else None


def masked(text: str) -> str:
    """The text without the passwords of URIs in it."""
    return re.sub(r"(://[^/@:\s]*):[^/@\s]*@", r"\1:***@", text)


def _problem(uri: str) -> str | None:
    scheme, separator, _ = uri.partition("://")
    if separator and scheme.partition("+")[0] in _SCHEMES:
        return None
    allowed = ", ".join(f"{s}://" for s in _SCHEMES)
    return f"{masked(uri)!r} is no tracking store that counts what arrives twice once; allowed: {allowed}"


def _absolute(uri: str) -> str:
    file = sqlite_file(uri)
    if file is None:
        return uri
    head, _, path = uri.partition(":///")
    _, mark, query = path.partition("?")
    return f"{head}:///{file.expanduser().absolute()}{mark}{query}"
