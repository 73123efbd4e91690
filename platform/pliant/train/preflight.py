"""Checks all of a run that can fail before it starts, on this machine and in a run of its own that is removed again.

memory ─► storage ─► data ─► batches ─► checkpoint ─► restore ─► tracking

What stands in the way of a check keeps it from being made; all others are made, so that one look shows everything.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pliant.checkpoint.verify import verify_checkpoints
from pliant.config.dump import config_to_dict
from pliant.configure import absolute_paths
from pliant.elastic.policy import best_size
from pliant.errors import DamageError, PliantError, StorageError
from pliant.observe.board import Board
from pliant.registry import PipelineRef
from pliant.settings import RunConfig
from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.storage.store import Store
from pliant.track.settings import masked, settle_uri
from pliant.track.tracker import Card
from pliant.train.initial import Initial, settle_initial
from pliant.train.parallel import single_process_group
from pliant.train.plan import DATA_MANIFESTS, Datasets, find_datasets, make_plan
from pliant.train.recorded import Code, pipeline_identity, record_start
from pliant.train.sizing import Sizing, local_rooms
from pliant.train.work import WorkSpec, work
from pliant.units import format_bytes

Status = Literal["ok", "failed", "skipped"]
_PROBE_BYTES = 32 * 2**20
_STEPS = 2
_PATIENCE_S = 20.0
"""How long storage and tracking may take to answer: someone is waiting for the result."""
_FOLDER = "preflight"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        detail: what was found, or why it was not looked at.
        error: what is wrong, with what to change.
    """

    name: str
    status: Status
    seconds: float
    detail: str
    error: PliantError | None = None


class Skip(Exception):
    """There is nothing to look at, and why."""


