"""The driver of a run: claims it, starts the workers, shows how it goes, and records how it ended.

new run    find datasets ─► plan ─► run.json, manifests ─┐
resume     read record, owner gone? ─► compare settings ─┴► claim ─► workers ─► stop reason, exit code
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

from pliant.config.dump import config_to_dict
from pliant.config.overrides import Overrides
from pliant.config.resume import ResumeChanges, compare_for_resume
from pliant.configure import absolute_paths, load_config
from pliant.data.manifest import Manifest
from pliant.elastic.policy import best_size
from pliant.errors import (
    EXIT_DONE,
    EXIT_INFRASTRUCTURE,
    EXIT_STOPPED,
    EXIT_UNSCHEDULABLE,
    EXIT_USAGE,
    EXIT_USER,
    ConfigError,
    DamageError,
    PliantError,
    UnschedulableError,
    UsageError,
    listed,
)
from pliant.observe.board import CONTROL_KINDS, Board, Note, NullReporter
from pliant.observe.console import Console
from pliant.observe.display import Display
from pliant.observe.output import DRIVER_LOG, Printed, leave_terminal_to_debuggers
from pliant.registry import PipelineRef, find_pipeline
from pliant.settings import RunConfig
from pliant.storage.attempts import Attempt, StopReason
from pliant.storage.layout import encode
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.snapshot import CLUSTER
from pliant.storage.store import Store
from pliant.track.background import start_tracking
from pliant.track.provenance import record_provenance
from pliant.track.settings import settle_uri
from pliant.track.system import SystemLog
from pliant.train.initial import Initial, settle_initial
from pliant.train.plan import DATA_MANIFESTS, Datasets, RunPlan, find_datasets, make_plan
from pliant.train.recorded import (
    Code,
    CodeChange,
    check_code,
    has_begun,
    load_recorded,
    pipeline_identity,
    record_start,
    recorded_pipeline,
)
from pliant.train.screen import start_lines
from pliant.train.stopping import TERM_WITHIN_S, OutOfTime, Stopping

_REASONS: dict[int, StopReason] = {
    EXIT_DONE: "done",
    EXIT_USER: "user",
    EXIT_USAGE: "user",
    EXIT_UNSCHEDULABLE: "limit",
    EXIT_INFRASTRUCTURE: "infrastructure",
    EXIT_STOPPED: "infrastructure",
}


@dataclass(frozen=True)
class Launch:
    """Everything a driver start needs, whether the run is new or resumed.

    Attributes:
        code: the pipeline's files.
        changes: settings that a resume changes; None for a new run.
        code_changes: what a resume accepts as changed in the pipeline's files.
    """

    name: str
    record: RunRecord
    ref: PipelineRef
    config: RunConfig
    origins: dict[str, str]
    datasets: Datasets
    plan: RunPlan
    in_process: bool
    code: Code
    changes: ResumeChanges | None = None
    code_changes: tuple[CodeChange, ...] = ()


@dataclass(frozen=True)
class Ending:
    """How a driver ended.

    Attributes:
        reason: as recorded.
        exit_code: of the process.
        uri: of the run.
        step: last step that was seen.
        error: what ended it, if an error did.
        values: figures of the last evaluation.
        rate, unit: mean speed over this start's steps, per second.
    """

    reason: StopReason
    exit_code: int
    uri: str
    step: int
    total_steps: int
    error: PliantError | None = None
    values: dict[str, float] = field(default_factory=dict)
    rate: float | None = None
    unit: str = "rows"


def new_run(pipeline: str, overrides: Overrides, *, name: str | None, in_process: bool) -> Launch:
    """Settles everything about a new run and begins its record.

    Raises:
        ConfigError, UsageError, DamageError: nothing has been started then; the record exists only after all checks.
    """
    ref = find_pipeline(pipeline)
    config, origins = load_config(ref, overrides)
    config = _absolute(config, origins)
    initial = settle_initial(config)
    if initial is not None:
        initial.check(config, ref.load())
        origins["init.from"] = f"derived: {initial.text}"
        config = config.model_copy(update={"init": config.init.model_copy(update={"from_": initial.place})})
    datasets = find_datasets(config)
    plan = _plan(config, ref, datasets, in_process=in_process)
    name = name or f"{ref.name}-{time.strftime('%m%d-%H%M%S')}"
    store = Store(config.run.storage, config.run.store).child(name)
    record = RunRecord.create(
        store,
        {
            "name": name,
            **pipeline_identity(ref),
            "pliant": version("pliant"),
            "data_digest": datasets.train.digest,
            "validation_digest": datasets.validation.digest if datasets.validation else None,
            "lanes": config.data.lanes,
            "seed": config.seed,
            "init": initial.to_dict() if initial else None,
        },
    )
    store.put_if_absent(DATA_MANIFESTS["train"], datasets.train.to_bytes())
    if datasets.validation:
        store.put_if_absent(DATA_MANIFESTS["validation"], datasets.validation.to_bytes())
    return Launch(name, record, ref, config, origins, datasets, plan, in_process, Code.of(ref))


def resumed_run(
    store: Store,
    overrides: Overrides,
    *,
    take_over: bool,
    in_process: bool,
    accept_code: bool = False,
    waiting: Callable[[str], None] = lambda text: None,
) -> Launch:
    """Settles everything about going on with a run.

    Args:
        store: the run's.
        take_over: fence a living owner instead of refusing.
        accept_code: go on with what has changed in the pipeline's files, instead of refusing.
        waiting: told whom is being waited for.

    Raises:
        UsageError: there is no such run, its owner lives, or its pipeline's files have changed.
        ConfigError: a frozen setting was changed, or the dataset is another one.
    """
    record = RunRecord.open(store)
    owner = record.owner()
    if owner is not None and not take_over:
        told = threading.Event()

        def tell(left: float) -> None:
            if not told.is_set():
                told.set()
                waiting(f"waiting up to {left:.0f} s for a sign of life of {owner.describe()}")

        if record.wait_for_owner(owner, tell):
            raise UsageError(
                "run.owned",
                f"the run is being driven by {owner.describe()}",
                hint="stop that one first, or resume with --take-over to fence it",
                location=store.uri,
            )
    ref = recorded_pipeline(record)
    code, code_changes = check_code(record, ref, accept=accept_code)
    old, _ = load_recorded(record, ref)
    config, origins = load_recorded(record, ref, overrides)
    config = _absolute(config, origins)
    changes = compare_for_resume(old, config, begun=has_begun(record))
    datasets = find_datasets(config)
    _same_data(store, record, datasets)
    return Launch(
        str(record.identity["name"]),
        record,
        ref,
        config,
        origins,
        datasets,
        _plan(config, ref, datasets, in_process=in_process),
        in_process,
        code,
        changes,
        tuple(code_changes),
    )


def drive(launch: Launch, console: Console) -> Ending:
    """Runs the workers to their end and records why they ended. Errors are in the result, not raised."""
    attempt = launch.record.claim_driver()
    record_start(attempt, launch.config, launch.origins, launch.code)
    record_provenance(attempt, launch.ref.file, launch.ref.code_digest)
    console.start(start_lines(launch))
    tracking = start_tracking(launch.record, launch.ref, launch.config, console.warn)
    system = SystemLog(launch.record.store, attempt, float(launch.record.identity["created"]))
    events = LogWriter(launch.record.store, attempt, "events", every_s=launch.config.run.store.segment_every)
    for change in (*launch.changes.curve, *launch.changes.free) if launch.changes else ():
        events.append({"kind": "setting", "text": f"changed {change}", "time": time.time()})
    for file in launch.code_changes:
        events.append({"kind": "code", "text": f"changed code was accepted: {file}", "time": time.time()})
    stopping = Stopping(console.warn)

    def requested(request: dict[str, Any]) -> None:
        stopping.ask("request", f"pliant stop, from pid {request.get('pid')} on host {request.get('host')}")

    with attempt.heartbeat(on_stop=requested), console.takes_warnings():
        try:
            with stopping.signals():
                drive_it = _drive_here if launch.in_process else _drive_ray
                ending = drive_it(launch, attempt, console, system, events, stopping)
        except OutOfTime:
            console.warn(f"no checkpoint within {TERM_WITHIN_S:.0f} s of SIGTERM: the last one serves")
            ending = Ending("signal", EXIT_STOPPED, launch.record.store.uri, 0, launch.plan.steps)
        except SystemExit:
            if launch.in_process:
                raise
            # Ray takes SIGTERM while it starts, and answers it so: there is nothing to save yet.
            ending = Ending("signal", EXIT_STOPPED, launch.record.store.uri, 0, launch.plan.steps)
        except KeyboardInterrupt:
            _quietly(lambda: attempt.stop("signal", "interrupted at once"))
            raise
        events.append({"kind": "end", "text": ending.reason, "step": ending.step, "time": time.time()})
        system.close()
        _quietly(events.close)
        _quietly(lambda: attempt.stop(ending.reason, str(ending.error or ", ".join(stopping.causes))))
    settings = launch.config.tracking
    tracking.finish(stopping.time_left(settings.stop_within) if ending.reason == "signal" else settings.finish_within)
    return ending


def _drive_here(
    launch: Launch, attempt: Attempt, console: Console, system: SystemLog, events: LogWriter, stopping: Stopping
) -> Ending:
    """In this process, on the main thread: debuggers work, and no Ray is started."""
    from pliant.train.parallel import single_process_group
    from pliant.train.work import work

    board = Board()
    stopping.attach(board.request)
    with Display(system.tap(board.drain), console) as display:
        error = None
        try:
            with single_process_group(), leave_terminal_to_debuggers(console):
                work(_spec(launch, attempt), local_rank=0, exchange=board.exchange)
        except PliantError as own:
            error = own
    return _ending(launch, display, error, stopping)


def _drive_ray(
    launch: Launch, attempt: Attempt, console: Console, system: SystemLog, events: LogWriter, stopping: Stopping
) -> Ending:
    from pliant.train.worker import RemoteBoard, available_workers, cluster, in_thread, place, run_workers, too_small

    config, workers, every_s = launch.config, launch.plan.workers, launch.config.run.store.segment_every
    error: PliantError | None = None
    noise = Printed(launch.record.store, attempt.number, DRIVER_LOG, NullReporter(), every_s=every_s)
    console.event(f"starting Ray (cluster.address {config.cluster.address}) …")
    stopping.shield()
    with noise, cluster(config, workers=workers):
        stopping.arm()
        attempt.write(CLUSTER, encode(place()))
        fitting = available_workers(config)
        workers = best_size(launch.plan.lanes, config.elastic.min_workers, config.elastic.max_workers, fitting=fitting)
        refusal = _too_little(launch, workers) if workers else too_small(config, fitting)
        if refusal is not None:
            console.close()
            return Ending("limit", EXIT_UNSCHEDULABLE, launch.record.store.uri, 0, launch.plan.steps, refusal)
        if stopping.asked:  # before anything was started that would have to be saved
            return Ending("signal", stopping.exit_code, launch.record.store.uri, 0, launch.plan.steps)
        board = RemoteBoard.start()
        stopping.attach(board.request)
        with Display(system.tap(_recording(board.drain, events)), console) as display:
            thread, box = in_thread(run_workers, config, _spec(launch, attempt), lanes=launch.plan.lanes, board=board)
            while thread.is_alive():
                thread.join(0.2)  # short, so that signals are seen
            raised = box.get("error")
            if raised is not None and not isinstance(raised, PliantError):
                raise raised
            error = raised
    return _ending(launch, display, error, stopping)


def _recording(drain: Callable[[], list[Note]], events: LogWriter) -> Callable[[], list[Note]]:
    """The board's notes; those of the controller, which writes no log of its own, are recorded on the way."""

    def drained() -> list[Note]:
        notes = drain()
        for note in notes:
            if note["kind"] in CONTROL_KINDS:
                events.append(note)
        return notes

    return drained


