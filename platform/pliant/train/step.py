"""One optimizer update over a global batch, the same bits at every worker count.

    for each (lane, index) of this rank: seed → forward → backward        gradients accumulate, sums in float64
    one all-gather of loss sums, weights, gradient square sums and wishes  added by fsum: correctly rounded, any order
    scale by 1/weight and the clip coefficient → optimizer

The only two collectives of a step are FSDP2's own and that all-gather, so whatever the ranks must agree on (stop,
checkpoint) travels in it for free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pliant.checkpoint.digest import clean_name
from pliant.errors import UserCodeError, listed
from pliant.train.batch_plan import MicroBatch, StepPlan, micro_batch_seed
from pliant.train.optim import local, set_hyperparameters, set_lr
from pliant.train.parallel import Workers, sync_gradients
from pliant.train.phases import Course, Phase
from pliant.train.precision import LossScale, Precision
from pliant.train.protocols import Loss, Pipeline
from pliant.train.schedule import lr_factor
from pliant.train.state import TrainState
from pliant.train.usercode import loss_of, user_code

_AT_FIRST = (
    "no update has been made yet, so that optim.lr is not at fault: look at these rows, at the loss (log or division of"
    " 0, exp) and at how the model is initialised"
)
_LATER = (
    "lower optim.lr, warm up longer (schedule.warmup), clip harder (train.clip_norm), or look at the rows of this step;"
    " a resume goes on from the newest checkpoint, which is of an earlier step"
)
_FIXED = 5  # lane, index, loss total, weight, tokens; the pipeline's own sums follow


@dataclass(frozen=True)
class RankBatch:
    """A rank's share of a global batch, collated: one dict of CPU tensors per micro-batch of the plan.

    ``row_ids`` is int64 (rows, 4) with columns epoch, position, row group, row within it, or None without audit.
    ``blame`` is what calls to user code over a micro-batch are made in, see ``Blame``.
    """

    plan: StepPlan
    tensors: Sequence[Mapping[str, Tensor]]
    row_ids: Tensor | None = None
    blame: Callable[[str, MicroBatch], AbstractContextManager[None]] = lambda what, micro: user_code(what)


@dataclass(frozen=True)
class StepResult:
    """What all ranks know after a step.

    Attributes:
        values: every metric, ``loss`` among them: its sum over the global batch divided by the global weight.
        weight, tokens: of the global batch.
        grad_norm: global gradient norm before clipping, rounded to float32.
        lr: learning rate used.
        skipped: no update was made (float16 overflow, or nothing in the batch had weight).
        wishes: bitwise or of what the ranks asked for.
    """

    values: Mapping[str, float]
    weight: float
    tokens: int
    grad_norm: float
    lr: float
    skipped: bool
    wishes: int


class Sums:
    """Loss and metric sums of micro-batches, gathered over ranks and added in a way that no order can change."""

    def __init__(self, names: Sequence[str], group: dist.ProcessGroup) -> None:
        self.names = tuple(names)
        self._group = group
        self._rows: list[Tensor] = []
        self._not_finite: list[tuple[int, int]] = []

    def add(self, micro: MicroBatch, loss: Loss) -> None:
        fixed = [float(micro.lane), float(micro.index)]
        device = loss.total.device
        row = [loss.total.detach(), loss.weight.detach(), torch.as_tensor(float(loss.tokens), device=device)]
        row += [loss.sums[name].detach() for name in self.names]
        head = torch.tensor(fixed, dtype=torch.float64, device=device)
        self._rows.append(torch.cat([head, torch.stack([value.to(torch.float64) for value in row])]))

    @property
    def not_finite(self) -> list[tuple[int, int]]:
        """Lane and index of the micro-batches whose loss sum was not finite, of all ranks, in the last ``gather``."""
        return self._not_finite

    def gather(self, *extra: float) -> tuple[list[float], float, int, list[list[float]]]:
        """All-gathers what was added since the last call. Collective; every rank must have added equally often.

        Returns:
            (one sum per [loss, *names], weight, tokens, each rank's ``extra`` values).
        """
        width = max(_FIXED + len(self.names), len(extra))
        table = torch.zeros(len(self._rows) + 1, width, dtype=torch.float64)
        table[0, : len(extra)] = torch.tensor(extra, dtype=torch.float64)
        if self._rows:
            table[1:, : self._rows[0].numel()] = torch.stack(self._rows).cpu()
        self._rows.clear()
        tables = [torch.empty_like(table) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(tables, table, group=self._group)
        rows = [row for one in tables for row in one[1:].tolist() if row[0] >= 0]
        self._not_finite = [(int(row[0]), int(row[1])) for row in rows if not math.isfinite(row[2])]
        totals = [_sum(row[column] for row in rows) for column in (2, *range(_FIXED, _FIXED + len(self.names)))]
        extras = [one[0, : len(extra)].tolist() for one in tables]
        return totals, _sum(row[3] for row in rows), int(_sum(row[4] for row in rows)), extras


def _sum(values: object) -> float:
    try:
        return math.fsum(values)  # type: ignore[arg-type]
    except (OverflowError, ValueError):  # inf − inf, or beyond float64: not finite either way
        return math.nan


class Step:
    """Runs steps of one pipeline's model. All ranks call it with the same state and plans of the same step."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        workers: Workers,
        precision: Precision,
        seed: int,
        course: Course,
    ) -> None:
        self._pipeline, self._model, self._optimizer = pipeline, model, optimizer
        self._workers, self._precision, self._seed = workers, precision, seed
        self._course, self._phase = course, course.phases[0]
        self._metrics = [name for name in pipeline.metrics if name != "loss"]
        self._sums = Sums(self._metrics, workers.host_group)
        self._parameters = list(model.parameters())

    def run(self, state: TrainState, batch: RankBatch, wish: int) -> tuple[TrainState, StepResult]:
        """One step. Returns the state after it and what every rank knows about it.

        Raises:
            UserCodeError: the loss or the gradient is not finite (outside float16, where the step is skipped).
        """
        scale = LossScale(*state.loss_scale) if self._precision.scaled else None
        phase = self._enter(state)
        self._model.train()
        self._accumulate(state.step, batch, scale.scale if scale else 1.0)
        gradients = local(p.grad for p in self._parameters if p.grad is not None)
        squares = _square_sum(gradients)
        totals, weight, tokens, extras = self._sums.gather(squares, float(wish))
        wishes = 0
        for extra in extras:
            wishes |= int(extra[1])
        divisor = weight * (scale.scale if scale else 1.0)
        norm = math.sqrt(_sum(extra[0] for extra in extras)) / divisor if divisor else 0.0
        finite = math.isfinite(norm) and math.isfinite(totals[0])
        if not finite and scale is None:
            self._refuse(state.step + 1, totals[0], norm, batch)
        lr = phase.optim.lr * lr_factor(
            phase.schedule,
            before=self._before(state, phase),
            after=self._progress(state, phase, batch.plan, tokens),
            total=phase.total,
        )
        skipped = weight == 0 or not finite
        if not skipped:
            self._update(gradients, norm, divisor, lr)
        self._optimizer.zero_grad(set_to_none=True)
        if scale is not None:
            scale.update(overflow=not finite)
        return self._next(state, batch.plan, tokens, scale), StepResult(
            values={name: _ratio(total, weight) for name, total in zip(("loss", *self._metrics), totals, strict=True)},
            weight=weight,
            tokens=tokens,
            grad_norm=_float32(norm),
            lr=lr,
            skipped=skipped,
            wishes=wishes,
        )

    def _refuse(self, step: int, total: float, norm: float, batch: RankBatch) -> NoReturn:
        """Ends training, with the rows of the first micro-batch of this rank whose loss is not finite; where all losses
        are, with the parameters whose gradients (this rank's shards) are not."""
        message = f"loss sum {total}, gradient norm {norm}; training cannot go on"
        hint = _AT_FIRST if step == 1 else _LATER
        bad = [m for m in batch.plan.micro_batches if (m.lane, m.index) in self._sums.not_finite]
        if bad:
            with batch.blame("loss", bad[0]):
                raise UserCodeError("train.not-finite", message, hint=hint)
        at = f"step {step}"
        if self._sums.not_finite:  # the rank that has the rows names them
            raise UserCodeError("train.not-finite", f"{at}: {message}", hint=hint)
        names = [n for n, p in self._model.named_parameters() if p.grad is not None and not _is_finite(p.grad)]
        if names:
            found = "\n  the loss of every micro-batch is finite; not finite are the gradients of:"
            raise UserCodeError(
                "train.not-finite", f"{message}{found}{listed([*map(clean_name, names)], 10)}", hint=hint, location=at
            )
        found = "the losses are finite, and so are the gradients of the parameters that this rank holds"
        raise UserCodeError("train.not-finite", f"{at}: {message}\n  {found}", hint=hint)

    def _accumulate(self, step: int, batch: RankBatch, scale: float) -> None:
        micro_batches = batch.plan.micro_batches
        for number, (micro, tensors) in enumerate(zip(micro_batches, batch.tensors, strict=True)):
            sync_gradients(self._model, number == len(micro_batches) - 1)
            seed_random(micro_batch_seed(self._seed, step, micro.lane, micro.index), self._workers.device)
            with batch.blame("loss", micro):
                loss = loss_of(self._pipeline, self._model, to_device(tensors, self._workers.device))
            self._sums.add(micro, loss)
            with batch.blame("backward of the loss", micro):
                (loss.total * scale if scale != 1.0 else loss.total).backward()

    def _enter(self, state: TrainState) -> Phase:
        """The phase of the step after this state."""
        phase = self._course.at(state.data.samples)
        if phase is not self._phase:
            set_hyperparameters(self._optimizer, phase.optim)
            self._phase = phase
        return phase

    def _update(self, gradients: list[Tensor], norm: float, divisor: float, lr: float) -> None:
        coefficient = 1.0
        if (clip_norm := self._phase.train.clip_norm) is not None:
            # The norm is rounded first: its float64 sum may differ in the last bits between shardings.
            coefficient = min(1.0, clip_norm / (_float32(norm) + 1e-6))
        if gradients:
            torch._foreach_mul_(gradients, _float32(coefficient / divisor))
        set_lr(self._optimizer, lr)
        with user_code(f"the optimizer {self._phase.optim.kind}"):
            self._optimizer.step()

    def _before(self, state: TrainState, phase: Phase) -> float:
        steps = state.step + phase.shift
        return {"steps": steps, "samples": state.data.samples, "tokens": state.tokens}[phase.schedule.unit]

    def _progress(self, state: TrainState, phase: Phase, plan: StepPlan, tokens: int) -> float:
        grown = {"steps": 1, "samples": plan.rows, "tokens": tokens}
        return self._before(state, phase) + grown[phase.schedule.unit]

    def _next(self, state: TrainState, plan: StepPlan, tokens: int, scale: LossScale | None) -> TrainState:
        return state.advance(
            step=state.step + 1,
            tokens=state.tokens + tokens,
            data=replace(
                state.data,
                epoch=plan.epoch,
                position=plan.position,
                global_batch=self._phase.train.global_batch,
                samples=state.data.samples + plan.rows,
                skipped_samples=state.data.skipped_samples + plan.skipped,
            ),
            loss_scale=(scale.scale, scale.good_steps) if scale else state.loss_scale,
        )


def seed_random(seed: int, device: torch.device) -> None:
    """Seeds PyTorch's generators of the processor and of this kind of device.

    ``torch.manual_seed`` does that for every kind that there is, and remembers a traceback for each that is not in use:
    0.7 ms, which small models have not.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


def to_device(tensors: Mapping[str, Tensor], device: torch.device) -> Mapping[str, Tensor]:
    """Moves a micro-batch; asynchronous from pinned memory to a GPU."""
    if device.type == "cpu":
        return tensors
    return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}


def _is_finite(gradient: Tensor) -> bool:
    (shard,) = local([gradient])
    return bool(shard.isfinite().all())


def _square_sum(gradients: Sequence[Tensor]) -> float:
    """Sum of squares in float64; one transfer from the device."""
    if not gradients:
        return 0.0
    norms = torch.stack([torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients])
    return float(norms.square().sum())


def _ratio(total: float, weight: float) -> float:
    return total / weight if weight else math.nan


def _float32(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float32))
