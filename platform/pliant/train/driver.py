"""The driver of a run: claims it, starts the workers, shows how it goes, and records how it ended.

Launch ─► claim ─► workers ─► stop reason, exit code
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pliant.config.dump import config_to_dict
from pliant.elastic.policy import best_size
from pliant.errors import (
    EXIT_DONE,
    EXIT_INFRASTRUCTURE,
    EXIT_STOPPED,
    EXIT_UNSCHEDULABLE,
    EXIT_USAGE,
    EXIT_USER,
    DamageError,
    PliantError,
    UnschedulableError,
)
from pliant.observe.board import CONTROL_KINDS, Board, Note, NullReporter
from pliant.observe.console import Console
from pliant.observe.display import Display
from pliant.observe.output import DRIVER_LOG, Printed, leave_terminal_to_debuggers
from pliant.storage.attempts import Attempt, StopReason
from pliant.storage.layout import encode
from pliant.storage.segments import LogWriter
from pliant.storage.snapshot import CLUSTER
from pliant.track.background import start_tracking
from pliant.track.provenance import record_provenance
from pliant.track.system import SystemLog
from pliant.train.initial import Initial
from pliant.train.launch import Launch
from pliant.train.recorded import (
    record_start,
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
                work(work_spec(launch, attempt), local_rank=0, exchange=board.exchange)
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
            thread, box = in_thread(
                run_workers, config, work_spec(launch, attempt), lanes=launch.plan.lanes, board=board
            )
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


def work_spec(launch: Launch, attempt: Attempt) -> Any:
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
