"""Records what happens: metrics, evaluations, audit and events into the run's logs, progress to the driver.

Every rank holds an observer and calls it alike; on ranks other than 0 the logs and the reporter are null objects.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch.distributed as dist

from pliant.observe.board import Reporter
from pliant.train.parallel import Workers
from pliant.train.state import TrainState
from pliant.train.step import RankBatch, StepResult

EVENT_LOG = "events"


class Log(Protocol):
    """An append-only log of one attempt; ``seq`` numbers its entries from 1."""

    @property
    def seq(self) -> int: ...
    def append(self, entry: dict[str, Any]) -> int: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class NullLog:
    """On ranks that write nothing."""

    seq = 0

    def append(self, entry: dict[str, Any]) -> int:
        return 0

    def flush(self) -> None: ...
    def close(self) -> None: ...


class Observer:
    """One per rank.

    Args:
        logs: one for each log of steps and EVENT_LOG.
        digest: digest of the full parameters, collective, a string on rank 0 alone; None without audit.
        log_every: steps between two metric lines.
    """

    def __init__(
        self,
        logs: dict[str, Log],
        reporter: Reporter,
        workers: Workers,
        *,
        total_steps: int,
        log_every: int,
        digest: Callable[[], str | None] | None,
    ) -> None:
        self.logs, self._reporter, self._workers = logs, reporter, workers
        self._total_steps, self._log_every, self._digest = total_steps, log_every, digest

    @property
    def wishes(self) -> int:
        return self._reporter.wishes

    def step(self, state: TrainState, result: StepResult, batch: RankBatch, *, data_s: float, step_s: float) -> None:
        """After every step; collective with audit."""
        audit = self._audit(state, batch)
        entry = {
            "step": state.step,
            "epoch": state.data.epoch,
            "position": state.data.position,
            "samples": state.data.samples,
            "tokens": state.tokens,
            **result.values,
            "lr": result.lr,
            "grad_norm": result.grad_norm if math.isfinite(result.grad_norm) else None,
            "weight": result.weight,
            "global_batch": state.data.global_batch,
            "world_size": self._workers.world_size,
            "data_s": round(data_s, 6),
            "step_s": round(step_s, 6),
            "time": round(time.time(), 3),
            **({"skipped": True} if result.skipped else {}),
            **audit,
        }
        if state.step % self._log_every == 0 or state.step == self._total_steps or audit:
            self.logs["metrics"].append(entry)
        self._reporter.progress({"kind": "progress", "total_steps": self._total_steps, **entry})

    def evaluation(self, state: TrainState, values: dict[str, float], *, seconds: float) -> None:
        entry = {"step": state.step, **values, "seconds": round(seconds, 3), "time": round(time.time(), 3)}
        self.logs["evaluations"].append({"samples": state.data.samples, **entry})
        self._reporter.event({"kind": "evaluation", **entry})

    def event(self, kind: str, **fields: Any) -> None:
        """Something that happened to the run, for its history and for the screen."""
        entry = {"kind": kind, **fields, "time": round(time.time(), 3)}
        self.logs[EVENT_LOG].append(entry)
        self._reporter.event(entry)

    def flush(self) -> None:
        """Makes everything so far durable."""
        for log in self.logs.values():
            log.flush()

    def _audit(self, state: TrainState, batch: RankBatch) -> dict[str, Any]:
        if self._digest is None:
            return {}
        gathered: list[Any] | None = [None] * self._workers.world_size if self._workers.rank == 0 else None
        ids = batch.row_ids.tolist() if batch.row_ids is not None else []
        dist.gather_object(ids, gathered, group=self._workers.host_group, group_dst=0)
        rows = sorted(row for one in gathered or [] for row in one)
        self.logs["audit"].append({"step": state.step, "rows": rows})
        digest = self._digest()
        return {"digest": digest} if digest else {}
