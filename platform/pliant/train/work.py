"""What each worker of an attempt does: assemble the job, restore it, train, and tell how it ended.

claim an attempt ─► model, guards, shard ─► restore (verified, voted) ─► restore decision ─► loop
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import torch
from torch import nn

from pliant.checkpoint.digest import named_shards, parameter_digest
from pliant.checkpoint.interval import Losses, losses_of
from pliant.checkpoint.ranks import Ranks
from pliant.checkpoint.writer import CheckpointWriter
from pliant.config.dump import config_digest
from pliant.data.lanes import LaneStream, open_stream
from pliant.data.manifest import Manifest
from pliant.data.order import Piece, Window
from pliant.data.places import RowPlaces
from pliant.data.plan import DataState
from pliant.data.reading import locate, read_spec, read_window
from pliant.elastic.gate import Gate, LeftError, install
from pliant.observe.board import BoardReporter, Note, NullReporter, Reporter
from pliant.observe.output import Printed, output_log
from pliant.registry import PipelineRef
from pliant.settings import RunConfig, run_config_for
from pliant.storage.attempts import StopReason
from pliant.storage.store import Store
from pliant.track.system import NodeSampler
from pliant.train.checkpoints import Checkpoints
from pliant.train.evaluate import evaluate
from pliant.train.evaluation import Evaluation
from pliant.train.feed import BatchFeed
from pliant.train.guards import check_pipeline
from pliant.train.initial import Initial
from pliant.train.loop import Job, train
from pliant.train.observer import Observer
from pliant.train.optim import build_optimizer
from pliant.train.parallel import Workers, join_workers, shard_model
from pliant.train.phases import plan_course
from pliant.train.plan import DATA_MANIFESTS
from pliant.train.precision import conditions, resolve_device, resolve_precision
from pliant.train.protocols import Pipeline
from pliant.train.reports import Ask, NoReports, ReportPlan, Reports, TrialReports, evaluated_before
from pliant.train.restoring import Membership, join_run, restore_state
from pliant.train.retire import Retirement
from pliant.train.state import TrainState
from pliant.train.step import Step
from pliant.train.usercode import Blame, build_pipeline, describe_rows, user_code

_GUARD_ROWS = 8


@dataclass(frozen=True)
class WorkSpec:
    """What a worker needs to know; small and picklable.

    Attributes:
        run_uri: the run's storage.
        driver: attempt number of the driver that starts the group.
        pipeline: where the pipeline is.
        settings: complete ones, as plain values: the model of a pipeline's settings cannot be pickled.
        total_steps: the run's last step.
        validation: whether there is a validation set.
        initial: the parameters that the run begins with; None for the model's own.
        reports: of a trial, when it reports to its sweep; None for a run of its own.
    """

    name: str
    run_uri: str
    driver: int
    pipeline: PipelineRef
    settings: dict[str, Any]
    total_steps: int
    validation: bool
    initial: Initial | None = None
    reports: ReportPlan | None = None

    def config(self) -> RunConfig:
        """The settings, validated against the pipeline's own models."""
        return run_config_for(self.pipeline.model_settings()).model_validate(self.settings)


def work(
    spec: WorkSpec,
    *,
    local_rank: int,
    exchange: Callable[[list[Note]], int],
    reader: Literal["local", "ray"] = "local",
    ask: Ask | None = None,
) -> bool:
    """Runs one worker of a group whose process group exists. Collective.

    Args:
        local_rank: of this worker on its host.
        exchange: the board's.
        reader: of the training set: Ray Data, or threads in this process.
        ask: of a trial: reports to its sweep, and returns what that decides.

    Returns:
        Whether the run is done.

    Raises:
        PliantError: as the parts raise it; the run stays resumable.
        LeftError: the group was asked to leave, and its last state is committed.
    """
    gate = install()
    config = spec.config()
    threads = config.train.threads or max(1, int(config.elastic.resources_per_worker.get("CPU", 1)))
    torch.set_num_threads(threads)
    wants_gpu = config.elastic.resources_per_worker.get("GPU", 0) > 0
    device = resolve_device(config.train, wants_gpu=wants_gpu, local_rank=local_rank)
    workers = join_workers(device, save_timeout=config.run.store.retry_for + config.checkpoint.peer_timeout)
    reporter = BoardReporter(exchange) if workers.rank == 0 else NullReporter()
    store = Store(spec.run_uri, config.run.store, on_wait=_say_waiting(reporter, gate))
    member = join_run(store, workers, driver=spec.driver, reporter=reporter)
    tracking = config.tracking
    sampled = tracking.kind != "none" and local_rank == 0 and spec.reports is None
    sampling = tracking.system_every if sampled else None
    try:
        log, every_s = output_log(workers.rank), config.run.store.segment_every
        with Printed(store, member.number, log, reporter, every_s=every_s) as printed:
            gate.keep_printed = printed.keep
            now = conditions(config.train, device, threads)
            job = _assemble(spec, config, store, workers, member, gate, now, reader, ask)
            try:
                with NodeSampler(exchange, sampling):
                    state, done = train(job)
            finally:
                job.feed.close()
        left = gate.leaving and not done
        ended: StopReason = gate.cause if left else "sweep" if job.reports.told_to_leave else "signal"
        member.end("done" if done else ended, state)
        if left:
            raise LeftError(f"left after step {state.step}")
        return done
    finally:
        member.close()
        reporter.close()


