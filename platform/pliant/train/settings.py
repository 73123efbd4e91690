"""Settings of the step: batch, precision, optimizer, schedule, evaluation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pliant.config.base import Settings, rule, setting, unless, where

ProgressUnit = Literal["steps", "samples", "tokens"]
VERIFIED_OPTIMIZERS = ("adamw", "sgd")
"""Optimizers that are known to give the same update at every worker count."""
Rate = Annotated[float, Field(ge=0, lt=1)]


class TrainSettings(Settings):
    """The job: how much is trained on what batch, and how its sums are formed."""

    global_batch: int = setting(on_resume="curve", ge=1)
    """Rows per step, G, whatever the number of workers. A multiple of ``data.lanes``."""
    micro_batch: int = setting(on_resume="curve", ge=1)
    """Most rows of one lane per forward pass. Bounds activation memory; part of the conditions of ``exact``."""
    steps: int | None = setting(None, on_resume="curve", ge=1)
    """Steps to train for; exactly one of ``steps`` and ``epochs``."""
    epochs: float | None = setting(None, on_resume="curve", gt=0)
    """Passes over the dataset to train for; steps are derived from the plan."""
    reduction: Literal["exact", "fast"] = setting("exact", on_resume="frozen")
    """``exact``: float64 sums, the same bits at every worker count. ``fast``: float32 sums."""
    precision: Literal["fp32", "bf16", "fp16"] = setting("fp32", on_resume="frozen")
    """Type of the forward and backward computation; parameters and optimizer state stay float32."""
    activation_checkpointing: bool = setting(False, on_resume="free")
    """Recompute each block's activations in backward instead of keeping them."""
    clip_norm: float | None = setting(1.0, on_resume="curve", gt=0)
    """Largest global gradient norm; null switches clipping off."""
    threads: int | None = setting(None, on_resume="free", ge=1)
    """Intra-op threads per worker; default: the whole CPUs of a worker. A condition of ``exact``."""
    device: Literal["auto", "cpu", "cuda"] = setting("auto", on_resume="free")
    """``auto`` takes a GPU where workers have one. Resolved once, shown, and recorded as a condition."""
    audit: bool = setting(False, on_resume="free")
    """Record the row ids of every global batch and the parameter digest of every step. Slow: for checking."""
    log_every: int = setting(1, on_resume="free", ge=1)
    """Steps between two metric lines. Losses in between are not kept."""

    @rule("steps", "epochs")
    def _one_length(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            found = "neither" if self.steps is None else "both"
            raise ValueError(f"exactly one of train.steps and train.epochs is needed, found {found}")


class PhaseSettings(Settings):
    """Settings that hold from some point of a run on, until a later phase changes them."""

    from_samples: int = setting(on_resume="curve", ge=1, strict=True)
    """Rows seen; the phase begins with the first step that starts at or beyond them."""
    settings: dict[str, Any] = setting(on_resume="curve")
    """What changes, by dotted key: settings of ``train``, ``optim`` and ``schedule`` that a resume may change; not the
    run's length, and not ``train.micro_batch``."""


class ModelGuards(Settings):
    """Switches that give up a promise, visibly."""

    allow_rank_local: bool = setting(False, on_resume="frozen", only_with=where("train.reduction", "exact"))
    """Accept models that update buffers in forward and losses that couple rows; the curve then depends on workers."""


class InitSettings(Settings):
    """Where a new run's parameters come from."""

    from_: str | None = setting(None, on_resume="frozen", alias="from", min_length=1)
    """A run (name under ``run.storage``, path or URI), one of its checkpoints (``RUN/checkpoints/step-…``), or a local
    ``.safetensors`` file. Of a run its best checkpoint, or the last where it measured none. Default: the model's own
    initialisation."""
    skip: tuple[str, ...] = setting((), on_resume="frozen", only_with=unless("init.from", None))
    """Patterns of keys (``head.*``) that are not loaded: those of the model stay as initialised, those of the source
    are not read. Any other key that one of both lacks is an error."""


class OptimSettings(Settings):
    """The optimizer. Weight decay is decoupled and left off biases, norms and embeddings."""

    kind: str = setting("adamw", on_resume="frozen")
    """``adamw``, ``sgd``, or ``module:factory`` with ``allow_unverified``."""
    lr: float = setting(1e-3, on_resume="curve", gt=0)
    """Peak learning rate; the schedule scales it."""
    weight_decay: float = setting(0.0, on_resume="curve", ge=0)
    """Decoupled: each step multiplies decayed parameters by 1 − lr × weight_decay."""
    betas: tuple[Rate, Rate] = setting((0.9, 0.999), on_resume="curve", only_with=where("optim.kind", "adamw"))
    """AdamW's moment decay rates."""
    eps: float = setting(1e-8, on_resume="curve", gt=0, only_with=where("optim.kind", "adamw"))
    """AdamW's denominator offset."""
    momentum: float = setting(0.0, on_resume="frozen", ge=0, lt=1, only_with=where("optim.kind", "sgd"))
    """SGD's momentum."""
    nesterov: bool = setting(False, on_resume="frozen", only_with=where("optim.kind", "sgd"))
    """SGD with Nesterov momentum."""
    allow_unverified: bool = setting(
        False,
        on_resume="frozen",
        only_with=(unless("optim.kind", *VERIFIED_OPTIMIZERS), where("train.reduction", "exact")),
    )
    """Accept an optimizer that is not known to keep ``exact``'s promise, which is then given up, visibly."""

    @rule("kind")
    def _known(self) -> None:
        module, separator, factory = self.kind.partition(":")
        if self.kind not in VERIFIED_OPTIMIZERS and not (module and separator and factory.isidentifier()):
            raise ValueError(f"kind is {self.kind!r}; allowed: {', '.join(VERIFIED_OPTIMIZERS)} or module:factory")

    @rule("nesterov", "momentum", "kind")
    def _momentum(self) -> None:
        if self.kind == "sgd" and self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum, and momentum is 0; set it, or leave nesterov out")


class ScheduleSettings(Settings):
    """The learning rate as a function of progress alone."""

    kind: Literal["constant", "linear", "cosine", "wsd"] = setting("cosine", on_resume="curve")
    """Shape after warm-up; ``wsd`` is warmup-stable-decay."""
    unit: ProgressUnit = setting("steps", on_resume="frozen")
    """What progress is counted in."""
    warmup: int = setting(0, on_resume="curve", ge=0)
    """Length of the linear warm-up, in ``unit``."""
    total: int | None = setting(None, on_resume="curve", ge=1, only_with=unless("schedule.kind", "constant"))
    """Length of the whole schedule, in ``unit``; default: the run's own length. Needed for tokens."""
    decay: float = setting(0.2, on_resume="curve", gt=0, le=1, only_with=where("schedule.kind", "wsd"))
    """Share of the whole that ``wsd`` spends decaying at the end."""
    final_ratio: float = setting(0.0, on_resume="curve", ge=0, le=1, only_with=unless("schedule.kind", "constant"))
    """Learning rate at the end as a share of the peak."""


class EvalSettings(Settings):
    """Evaluation on the validation rows, each counted exactly once."""

    every_steps: int | None = setting(None, on_resume="free", ge=1)
    """Steps between two evaluations; default: only at the end."""
    micro_batch: int | None = setting(None, on_resume="free", ge=1)
    """Rows per forward in evaluation; default ``train.micro_batch``."""
    at_end: bool = setting(True, on_resume="free")
    """Evaluate after the last step."""
