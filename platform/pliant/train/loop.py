"""The training loop, top to bottom."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pliant.elastic.gate import Gate
from pliant.observe.board import STOP
from pliant.train.checkpoints import Checkpoints
from pliant.train.evaluation import Evaluation
from pliant.train.feed import BatchFeed
from pliant.train.observer import Observer
from pliant.train.reports import Reports
from pliant.train.state import TrainState
from pliant.train.step import Step


@dataclass(frozen=True)
class Job:
    """Everything one worker needs, restored and ready; all ranks hold equal states.

    Attributes:
        state: where training goes on.
        total_steps: step after which the run is done.
        reports: of a trial to its sweep.
        gate: passed before each piece of collective work; closed when the group is to leave.
    """

    state: TrainState
    total_steps: int
    step: Step
    feed: BatchFeed
    evaluation: Evaluation
    checkpoints: Checkpoints
    observer: Observer
    reports: Reports
    gate: Gate


def train(job: Job) -> tuple[TrainState, bool]:
    """Trains until the run is done, or asked to stop or to leave; the last state is committed when it returns.

    Returns:
        (the last state, whether the run is done).
    """
    state, stop = job.state, False
    job.gate.open(state.step)
    if job.evaluation.unfinished(state):
        state = job.evaluation.run(state)
    if job.reports.owed(state) and not job.gate.leaving:
        stop = not job.reports.make(state)
    while state.step < job.total_steps and not stop:
        started = time.perf_counter()
        batch = job.feed.next(job.gate)
        fetched = time.perf_counter()
        if batch is None or not job.gate.enter():
            break
        state, result = job.step.run(state, batch, job.observer.wishes | job.checkpoints.wish())
        job.observer.step(state, result, batch, data_s=fetched - started, step_s=time.perf_counter() - fetched)
        job.gate.stepped(state.step, time.perf_counter() - started)
        if job.evaluation.due(state):
            state = job.evaluation.run(state)
        stop, reporting = bool(result.wishes & STOP), job.reports.due(state)
        if job.checkpoints.due(state, result.wishes) or reporting:
            job.checkpoints.save(state)
        if reporting and not job.gate.leaving:
            stop = not job.reports.make(state) or stop
    job.checkpoints.finish(state)
    return state, state.step >= job.total_steps and not job.evaluation.unfinished(state)
