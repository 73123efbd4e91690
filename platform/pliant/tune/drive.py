"""The driver of a sweep: claims it, rebuilds it from its log, runs its legs, and records how it ended.

SweepLaunch ─► claim, log ─► Sweep ─► Executor (thread) ─► SweepDesk ─► log ─► stop reason, exit code
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pliant.errors import (
    EXIT_DONE,
    EXIT_STOPPED,
    EXIT_UNSCHEDULABLE,
    EXIT_USER,
    DamageError,
    PliantError,
    UnschedulableError,
    UserCodeError,
)
from pliant.observe.board import NullReporter
from pliant.observe.console import Console
from pliant.observe.output import DRIVER_LOG, Printed
from pliant.observe.sweep_table import SweepTable
from pliant.storage.attempts import Attempt, StopReason
from pliant.storage.layout import encode
from pliant.storage.segments import LogWriter
from pliant.storage.snapshot import CLUSTER
from pliant.track.provenance import record_provenance
from pliant.train.recorded import record_start
from pliant.train.scratch import scratch_directory
from pliant.train.stopping import TERM_WITHIN_S, OutOfTime, Stopping
from pliant.train.worker import available_workers, cluster, in_thread, place, too_small
from pliant.tune.build import build_sweep
from pliant.tune.decisions import DecisionLog, open_log, replay
from pliant.tune.desk import SweepDesk
from pliant.tune.executor import Executor
from pliant.tune.launch import SweepLaunch
from pliant.tune.legs import RemoteBulletin
from pliant.tune.recorded import record_search
from pliant.tune.screen import sweep_lines
from pliant.tune.sweep import Finished
from pliant.tune.tracking.outbox import start_sweep_tracking
from pliant.tune.types import Entry

_LOOK_S = 0.2


@dataclass(frozen=True)
class SweepEnding:
    """How a driver of a sweep ended.

    Attributes:
        reason: as recorded.
        exit_code: of the process.
        uri: of the sweep.
        text: for people.
        error: what ended it, if an error did.
    """

    reason: StopReason
    exit_code: int
    uri: str
    text: str
    error: PliantError | None = None


def drive_sweep(launch: SweepLaunch, console: Console) -> SweepEnding:
    """Runs a sweep to its end and records why it ended. Errors are in the result, not raised."""
    record = launch.record
    attempt = record.claim_driver()
    record_start(attempt, launch.base, launch.origins, launch.code)
    record_search(attempt, launch.search.settings, launch.content)
    record_provenance(attempt, launch.ref.file, launch.ref.code_digest)
    console.start(sweep_lines(launch))
    log, entries = open_log(record, attempt)
    tracking = start_sweep_tracking(record, launch.ref, launch.base, console.warn)
    events = LogWriter(record.store, attempt, "events", every_s=launch.base.run.store.segment_every)
    stopping = Stopping(console.warn)

    def requested(request: dict[str, Any]) -> None:
        stopping.ask("request", f"pliant stop, from pid {request.get('pid')} on host {request.get('host')}")

    with attempt.heartbeat(on_stop=requested), console.takes_warnings():
        try:
            with stopping.signals():
                ending = _drive(launch, attempt, log, entries, console, stopping)
        except OutOfTime:
            console.warn(f"no checkpoint of every trial within {TERM_WITHIN_S:.0f} s of SIGTERM: their last ones serve")
            ending = SweepEnding("signal", EXIT_STOPPED, record.store.uri, "stopped")
        except SystemExit:  # Ray takes SIGTERM while it starts, and answers it so
            ending = SweepEnding("signal", EXIT_STOPPED, record.store.uri, "stopped before it began")
        except KeyboardInterrupt:
            with suppress(PliantError):
                attempt.stop("signal", "interrupted at once")
            raise
        events.append({"kind": "end", "text": ending.reason, "time": time.time()})
        for close in (events.close, log.close):
            with suppress(PliantError):
                close()
        with suppress(PliantError):
            attempt.stop(ending.reason, str(ending.error or ", ".join(stopping.causes) or ending.text))
    settings = launch.base.tracking
    tracking.finish(stopping.time_left(settings.stop_within) if ending.reason == "signal" else settings.finish_within)
    return ending


def _drive(
    launch: SweepLaunch,
    attempt: Attempt,
    log: DecisionLog,
    entries: list[Entry],
    console: Console,
    stopping: Stopping,
) -> SweepEnding:
    store, base, usual = launch.record.store, launch.base, launch.search.workers.usual
    noise = Printed(store, attempt.number, DRIVER_LOG, NullReporter(), every_s=base.run.store.segment_every)
    console.event(f"starting Ray (cluster.address {base.cluster.address}) …")
    stopping.shield()
    try:
        here = slots_here(launch) if base.cluster.address == "local" else 0
    except UnschedulableError as error:
        return SweepEnding("infrastructure", EXIT_UNSCHEDULABLE, store.uri, error.message, error)
    with noise, scratch_directory("pliant-sweep-") as scratch, cluster(base, workers=here * usual):
        stopping.arm()
        attempt.write(CLUSTER, encode(place()))
        slots = here or launch.search.settings.slots or available_workers(base) // usual
        if available_workers(base) < usual:
            refusal = too_small(base, available_workers(base))
            return SweepEnding("infrastructure", EXIT_UNSCHEDULABLE, store.uri, refusal.message, refusal)
        sweep = build_sweep(launch.search, slots=slots, record=log.record)
        replay(entries, sweep)
        sweep.begin(launch.search.settings, launch.narrowed)
        bulletin = RemoteBulletin()
        stopping.attach(bulletin.request)
        desk = SweepDesk(launch, sweep, bulletin.request, asked=lambda: stopping.asked)
        table = SweepTable(console)
        executor = Executor(desk, bulletin, folder=scratch, slots=slots)
        thread, box = in_thread(executor.run)
        while thread.is_alive():
            thread.join(_LOOK_S)  # short, so that signals are seen
            table.show(desk.screen)
        table.show(desk.screen, now=True)
        console.close()
    return _ending(store.uri, box.get("error"), desk.finished, stopping)


def slots_here(launch: SweepLaunch) -> int:
    """Trials at once on this machine alone.

    Raises:
        UnschedulableError: not one fits.
    """
    if launch.search.settings.slots is not None:
        return launch.search.settings.slots
    if launch.base.cluster.nodes > 1:  # each of them holds one worker
        return max(1, launch.base.cluster.nodes // launch.search.workers.usual)
    cpus = os.cpu_count() or 1
    need = launch.base.elastic.resources_per_worker.get("CPU", 1.0) * launch.search.workers.usual
    if need > cpus:
        raise UnschedulableError(
            "sweep.too-large",
            f"a trial needs {need:g} CPUs ({launch.search.workers.usual} × elastic.resources_per_worker), this machine"
            f" has {cpus}",
            hint="lower elastic.resources_per_worker or elastic.min_workers, or say how many trials share the machine"
            " all the same: sweep.slots",
        )
    return max(1, int(cpus // need)) if need else cpus


def _ending(uri: str, raised: BaseException | None, finished: Finished | None, stopping: Stopping) -> SweepEnding:
    if isinstance(raised, PliantError):
        reason: StopReason = "damage" if isinstance(raised, DamageError) else "infrastructure"
        return SweepEnding(reason, raised.exit_code, uri, raised.message, raised)
    if raised is not None:
        raise raised
    if finished is None:
        return SweepEnding("signal", stopping.exit_code, uri, "stopped")
    if finished.reason == "user":
        error = UserCodeError("sweep.failures", finished.text, hint="mend the pipeline, then resume with --accept-code")
        return SweepEnding("user", EXIT_USER, uri, finished.text, error)
    if finished.reason == "limit":
        return SweepEnding("limit", EXIT_STOPPED, uri, finished.text)
    return SweepEnding("done", EXIT_DONE, uri, finished.text)
