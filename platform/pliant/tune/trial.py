"""A leg of a trial, in the process that was given it: its run's record, the work itself, and how it ended.

LegSpec ─► run of the trial: begin or open, claim ─► work (one worker: here; several: a Ray Train group) ─► Outcome

Processes are reused, one leg after the other: what a leg leaves in its process is undone here.
"""

from __future__ import annotations

import ctypes
import gc
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from pliant.checkpoint.clone import begin_clone, checkpoint_at
from pliant.elastic.control import LostGroupError
from pliant.errors import FencedError, PliantError, UserCodeError
from pliant.observe.board import Note
from pliant.registry import PipelineRef
from pliant.settings import RunConfig, run_config_for
from pliant.storage.attempts import Attempt, StopReason
from pliant.storage.layout import RUN, CheckpointRef
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.train.parallel import single_process_group
from pliant.train.plan import DATA_MANIFESTS
from pliant.train.recorded import Code, record_start
from pliant.train.reports import Ask, ReportPlan
from pliant.train.work import WorkSpec, work
from pliant.tune.types import Cause

_LONGEST_TEXT = 10_000
"""Characters of an error that the sweep's log keeps: its end, where it says what happened."""
Exchange = Callable[[list[Note]], int]
Group = Callable[[RunConfig, WorkSpec, Ask], None]
"""Runs several workers elsewhere, of which the first makes the reports, until their work ends."""


@dataclass(frozen=True)
class Donor:
    """Whose state a generation begins with: the run's URI, and the samples of its report."""

    uri: str
    samples: int


@dataclass(frozen=True)
class LegSpec:
    """All that a process needs for a leg; picklable.

    Attributes:
        sweep_uri: the sweep's storage.
        run_uri: of the trial's run in this generation.
        identity: of that run, should it have to begin.
        settings: complete ones of the trial, as plain values.
        origins: where each of them came from.
        length: samples of the whole trial.
        reports: when it reports.
        validation: whether there is a validation set.
        donor: of a generation that has not begun yet; None for a trial's first.
    """

    trial: str
    leg: int
    sweep_uri: str
    run_uri: str
    pipeline: PipelineRef
    identity: Mapping[str, Any]
    settings: Mapping[str, Any]
    origins: Mapping[str, str]
    length: int
    reports: ReportPlan
    validation: bool
    workers: int = 1
    donor: Donor | None = None


@dataclass(frozen=True)
class Outcome:
    """How a leg ended.

    Attributes:
        how: ``done``: trained to its full length. ``left``: as the sweep decided. ``diverged``: the loss is no number.
            ``lost``: because of ``cause``.
        text: for people.
        signature: equal for equal failures.
    """

    how: Literal["done", "left", "diverged", "lost"]
    cause: Cause | None = None
    text: str = ""
    signature: str = ""


def run_leg(spec: LegSpec, ask: Ask, exchange: Exchange, group: Group | None = None) -> Outcome:
    """Trains from where the trial's run stands to its end, or to where the sweep, a stop or an error ends it.

    Args:
        ask: makes a report and returns whether the trial goes on.
        exchange: hands notes to the sweep's driver, and returns its wishes.
        group: runs the workers elsewhere; None: one worker, in this process.
    """
    answers: list[bool] = []

    def asking(samples: int, values: Mapping[str, float], worker_seconds: float) -> bool:
        answers.append(ask(samples, values, worker_seconds))
        return answers[-1]

    try:
        with _clean_process():
            done = _train(spec, asking, exchange, group)
    except Exception as error:
        return outcome_of(error)
    if done:
        return Outcome("done")
    return Outcome("left") if answers and not answers[-1] else Outcome("lost", "stopped", "asked to stop")


def outcome_of(error: BaseException) -> Outcome:
    """What an error says about the trial: of its own code, of the machine, or of a loss that is no number."""
    text = str(error) if isinstance(error, PliantError) else f"{type(error).__name__}: {error}"
    first = (error.message if isinstance(error, PliantError) else text).strip().partition("\n")[0]
    if isinstance(error, UserCodeError):
        if error.code == "train.not-finite":
            return Outcome("diverged", None, text, error.code)
        if isinstance(error.__cause__, (MemoryError, torch.OutOfMemoryError)):
            return Outcome("lost", "out-of-memory", text, "out of memory")
        return Outcome("lost", "user", f"{error.frames}{text}"[-_LONGEST_TEXT:], f"{error.code}: {first}")
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return Outcome("lost", "out-of-memory", text, "out of memory")
    if isinstance(error, LostGroupError):
        cause: Cause = "preemption" if error.cause == "preemption" else "infrastructure"
        return Outcome("lost", cause, error.message)
    if isinstance(error, FencedError):
        return Outcome("lost", "stopped", text)
    if isinstance(error, PliantError) and error.exit_code not in (2, 3):
        return Outcome("lost", "infrastructure", text)
    return Outcome("lost", "user", text, first)


