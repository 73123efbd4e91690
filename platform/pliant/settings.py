"""The whole configuration of a run: one section per owner, composed here and nowhere else."""

from __future__ import annotations

from functools import cache

from pydantic import create_model

from pliant.checkpoint.settings import CheckpointSettings
from pliant.cluster.settings import ClusterSettings
from pliant.config.base import Settings, setting
from pliant.data.settings import DataSettings
from pliant.elastic.settings import ElasticSettings
from pliant.storage.settings import RunSettings
from pliant.track.settings import TrackingSettings
from pliant.train.settings import (
    EvalSettings,
    InitSettings,
    ModelGuards,
    OptimSettings,
    PhaseSettings,
    ScheduleSettings,
    TrainSettings,
)


class RunConfig(Settings):
    """Everything that defines a run. ``model`` is the pipeline's own section."""

    seed: int = setting(0, on_resume="frozen", ge=0, lt=2**63)
    """Seed of initialisation, order and dropout."""
    init: InitSettings = setting(InitSettings(), on_resume="frozen")
    run: RunSettings = setting(RunSettings(), on_resume="free")
    data: DataSettings = setting(on_resume="frozen")
    model: ModelGuards = setting(ModelGuards(), on_resume="frozen")
    train: TrainSettings = setting(on_resume="curve")
    optim: OptimSettings = setting(OptimSettings(), on_resume="curve")
    schedule: ScheduleSettings = setting(ScheduleSettings(), on_resume="curve")
    phases: tuple[PhaseSettings, ...] = setting((), on_resume="curve")
    """Settings that change in the course of the run: ``{from_samples: 4500, settings: {optim.lr: 0.004}}`` holds from
    the first step that starts at or beyond so many rows, until a later phase changes it. A phase may change what a
    resume may, of ``train``, ``optim`` and ``schedule``; not the run's length, and not the micro-batch."""
    eval: EvalSettings = setting(EvalSettings(), on_resume="free")
    checkpoint: CheckpointSettings = setting(CheckpointSettings(), on_resume="free")
    elastic: ElasticSettings = setting(ElasticSettings(), on_resume="free")
    cluster: ClusterSettings = setting(ClusterSettings(), on_resume="free")
    tracking: TrackingSettings = setting(TrackingSettings(), on_resume="free")


@cache
def run_config_for(model_settings: type[ModelGuards]) -> type[RunConfig]:
    """The configuration whose ``model`` section is the given pipeline's settings (a ModelGuards subclass)."""
    default = model_settings() if not any(f.is_required() for f in model_settings.model_fields.values()) else None
    field = setting(default, on_resume="frozen") if default is not None else setting(on_resume="frozen")
    return create_model("RunConfig", __base__=RunConfig, model=(model_settings, field))
