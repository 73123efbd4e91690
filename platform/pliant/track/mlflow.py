"""The run in MLflow. The only file that imports it, which takes seconds: import this one late, in a thread.

The client's calls name the run; the fluent API, with its active run and its MLFLOW_RUN_ID, is not used.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from pliant.track.settings import home, sqlite_file
from pliant.track.tracker import NOTHING, Card, Counterpart, DatasetCard, Point, Status, TrainedModel

for _name, _value in {
    # Without these a server that is away would be waited for for minutes, call by call.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}.items():
    os.environ.setdefault(_name, _value)

from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import (  # noqa: E402
    Dataset,
    DatasetInput,
    InputTag,
    LoggedModel,
    LoggedModelOutput,
    LoggedModelStatus,
    Metric,
    Param,
    Run,
    RunTag,
)
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.models import Model, infer_signature  # noqa: E402

RUN_TAG = "pliant.run_id"
PARENT_TAG = "mlflow.parentRunId"
_ITEMS_PER_CALL = 100
_RUNS_PER_CALL = 1000
_MODEL = "model"
_MODEL_ID_TAG = "pliant.model_id"
_SOURCES = {"s3": "s3", "gs": "gs", "az": "wasbs"}
_ours = threading.local()

C = TypeVar("C", bound=Callable[..., Any])


class _NotOurs(logging.Filter):
    """Keeps MLflow's own lines off the screen while Pliant calls it; a user's own calls keep theirs."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(_ours, "calling", False)


def _quiet(call: C) -> C:
    @wraps(call)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        _ours.calling = True
        try:
            return call(*args, **kwargs)
        finally:
            _ours.calling = False

    return quiet  # type: ignore[return-value]