def _train(spec: LegSpec, ask: Ask, exchange: Exchange, group: Group | None) -> bool:
    sections: dict[str, Any] = dict(spec.settings)
    store = Store(spec.run_uri, StorageSettings.model_validate(sections["run"]["store"]))
    record = _record(spec, store)
    steps = sections["train"]["steps"]
    if not sections["phases"]:
        steps = steps_of(spec.length, sections["train"]["global_batch"], record.identity.get("clone"))
    sections["train"] = {**sections["train"], "steps": steps, "epochs": None}
    config: RunConfig = run_config_for(spec.pipeline.model_settings()).model_validate(sections)
    attempt = record.claim_driver({"leg": spec.leg})
    record_start(attempt, config, spec.origins, Code.of(spec.pipeline))
    job = WorkSpec(
        name=spec.trial,
        run_uri=spec.run_uri,
        driver=attempt.number,
        pipeline=spec.pipeline,
        settings=sections,
        total_steps=steps,
        validation=spec.validation,
        reports=spec.reports,
    )
    with attempt.heartbeat(), _stop_reason(attempt) as ended:
        if group is not None:
            group(config, job, ask)
            done = _ended(record) == "done"
        else:
            with single_process_group():
                done = work(job, local_rank=0, exchange=exchange, ask=ask)
        ended["reason"] = "done" if done else "sweep"
    return done


def _ended(record: RunRecord) -> str | None:
    """Why the run's newest group of workers ended, by its own word."""
    groups = [attempt.number for attempt in record.attempts() if attempt.claim.kind == "group"]
    stop = record.stop_of(groups[-1]) if groups else None
    return str(stop["reason"]) if stop is not None else None


def steps_of(length: int, global_batch: int, clone: Mapping[str, Any] | None) -> int:
    """The step at which a trial has seen ``length`` samples: from its beginning, or from where its state was cloned."""
    if not clone:
        return -(-length // global_batch)
    copied = CheckpointRef.parse(str(clone["checkpoint"]))
    before = copied.step if copied is not None else 0
    return before + -(-(length - int(clone["samples"])) // global_batch)


@contextmanager
def _stop_reason(attempt: Attempt) -> Iterator[dict[str, Any]]:
    """Records why the leg ended, whatever ends it."""
    ended: dict[str, Any] = {"reason": "infrastructure", "detail": ""}
    try:
        yield ended
    except PliantError as error:
        reason: StopReason = "user" if error.exit_code in (1, 2) else "infrastructure"
        ended = {"reason": reason, "detail": error.message}
        raise
    except Exception as error:
        ended = {"reason": "user", "detail": f"{type(error).__name__}: {error}"}
        raise
    finally:
        with suppress(PliantError):  # it must not hide how the leg ended
            attempt.stop(ended["reason"], ended["detail"])


def _record(spec: LegSpec, store: Store) -> RunRecord:
    """The trial's run; begun where it has not been yet."""
    if store.head(RUN) is not None:
        return RunRecord.open(store)
    if spec.donor is not None:
        donor = Store(spec.donor.uri, store.settings)
        return begin_clone(donor, checkpoint_at(donor, spec.donor.samples), store, spec.identity)
    sweep = Store(spec.sweep_uri, store.settings)
    splits = ("train", "validation") if spec.validation else ("train",)
    for split in splits:
        store.put_if_absent(DATA_MANIFESTS[split], sweep.get(DATA_MANIFESTS[split]))
    return RunRecord.create(store, spec.identity)


@contextmanager
def _clean_process() -> Iterator[None]:
    """What a leg changes in its process is as before when it has ended; its memory is given back.

    What the process's first leg leaves, imported modules above all, no later one looks through for garbage: 0.2 s each.
    """
    threads, dtype, grad = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        gc.collect()
        if not gc.get_freeze_count():
            gc.freeze()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        with suppress(OSError, AttributeError):  # glibc alone has it
            ctypes.CDLL(None).malloc_trim(0)
