"""Tries the pipeline's own code on a few real rows before anything is begun: what fails in every run fails here.

Only where this machine is what the workers would run on, and where the model is small enough to be built once more.
"""

from __future__ import annotations

from typing import Any

import psutil
import torch

from pliant.data.places import RowPlaces
from pliant.registry import PipelineRef
from pliant.settings import RunConfig
from pliant.train.guards import check_pipeline
from pliant.train.optim import build_optimizer
from pliant.train.plan import Datasets
from pliant.train.sizing import Sizing, uses_gpu
from pliant.train.usercode import build_pipeline, collated, describe_rows, loss_of, unseen, user_code
from pliant.train.work import first_rows

_COPIES = 4
"""Of the parameters that a trial holds at once: the model, its copy for the guards, gradients, and room."""
_SHARE = 0.5
"""Share of the free memory that a trial may take."""


def try_pipeline(
    ref: PipelineRef, config: RunConfig, datasets: Datasets, sizing: Sizing, *, in_process: bool = False
) -> None:
    """Builds the model and the optimizer, and takes the loss of a few rows and its backward, as a worker would.

    Nothing is tried where workers may find what is not here (another cluster, a GPU), or for a large model.

    Raises:
        UserCodeError, ConfigError: what every worker would raise before its first update.
    """
    if not (in_process or config.cluster.address == "local") or uses_gpu(config):
        return
    if _COPIES * sizing.parameter_bytes > _SHARE * psutil.virtual_memory().available:
        return
    with torch.random.fork_rng(devices=[]), unseen():
        pipeline = build_pipeline(ref, config.model)
        rows = first_rows(datasets.train, config, config.data.columns or pipeline.columns)
        places = RowPlaces(datasets.train)
        about = f"\n  {describe_rows([places.of(0, row) for row in range(rows.num_rows)])}"
        torch.manual_seed(config.seed)
        with user_code("model"):
            model = pipeline.model()
            pipeline.blocks(model)
        if config.train.reduction == "exact":
            check_pipeline(pipeline, model, rows, about=about)
        with user_code("parameter_groups"):
            groups: list[Any] = list(pipeline.parameter_groups(model))
        with user_code(f"the optimizer {config.optim.kind}"):
            build_optimizer(model, config.optim, groups)
        with user_code("collate or loss, tried before the first step,", about=about):
            loss = loss_of(pipeline, model.train(), collated(pipeline, rows))
        with user_code("backward of the loss, tried before the first step,", about=about):
            loss.total.backward()