def _too_little(launch: Launch, workers: int) -> PliantError | None:
    """Why the nodes of a cluster that was joined cannot hold these workers; the memory of this machine was checked."""
    from pliant.train.capacity import Rooms
    from pliant.train.sizing import Sizing
    from pliant.train.worker import node_room

    config = launch.config
    if config.cluster.address == "local" or "memory" in config.elastic.resources_per_worker:
        return None
    sizing = Sizing(config, launch.ref.load(), launch.datasets)
    try:
        sizing.refuse_what_does_not_fit((workers,), lambda count: Rooms(node_room(config, count)))
    except UnschedulableError as error:
        return error
    return None


def _spec(launch: Launch, attempt: Attempt) -> Any:
    from pliant.train.work import WorkSpec

    return WorkSpec(
        name=launch.name,
        run_uri=launch.record.store.uri,
        driver=attempt.number,
        pipeline=launch.ref,
        settings=config_to_dict(launch.config),
        total_steps=launch.plan.steps,
        validation=launch.datasets.validation is not None,
        initial=Initial(**launch.record.identity["init"]) if launch.record.identity.get("init") else None,
    )


def _ending(launch: Launch, display: Display, error: PliantError | None, stopping: Stopping) -> Ending:
    uri, step = launch.record.store.uri, int(display.progress.get("step", 0))
    rest: dict[str, Any] = {"values": display.values(), "rate": display.mean_rate(), "unit": display.unit}
    total = launch.plan.steps
    if error is not None:
        reason: StopReason = "damage" if isinstance(error, DamageError) else _REASONS[error.exit_code]
        return Ending(reason, error.exit_code, uri, step, total, error, **rest)
    if display.ended.get("done"):
        return Ending("done", EXIT_DONE, uri, int(display.ended["step"]), total, **rest)
    return Ending("signal", stopping.exit_code, uri, int(display.ended.get("step", step)), total, **rest)