def _assemble(
    spec: WorkSpec,
    config: RunConfig,
    store: Store,
    workers: Workers,
    member: Membership,
    gate: Gate,
    now: dict[str, Any],
    reader: Literal["local", "ray"],
    ask: Ask | None,
) -> Job:
    train_set = Manifest.from_bytes(store.get(DATA_MANIFESTS["train"]))
    pipeline = build_pipeline(spec.pipeline, config.model)
    columns = config.data.columns or pipeline.columns
    precision = resolve_precision(config.train)

    torch.manual_seed(config.seed)
    with user_code("model"):
        model = pipeline.model()
        blocks = pipeline.blocks(model)
    if config.train.reduction == "exact":
        rows = first_rows(train_set, config, columns)
        places = RowPlaces(train_set)
        about = describe_rows([places.of(0, row) for row in range(rows.num_rows)])
        check_pipeline(pipeline, model, rows, about=f"\n  {about}")
    model = shard_model(
        model,
        blocks,
        workers,
        precision,
        activation_checkpointing=config.train.activation_checkpointing,
    )
    with user_code("parameter_groups"):
        groups = list(pipeline.parameter_groups(model))
    with user_code(f"the optimizer {config.optim.kind}"):
        optimizer = build_optimizer(model, config.optim, groups)

    def begin() -> None:
        if spec.initial is not None:
            spec.initial.load(config, model, workers.host_group)

    state = restore_state(
        store, workers, member, model, optimizer, fresh=fresh_state(config), begin=begin, now=now,
        data_digest=train_set.digest, exact=config.train.reduction == "exact",
    )  # fmt: skip
    course = plan_course(config, train_set.rows, total_steps=spec.total_steps)
    observer = Observer(
        member.logs,
        member.reporter,
        workers,
        total_steps=spec.total_steps,
        log_every=config.train.log_every,
        digest=(lambda: parameter_digest(named_shards(model), workers.host_group, workers.rank))
        if config.train.audit
        else None,
    )
    writer = CheckpointWriter(store, member.number, check=member.check, group=workers.background_group)
    stream = open_stream(
        reader=reader,
        rank=workers.rank,
        world_size=workers.world_size,
        manifest=train_set,
        data=config.data,
        seed=config.seed,
        lanes=state.data.lanes,
        epoch=state.data.epoch,
        position=state.data.position,
        row_ids=config.train.audit,
        columns=columns,
    )
    feed = BatchFeed(
        stream,
        _without_ids(stream.empty()),
        pipeline,
        state.data,
        rows=train_set.rows,
        micro_batch=config.train.micro_batch,
        rank=workers.rank,
        world_size=workers.world_size,
        steps=max(0, spec.total_steps - state.step),
        prefetch=config.data.prefetch_batches,
        pin=workers.device.type == "cuda",
        blame=Blame(train_set, state.data, rank=workers.rank, unit="step"),
        first=state.step + 1,
        batch_at=course.batch,
    )
    reports: Reports = NoReports()
    evaluation = Evaluation(
        config.eval,
        pipeline,
        _measure(spec, config, store, pipeline, model, workers, columns, gate),
        observer,
        total_steps=spec.total_steps,
        reporting=lambda state: reports.due(state),
    )
    checkpoints = Checkpoints(
        config.checkpoint,
        writer,
        model,
        optimizer,
        observer,
        attempt=member.number,
        rank=workers.rank,
        data_digest=train_set.digest,
        config_digest=config_digest(config),
        code_version=spec.pipeline.code_digest,
        main_metric=pipeline.main_metric,
        restored=state,
        losses=losses_of(member.record.attempts()) if member.record is not None else Losses(),
        prune=_retirement(member, config, pipeline),
        saved=gate.saved,
        waits=gate.wait_for,
    )
    if spec.reports is not None and ask is not None:
        reports = TrialReports(
            spec.reports,
            ask,
            Ranks(workers.host_group),
            total_steps=spec.total_steps,
            values=lambda state: evaluation.values or evaluated_before(member.record, state),
            settle=checkpoints.settle,
            wait_for=gate.wait_for,
        )
    return Job(
        state=state,
        total_steps=spec.total_steps,
        step=Step(
            pipeline=pipeline,
            model=model,
            optimizer=optimizer,
            workers=workers,
            precision=precision,
            seed=config.seed,
            course=course,
        ),
        feed=feed,
        evaluation=evaluation,
        checkpoints=checkpoints,
        observer=observer,
        reports=reports,
        gate=gate,
    )


