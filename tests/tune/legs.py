"""Legs of trials of the test pipeline ``masked``, without a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pliant.config.dump import config_to_dict
from pliant.configure import load_config
from pliant.registry import find_pipeline
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.train.plan import DATA_MANIFESTS, find_datasets
from pliant.train.recorded import pipeline_identity
from pliant.train.reports import ReportPlan
from pliant.tune.trial import LegSpec
from tests.train.runs import PIPELINE, SETTINGS

LENGTH = 6 * 32
"""Samples of a trial: six steps."""


def leg(
    dataset: str,
    folder: Path,
    *,
    trial: str = "t0000",
    milestones: tuple[int, ...] = (LENGTH,),
    reported: int = -1,
    durable: bool = False,
    settings: Mapping[str, Any] | None = None,
    pipeline: str = "masked",
) -> LegSpec:
    """A leg of a trial of a sweep in ``folder``."""
    ref = find_pipeline(PIPELINE.replace("masked.py", f"{pipeline}.py"))
    given: dict[str, Any] = dict(text.split("=", 1) for text in SETTINGS)
    given |= {"data.path": dataset, "run.storage": str(folder), "train.audit": "false", "eval.every_steps": "null"}
    given |= {"train.steps": str(LENGTH // 32), "checkpoint.every_steps": "null"}
    overrides = [f"{key}={value}" for key, value in given.items() if key not in (settings or {})]
    overrides += [f"{key}={'null' if value is None else value}" for key, value in (settings or {}).items()]
    config, origins = load_config(ref, overrides)
    data = find_datasets(config)
    sweep = Store(str(folder / "sweep"), StorageSettings())
    sweep.put_if_absent(DATA_MANIFESTS["train"], data.train.to_bytes())
    assert data.validation is not None
    sweep.put_if_absent(DATA_MANIFESTS["validation"], data.validation.to_bytes())
    identity = {
        "name": trial, **pipeline_identity(ref), "data_digest": data.train.digest, "lanes": config.data.lanes,
        "validation_digest": data.validation.digest, "seed": config.seed,
    }  # fmt: skip
    return LegSpec(
        trial=trial, leg=0, sweep_uri=sweep.uri, run_uri=f"{sweep.uri}/trials/{trial}", pipeline=ref,
        identity=identity, settings=config_to_dict(config), origins=origins, length=LENGTH,
        reports=ReportPlan(milestones, reported, durable), validation=True,
    )  # fmt: skip