def _quietly(call: Callable[[], Any]) -> None:
    """What is written last must not hide how the run ended."""
    try:
        call()
    except PliantError:
        return


def _plan(config: RunConfig, ref: PipelineRef, datasets: Datasets, *, in_process: bool) -> RunPlan:
    from pliant.train.sizing import Sizing, local_rooms
    from pliant.train.trial import try_pipeline

    pipeline = ref.load()
    columns = config.data.columns or pipeline.columns
    allowed = (1, 1) if in_process else (config.elastic.min_workers, config.elastic.max_workers)
    workers = best_size(config.data.lanes or 1, *allowed)
    plan = make_plan(config, datasets, tuple(columns) if columns else None, workers=workers)
    sizing = Sizing(config, pipeline, datasets)
    sizing.refuse_what_does_not_fit((allowed[0], workers), local_rooms(config, in_process=in_process))
    try_pipeline(ref, config, datasets, sizing, in_process=in_process)
    return replace(plan, memory=sizing.at(workers))


def _absolute(config: RunConfig, origins: dict[str, str]) -> RunConfig:
    """Paths as every worker and every later resume can use them, whatever its working directory and environment."""
    config, tracking = absolute_paths(config), config.tracking
    if tracking.kind != "none":
        uri, origin = settle_uri(tracking, config.run.storage, os.environ)
        tracking = tracking.model_copy(update={"uri": uri})
        origins.update({"tracking.uri": f"derived: {origin}"} if origin else {})
    return config.model_copy(update={"tracking": tracking})


def _same_data(store: Store, record: RunRecord, datasets: Datasets) -> None:
    """Refuses a dataset that is not the run's, with the difference."""
    pairs = {"train": (record.identity["data_digest"], datasets.train)}
    if datasets.validation is not None:
        pairs["validation"] = (record.identity["validation_digest"], datasets.validation)
    for split, (digest, found) in pairs.items():
        if digest != found.digest:
            recorded = Manifest.from_bytes(store.get(DATA_MANIFESTS[split]))
            raise ConfigError(
                "data.changed",
                f"the {split} set is not the one that the run was started with:{listed(recorded.diff(found), 20)}",
                hint="put the dataset back, point data.path to a copy of it, or start a new run",
                location=found.root,
            )