class Preflight:
    """The checks of one configuration.

    Args:
        done: told of each check as it is made.
        in_process: the run would be started with ``--in-process``.
    """

    def __init__(
        self,
        ref: PipelineRef,
        config: RunConfig,
        origins: dict[str, str],
        done: Callable[[Check], None],
        *,
        in_process: bool = False,
    ) -> None:
        self._ref, self._origins, self._done, self._in_process = ref, origins, done, in_process
        self._config = _patient(absolute_paths(config))
        name = f"{_FOLDER}-{uuid.uuid4().hex[:12]}"
        self._store = Store(self._config.run.storage, self._config.run.store).child(name)
        self._datasets: Datasets | None = None
        self._record: RunRecord | None = None
        self._initial: Initial | None = None
        self._checks: list[Check] = []

    def run(self) -> list[Check]:
        """Makes all checks, and removes what they wrote."""
        try:
            self._check("data", self._data)
            self._check("schedule", self._schedule, "data")
            self._check("storage", self._storage)
            before = ["data", "storage"]
            if self._config.init.from_ is not None:
                self._check("init", self._init)
                before.append("init")
            self._check("batches", self._batches, *before)
            self._check("checkpoint", self._checkpoint, "batches")
            self._check("restore", self._restore, "checkpoint")
            self._check("tracking", self._tracking)
        finally:
            self._remove()
        return self._checks

    def _check(self, name: str, look: Callable[[], str], *needs: str) -> None:
        missing = [c.name for c in self._checks if c.name in needs and c.status != "ok"]
        started = time.monotonic()
        status: Status = "ok"
        error = None
        if missing:
            status, detail = "skipped", f"needs {', '.join(missing)}"
        else:
            try:
                detail = look()
            except Skip as reason:
                status, detail = "skipped", str(reason)
            except PliantError as found:
                status, detail, error = "failed", found.message.partition("\n")[0], found
        check = Check(name, status, round(time.monotonic() - started, 3), detail, error)
        self._checks.append(check)
        self._done(check)

    def _data(self) -> str:
        self._datasets = find_datasets(self._config)
        train = self._datasets.train
        size = format_bytes(sum(file.size for file in train.files))
        return f"{train.rows:,} rows, {len(train.files)} files, {size}, digest {train.digest[:12]}"

    def _schedule(self) -> str:
        """Whether the plan holds and each worker's memory is there. CPUs are shared where there are too few."""
        config, pipeline, datasets = self._config, self._ref.load(), self._found
        elastic = config.elastic
        fewest, most = (1, 1) if self._in_process else (elastic.min_workers, elastic.max_workers)
        workers = best_size(config.data.lanes or 1, fewest, most)
        columns = config.data.columns or pipeline.columns
        make_plan(config, datasets, tuple(columns) if columns else None, workers=workers)
        if config.cluster.address != "local" and not self._in_process:
            raise Skip(f"cluster.address is {config.cluster.address}: only this machine is looked at")
        sizing, rooms = Sizing(config, pipeline, datasets), local_rooms(config, in_process=self._in_process)
        sizing.refuse_what_does_not_fit((fewest, workers), rooms)
        _refuse_missing_gpus(elastic.resources_per_worker.get("GPU", 0.0) * fewest)
        wanted, cpus = elastic.resources_per_worker.get("CPU", 1.0) * workers, os.cpu_count() or 1
        memory = sizing.at(workers)
        each = format_bytes(memory.host.bytes) + " each" if memory else "memory unknown"
        words = [f"{workers} worker{'s' * (workers > 1)}", each]
        return ", ".join([*words, *([f"{wanted:g} CPUs wanted, {cpus} here: shared"] if wanted > cpus else [])])

    def _storage(self) -> str:
        """Creates once only, writes and reads back with measured speed, lists."""
        store, content = self._store, os.urandom(2**20)
        if not store.put_if_absent("probe.json", b"1") or store.put_if_absent("probe.json", b"2"):
            message = "it lets a second writer create what is there already, and runs rely on that it does not"
            raise StorageError("preflight.create", message, hint="put the run elsewhere", location=store.uri)
        started = time.monotonic()
        with store.open_writer("probe.bin") as file:
            for _ in range(_PROBE_BYTES // len(content)):
                file.write(content)
        written = time.monotonic()
        with store.open_reader("probe.bin") as reader:
            whole = all(reader.read(len(content)) == content for _ in range(_PROBE_BYTES // len(content)))
        read = time.monotonic()
        if not whole or "probe.bin" not in [info.key for info in store.list()]:
            message = "what was written is not what is read back"
            raise DamageError("preflight.differs", message, hint="check the storage", location=store.uri)
        speeds = (_PROBE_BYTES / max(written - started, 1e-9), _PROBE_BYTES / max(read - written, 1e-9))
        return f"{self._config.run.storage}: writes {format_bytes(speeds[0])}/s, reads {format_bytes(speeds[1])}/s"

    def _init(self) -> str:
        """Whether the parameters to begin with are there and fit the model; the steps begin with them."""
        self._initial = settle_initial(self._config)
        if self._initial is None:
            raise Skip("init.from is not set")
        self._initial.check(self._config, self._ref.load())
        return self._initial.text

    def _batches(self) -> str:
        """Two steps of a real run: read, collate, forward, backward, reduce, update. A checkpoint ends it."""
        store, found = self._store.child("run"), self._found
        identity = {
            "name": _FOLDER,
            **pipeline_identity(self._ref),
            "data_digest": found.train.digest,
            "validation_digest": None,
            "lanes": self._config.data.lanes,
            "seed": self._config.seed,
        }
        self._record = RunRecord.create(store, identity)
        store.put_if_absent(DATA_MANIFESTS["train"], found.train.to_bytes())
        self._work()
        steps = list(read_log(store, self._record.view(), "metrics"))
        read, computed = (sum(step[key] for step in steps) for key in ("data_s", "step_s"))
        rows = _small(self._config).train.global_batch
        loss = ", ".join(f"{step['loss']:.4g}" for step in steps)
        return f"{len(steps)} of {rows} rows: read {read:.2f} s, forward and backward {computed:.2f} s, loss {loss}"

    def _checkpoint(self) -> str:
        """Reads every byte of what the run saved."""
        record = self._saved
        (report,) = verify_checkpoints(record.store, record.view().checkpoints())
        if report.status != "intact":
            problems = "; ".join(report.problems)
            raise DamageError("preflight.checkpoint", f"it is {report.status}: {problems}", hint="check the storage")
        (event,) = [e for e in read_log(record.store, record.view(), "events") if e["kind"] == "checkpoint"]
        size, stall = format_bytes(report.bytes), event["stall_s"]
        return f"{size} written in {event['background_s']:.2f} s (a stall of {stall:.2f} s), read back and verified"

    def _restore(self) -> str:
        """Lets a second attempt start from it."""
        record = self._saved
        before = record.view().checkpoints()[0]
        self._work()
        start = [e for e in read_log(record.store, record.view(), "events") if e["kind"] == "start"][-1]
        if start["restored"] != before.name:
            raise DamageError("preflight.restore", f"it started from {start['restored']}, not from {before.name}")
        return f"a second attempt goes on from step {before.step}"

    def _tracking(self) -> str:
        tracking, storage = self._config.tracking, self._config.run.storage
        if tracking.kind == "none":
            raise Skip("tracking.kind is none")
        uri = masked(settle_uri(tracking, storage, os.environ)[0])
        try:
            from pliant.track.mlflow import MlflowTracker

            tracker = MlflowTracker(settle_uri(tracking, storage, os.environ)[0], storage)
            tracker.find(Card(uuid.uuid4().hex, _FOLDER, tracking.experiment or self._ref.name, 0))
        except Exception as error:
            message = f"MLflow cannot be reached: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            hint = "start the server, correct tracking.uri, or train without: the run would catch up later"
            raise StorageError("preflight.tracking", masked(message), hint=hint, location=uri) from error
        return f"{uri} answers"

    def _work(self) -> None:
        record, config = self._saved, _small(self._config)
        attempt = record.claim_driver()
        record_start(attempt, config, self._origins, Code.of(self._ref))
        spec = WorkSpec(
            name=_FOLDER,
            run_uri=record.store.uri,
            driver=attempt.number,
            pipeline=self._ref,
            settings=config_to_dict(config),
            total_steps=_STEPS,
            validation=False,
            initial=self._initial,
        )
        with single_process_group():
            work(spec, local_rank=0, exchange=Board().exchange)
        attempt.stop("done")

    @property
    def _found(self) -> Datasets:
        if self._datasets is None:
            raise RuntimeError("the dataset was not found")
        return self._datasets

    @property
    def _saved(self) -> RunRecord:
        if self._record is None:
            raise RuntimeError("no run was begun")
        return self._record

    def _remove(self) -> None:
        with suppress(PliantError):
            for info in self._store.list():
                self._store.delete(info.key)
        if self._store.is_local:
            shutil.rmtree(self._store.local_path(), ignore_errors=True)


def _patient(config: RunConfig) -> RunConfig:
    store = config.run.store
    short = store.model_copy(update={"retry_for": min(store.retry_for, _PATIENCE_S)})
    return config.model_copy(update={"run": config.run.model_copy(update={"store": short})})


def _small(config: RunConfig) -> RunConfig:
    """The same with one micro-batch a lane: every kind of work, in little time. Nobody else is told."""
    lanes = config.data.lanes or 1
    rows = lanes * min(config.train.global_batch // lanes, config.train.micro_batch)
    parts: dict[str, Any] = {
        "train": {"global_batch": rows, "audit": False, "log_every": 1},
        "eval": {"every_steps": None, "at_end": False},
        "checkpoint": {"every_steps": None},
        "tracking": {"kind": "none"},
    }
    return config.model_copy(
        update={name: getattr(config, name).model_copy(update=changes) for name, changes in parts.items()}
    )


def _refuse_missing_gpus(wanted: float) -> None:
    import torch

    from pliant.errors import UnschedulableError

    there = torch.cuda.device_count()
    if wanted > there:
        raise UnschedulableError(
            "preflight.gpus",
            f"elastic.min_workers need {wanted:g} GPUs by elastic.resources_per_worker; this machine has {there}",
            hint="use fewer workers, leave GPU out of elastic.resources_per_worker, or name a cluster.address",
        )
