"""Checkpoints as the loop sees them: when one is due, what it records, which older ones go."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from pliant.checkpoint.digest import named_parameters
from pliant.checkpoint.interval import Interval, Losses, next_interval, save_cost
from pliant.checkpoint.manifest import LogPosition, ManifestFields
from pliant.checkpoint.pace import Pace, allowed_rest
from pliant.checkpoint.settings import CheckpointSettings
from pliant.checkpoint.state import model_and_optimizer_state
from pliant.checkpoint.writer import CheckpointWriter, SaveResult
from pliant.errors import StorageError
from pliant.observe.board import CHECKPOINT
from pliant.storage.view import STEP_LOGS
from pliant.train.observer import Observer
from pliant.train.state import TrainState
from pliant.units import format_bytes, format_seconds


class Checkpoints:
    """One per rank, called alike on all of them.

    Args:
        attempt: number of this attempt.
        digests: of the data manifest, the settings and the code, as the manifest records them.
        main_metric: metric recorded for choosing the best ones.
        restored: the state that the attempt started from.
        losses: how often groups of the run were lost; of rank 0, whose wish alone counts.
        prune: called on rank 0 in the background after each commit, to retire older checkpoints.
        saved: told after each commit how many seconds it was after the copy was begun, rests left out.
        waits: told what training waits for, before it does: a save may take longer than a step ever did.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        writer: CheckpointWriter,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        observer: Observer,
        *,
        attempt: int,
        rank: int,
        data_digest: str,
        config_digest: str,
        code_version: str,
        main_metric: str,
        restored: TrainState,
        losses: Losses,
        prune: Callable[[], None],
        saved: Callable[[float], None],
        waits: Callable[[str], None],
    ) -> None:
        self._settings, self._writer, self._model, self._optimizer = settings, writer, model, optimizer
        self._observer, self._attempt, self._rank = observer, attempt, rank
        self._data_digest, self._config_digest, self._code_version = data_digest, config_digest, code_version
        self._main_metric, self._prune, self._saved, self._waits = main_metric, prune, saved, waits
        self._losses, self._began = losses, time.monotonic()
        self._costs: list[float] = []
        self._interval = self._next_interval()
        self._steps_s: dict[bool, list[float]] = {True: [], False: []}  # by whether a save ran beside them
        self._step_ended = time.monotonic()
        self._saved_step = restored.step
        self._saved_at = time.monotonic()
        self._saved_best = restored.best
        self._reserved = False
        self._names = [name for name, _ in named_parameters(model)]

    def wish(self) -> int:
        """What this rank asks for in the next step. Only rank 0's clock counts, or ranks would differ."""
        if self._rank != 0 or self._settings.every_steps is not None or self._writer.busy:
            return 0
        return CHECKPOINT if time.monotonic() - self._saved_at >= self._interval.seconds else 0

    def due(self, state: TrainState, wishes: int) -> bool:
        """Whether the state after this step is saved; the same on all ranks."""
        now = time.monotonic()
        if not self._reserved:
            # Now that the optimizer has its state: memory that was touched before makes the first save as fast as any.
            self._reserved = True
            self._writer.reserve(model_and_optimizer_state(self._model, self._optimizer))
        self._steps_s[self._writer.busy].append(now - self._step_ended)
        self._report()
        self._step_ended = time.monotonic()
        every = self._settings.every_steps
        best = state.measured is not None and state.best != self._saved_best
        regular = every is not None and state.step % every == 0
        return bool(wishes) or regular or (best and self._settings.keep_best > 0)

    def save(self, state: TrainState) -> None:
        """Copies the state to host memory and returns; the rest happens in the background."""
        if self._writer.busy:
            self._waits("the checkpoint before")
        logs = {name: LogPosition(self._attempt, self._observer.logs[name].seq) for name in STEP_LOGS}
        self._writer.save(
            step=state.step,
            state=model_and_optimizer_state(self._model, self._optimizer),
            digest_names=self._names,
            fields=ManifestFields(
                state=state.to_dict(),
                data_digest=self._data_digest,
                config_digest=self._config_digest,
                code_version=self._code_version,
                logs=logs,
                metrics={} if state.measured is None else {self._main_metric: state.measured},
            ),
            pace=Pace(allowed_rest(self._until_next_s(), self._settings.peer_timeout)),
            before_commit=self._observer.flush,
            on_commit=lambda result: self._prune(),
        )
        self._step_ended = time.monotonic()  # the stall is counted by the writer
        self._saved_step, self._saved_at, self._saved_best = state.step, time.monotonic(), state.best

    def finish(self, state: TrainState) -> None:
        """Makes sure that the last state is committed. Raises StorageError when it cannot be."""
        self._report()
        if self._saved_step != state.step:
            self.save(state)
        try:
            self.settle(state)
        finally:
            self._writer.close()

    def settle(self, state: TrainState) -> None:
        """Returns when this state, which was saved, is committed. Raises StorageError when it cannot be."""
        self._waits("the last checkpoint")
        result = self._writer.wait()
        self._report()
        if result is not None and result.outcome != "committed":
            raise StorageError(
                "checkpoint.not-saved",
                f"the checkpoint of step {state.step} could not be written: {result.reason}",
                hint="free the storage and resume the run; it goes on from the last committed checkpoint",
            )

    def _account(self, result: SaveResult) -> None:
        """Sets the interval by what the save cost, and says so where that is more than the settings want."""
        during, otherwise = self._steps_s[True], self._steps_s[False][-100:]
        cost = save_cost(
            result.staging_s + result.waited_s,
            len(during),
            sum(during) / len(during) if during else 0.0,
            sum(otherwise) / len(otherwise) if otherwise else 0.0,
        )
        self._steps_s = {True: [], False: otherwise}
        self._costs = [*self._costs[-4:], cost]
        was_over = self._interval.over_budget
        self._interval = self._next_interval()
        if self._interval.over_budget and not was_over and self._settings.every_steps is None:
            text = f"checkpoints cost {self._interval.overhead:.1%} of the time, above checkpoint.overhead"
            text += f" {self._settings.overhead:.1%}: checkpoint.max_interval {self._settings.max_interval:g} s wins"
            self._observer.event("checkpoint-cost", text=text)

    def _next_interval(self) -> Interval:
        return next_interval(
            self._costs,
            overhead=self._settings.overhead,
            min_interval=self._settings.min_interval,
            max_interval=self._settings.max_interval,
            between_losses_s=self._losses.mean_time_between(time.monotonic() - self._began),
        )

    def _until_next_s(self) -> float:
        """Seconds from a save to the next one; 0 where that is not known."""
        if self._settings.every_steps is None:
            return self._interval.seconds
        lately = self._steps_s[False][-100:]
        return self._settings.every_steps * sum(lately) / len(lately) if lately else 0.0

    def _report(self) -> None:
        for result in self._writer.poll():
            self._event(result)

    def _event(self, result: SaveResult) -> None:
        if result.outcome == "committed":
            self._saved(result.staging_s + result.background_s - result.rested_s)  # as one that is waited for
            self._account(result)
            text = f"checkpoint {result.ref.step} committed, {format_bytes(result.bytes)}"
            text += f" in {format_seconds(result.background_s)}, stall {format_seconds(result.staging_s)}"
            self._observer.event(
                "checkpoint", text=text, step=result.ref.step, bytes=result.bytes,
                stall_s=round(result.staging_s, 4), waited_s=round(result.waited_s, 4),
                background_s=round(result.background_s, 4), rested_s=round(result.rested_s, 4),
            )  # fmt: skip
        else:
            text = f"checkpoint {result.ref.step} {result.outcome}: {result.reason}"
            self._observer.event("checkpoint-failed", text=text, step=result.ref.step, tries=result.tries)