class MlflowTracker:
    """A run in an MLflow store.

    Args:
        uri: of the store.
        storage: ``run.storage``; artifacts of a store that has no place of its own for them lie there when it is local.
    """

    @_quiet
    def __init__(self, uri: str, storage: str) -> None:
        for logger in (logging.getLogger("mlflow"), logging.getLogger("alembic")):
            for handler in logger.handlers:
                if not any(isinstance(f, _NotOurs) for f in handler.filters):
                    handler.addFilter(_NotOurs())
        self._uri, self._storage, self._run_id = uri, storage, ""
        with _one_at_a_time(sqlite_file(uri)):
            self._client = MlflowClient(tracking_uri=uri)
            if sqlite_file(uri) is not None:
                self._client.search_experiments(max_results=1)  # makes the tables of a new database

    @_quiet
    def find(self, card: Card) -> str | None:
        experiment = self._client.get_experiment_by_name(card.experiment)
        if experiment is None:
            return None
        wanted = f"tags.`{RUN_TAG}` = '{card.run_id}'"
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        found = self._client.search_runs([experiment.experiment_id], wanted, max_results=1, order_by=order)
        return found[0].info.run_id if found else None

    @_quiet
    def create(self, card: Card) -> str:
        tags = {**card.tags, RUN_TAG: card.run_id, **({PARENT_TAG: card.parent} if card.parent else {})}
        made = self._client.create_run(self._experiment(card.experiment), card.start_ms, tags, run_name=card.name)
        return made.info.run_id

    @_quiet
    def drop(self, run_id: str) -> None:
        self._client.delete_run(run_id)

    @_quiet
    def attach(self, run_id: str) -> None:
        self._client.get_run(run_id)
        self._run_id = run_id

    @_quiet
    def look(self) -> Counterpart:
        return _counterpart(self._client.get_run(self._run_id))

    @_quiet
    def children(self) -> list[Counterpart]:
        experiment = self._client.get_run(self._run_id).info.experiment_id
        wanted, found, token = f"tags.`{PARENT_TAG}` = '{self._run_id}'", [], None
        while page := self._client.search_runs([experiment], wanted, max_results=_RUNS_PER_CALL, page_token=token):
            found += [_counterpart(run) for run in page]
            token = page.token
            if not token:
                break
        return found

    def of(self, run_id: str) -> MlflowTracker:
        other = copy.copy(self)
        other._run_id = run_id
        return other

    @_quiet
    def set_status(self, status: Status, time_ms: int) -> None:
        if status == "RUNNING":
            self._client.update_run(self._run_id, status=status)
        else:
            self._client.set_terminated(self._run_id, status, end_time=time_ms)

    @_quiet
    def history(self, key: str) -> dict[tuple[int, int], float]:
        return {(m.step, m.timestamp): m.value for m in self._client.get_metric_history(self._run_id, key)}

    def send(
        self, points: Sequence[Point], params: Mapping[str, str] = NOTHING, tags: Mapping[str, str] = NOTHING
    ) -> None:
        self._log(points, params, tags)

    @_quiet
    def _log(self, points: Sequence[Point], params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        values = [Metric(p.key, p.value, p.time_ms, p.step) for p in points]
        settings, notes = [Param(*item) for item in params.items()], [RunTag(*item) for item in tags.items()]
        try:
            self._client.log_batch(self._run_id, values, settings, notes)
        except MlflowException:
            # Another process may have been faster by a moment: its parameters and these exclude each other.
            if not params or not params.keys() <= self._client.get_run(self._run_id).data.params.keys():
                raise
            if points or tags:
                self._client.log_batch(self._run_id, values, tags=notes)

    def add_params(self, params: Mapping[str, str]) -> None:
        for batch in _batches(params):
            self._log((), batch, NOTHING)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        for batch in _batches(tags):
            self._log((), NOTHING, batch)

    @_quiet
    def add_datasets(self, datasets: Sequence[DatasetCard]) -> None:
        self._client.log_inputs(self._run_id, [_dataset(card) for card in datasets])

    @_quiet
    def artifacts(self, folder: str) -> set[str]:
        return {info.path for info in self._client.list_artifacts(self._run_id, folder)}

    @_quiet
    def add_artifact(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, name)
            file.write_bytes(data)
            self._client.log_artifact(self._run_id, str(file), folder or None)

    @_quiet
    def add_model(self, model: TrainedModel) -> None:
        import mlflow.pytorch  # with torch, which nothing else here needs

        run = self._client.get_run(self._run_id)
        self._drop_unfinished(run.info.experiment_id)
        logged = self._client.create_logged_model(
            run.info.experiment_id, _MODEL, self._run_id, tags=dict(model.metadata), params=run.data.params
        )
        with tempfile.TemporaryDirectory() as directory:
            mlflow.pytorch.save_model(
                model.module,
                f"{directory}/{_MODEL}",
                mlflow_model=Model(
                    artifact_path=logged.artifact_location,
                    run_id=self._run_id,
                    model_uuid=logged.model_id,
                    model_id=logged.model_id,
                ),
                code_paths=[str(path) for path in model.code] or None,
                signature=None if model.inputs is None else infer_signature(model.inputs, model.outputs),
                pip_requirements=_requirements(),
                metadata=dict(model.metadata),
                serialization_format="pickle",  # tracing would refuse many models that train perfectly well
            )
            self._client.log_model_artifacts(logged.model_id, f"{directory}/{_MODEL}")
        self._client.finalize_logged_model(logged.model_id, "READY")
        self._client.log_outputs(self._run_id, [LoggedModelOutput(logged.model_id, model.step)])

    @_quiet
    def register(self, name: str, alias: str, tags: Mapping[str, str]) -> int:
        models = self._models(self._client.get_run(self._run_id).info.experiment_id)
        model = max((m for m in models if m.status == LoggedModelStatus.READY), key=lambda m: m.creation_timestamp)
        with contextlib.suppress(MlflowException):  # it is there already, or what follows says what is wrong
            self._client.create_registered_model(name)
        made = self._client.search_model_versions(f"name = '{name}' AND run_id = '{self._run_id}'")
        version = next((int(v.version) for v in made if v.tags.get(_MODEL_ID_TAG) == model.model_id), None)
        if version is None:
            # A database would look for models:/ID in whatever store this process has for its own.
            source = f"models:/{model.model_id}" if self._uri.startswith("http") else model.artifact_location
            about = {**model.tags, **tags, _MODEL_ID_TAG: model.model_id}
            added = self._client.create_model_version(
                name, source, run_id=self._run_id, tags=about, model_id=model.model_id
            )
            version = int(added.version)
        if int(self._client.get_registered_model(name).aliases.get(alias, 0)) < version:
            self._client.set_registered_model_alias(name, alias, str(version))
        return version

    def _drop_unfinished(self, experiment_id: str) -> None:
        """A model whose upload was cut off would be found before a complete one."""
        for model in self._models(experiment_id):
            if model.status != LoggedModelStatus.READY:
                self._client.delete_logged_model(model.model_id)

    def _models(self, experiment_id: str) -> list[LoggedModel]:
        wanted = f"name = '{_MODEL}' AND source_run_id = '{self._run_id}'"
        return list(self._client.search_logged_models([experiment_id], wanted))

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return self._client.create_experiment(name, self._artifact_location())
            except MlflowException as error:
                found = self._client.get_experiment_by_name(name)  # another writer may have been faster
                if found is None:
                    raise error
        return found.experiment_id

    def _artifact_location(self) -> str | None:
        """A server has its own; a database would take ``mlruns`` in whatever the working directory is."""
        if self._uri.startswith("http"):
            return None
        file = sqlite_file(self._uri)
        base = file.parent if file else home() if "://" in self._storage else Path(self._storage)
        return (base / "mlflow-artifacts").as_uri()


def _batches(items: Mapping[str, str]) -> Iterator[dict[str, str]]:
    every = list(items.items())
    return (dict(every[start : start + _ITEMS_PER_CALL]) for start in range(0, len(every), _ITEMS_PER_CALL))


def _counterpart(run: Run) -> Counterpart:
    deleted = run.info.lifecycle_stage != "active"
    return Counterpart(
        run.info.run_id, run.info.status, deleted, run.data.params, run.data.tags, frozenset(run.data.metrics)
    )


def _dataset(card: DatasetCard) -> DatasetInput:
    columns = [{"name": name, "type": kind, "required": False} for name, kind in card.schema.items()]
    schema = json.dumps({"mlflow_colspec": columns})
    dataset = Dataset(
        name=card.name,
        digest=card.digest,
        source_type=_SOURCES.get(card.uri.partition("://")[0], "local"),
        source=json.dumps({"uri": card.uri}),
        schema=schema if len(schema) < 1_000_000 else None,
        profile=json.dumps(card.profile),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", card.context)])


def _requirements() -> list[str]:
    from importlib.metadata import version

    return [f"{name}=={version(name)}" for name in ("mlflow", "torch", "cloudpickle", "pliant")]


@contextlib.contextmanager
def _one_at_a_time(file: Path | None) -> Iterator[None]:
    """Two processes that find an SQLite file empty would both create its tables, and one would fail."""
    if file is None:
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file.with_name(f".{file.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