def _say_waiting(reporter: Reporter, gate: Gate) -> Callable[[str, float], None]:
    said_at = 0.0

    def waiting(reason: str, waited_s: float) -> None:
        nonlocal said_at
        gate.wait_for(f"storage: {reason}")
        if waited_s >= 1.0 and time.monotonic() - said_at > 10:
            said_at = time.monotonic()
            text = f"waiting for storage since {waited_s:.0f} s: {reason}"
            reporter.event({"kind": "storage-wait", "text": text, "time": round(time.time(), 3)})

    return waiting


def _retirement(member: Membership, config: RunConfig, pipeline: Pipeline[Any]) -> Callable[[], None]:
    if member.record is None or member.attempt is None:
        return lambda: None
    metric = pipeline.main_metric
    return Retirement(
        member.record, member.attempt, config.checkpoint, main_metric=metric, better=pipeline.metrics[metric]
    )


def fresh_state(config: RunConfig) -> TrainState:
    """Where a run begins."""
    data = config.data
    if data.lanes is None:
        raise ValueError("the configuration's lanes are not settled yet")
    return TrainState(
        step=0,
        tokens=0,
        data=DataState(
            samples=0,
            epoch=0,
            position=0,
            global_batch=config.train.global_batch,
            lanes=data.lanes,
            window=data.window,
            tail=data.tail,
            seed=config.seed,
        ),
    )


def first_rows(manifest: Manifest, config: RunConfig, columns: Any, *, count: int = _GUARD_ROWS) -> pa.Table:
    """A few rows, the same on every rank: ``count``, or what the first row group has."""
    spec = read_spec(manifest, config.data, columns=columns, row_ids=False)
    count = min(count, int(manifest.group_rows[0]))
    window = Window(epoch=0, lane=0, index=0, start=0, stop=count, pieces=(Piece(0, 0, count),))
    return read_window(spec, locate(manifest, window), None)


def _measure(
    spec: WorkSpec,
    config: RunConfig,
    store: Store,
    pipeline: Pipeline[Any],
    model: nn.Module,
    workers: Workers,
    columns: Any,
    gate: Gate,
) -> Callable[[], dict[str, float] | None] | None:
    if not spec.validation:
        return None
    manifest = Manifest.from_bytes(store.get(DATA_MANIFESTS["validation"]))
    micro_batch = config.eval.micro_batch or config.train.micro_batch
    lanes = config.data.lanes or 1
    state = DataState(
        samples=0, epoch=0, position=0, global_batch=lanes * micro_batch, lanes=lanes,
        window=config.data.window, tail="pad", seed=config.seed,
    )  # fmt: skip

    def open_validation() -> LaneStream:
        # Threads in the worker: an evaluation is short, and starting Ray Data for it would take longer than it saves.
        return open_stream(
            manifest=manifest, data=config.data, seed=config.seed, lanes=lanes, rank=workers.rank,
            world_size=workers.world_size, epoch=0, position=0, reader="local", shuffle=False,
            columns=columns, limit_epochs=1,
        )  # fmt: skip

    def measure() -> dict[str, float] | None:
        stream = open_validation()
        return evaluate(
            pipeline, model, workers,
            rows=manifest.rows, state=state, micro_batch=micro_batch, empty=stream.empty(), stream=stream,
            blame=Blame(manifest, state, rank=workers.rank, unit="evaluation batch", shuffle=False), gate=gate,
        )  # fmt: skip

    return measure


def _without_ids(table: pa.Table) -> pa.Table:
    from pliant.data.reading import ROW_COLUMN, ROW_GROUP_COLUMN

    return table.drop_columns([name for name in (ROW_GROUP_COLUMN, ROW_COLUMN) if name in table.column_names])
