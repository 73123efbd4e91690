"""What a driver start begins with, whether the run is new or resumed.

new run    find datasets ─► plan ─► run.json, manifests ─┐
resume     read record, owner gone? ─► compare settings ─┴► Launch
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version

from pliant.config.overrides import Overrides
from pliant.config.resume import ResumeChanges, compare_for_resume
from pliant.configure import absolute_paths, load_config
from pliant.data.manifest import Manifest
from pliant.elastic.policy import best_size
from pliant.errors import ConfigError, UsageError, listed
from pliant.registry import PipelineRef, find_pipeline
from pliant.settings import RunConfig
from pliant.storage.record import RunRecord
from pliant.storage.store import Store
from pliant.track.settings import settle_uri
from pliant.train.initial import settle_initial
from pliant.train.plan import DATA_MANIFESTS, Datasets, RunPlan, find_datasets, make_plan
from pliant.train.recorded import (
    Code,
    CodeChange,
    check_code,
    has_begun,
    load_recorded,
    pipeline_identity,
    recorded_pipeline,
)


@dataclass(frozen=True)
class Launch:
    """Everything a driver start needs, whether the run is new or resumed.

    Attributes:
        code: the pipeline's files.
        changes: settings that a resume changes; None for a new run.
        code_changes: what a resume accepts as changed in the pipeline's files.
    """

    name: str
    record: RunRecord
    ref: PipelineRef
    config: RunConfig
    origins: dict[str, str]
    datasets: Datasets
    plan: RunPlan
    in_process: bool
    code: Code
    changes: ResumeChanges | None = None
    code_changes: tuple[CodeChange, ...] = ()


def new_run(pipeline: str, overrides: Overrides, *, name: str | None, in_process: bool) -> Launch:
    """Settles everything about a new run and begins its record.

    Raises:
        ConfigError, UsageError, DamageError: nothing has been started then; the record exists only after all checks.
    """
    ref = find_pipeline(pipeline)
    config, origins = load_config(ref, overrides)
    config = absolute(config, origins)
    initial = settle_initial(config)
    if initial is not None:
        initial.check(config, ref.load())
        origins["init.from"] = f"derived: {initial.text}"
        config = config.model_copy(update={"init": config.init.model_copy(update={"from_": initial.place})})
    datasets = find_datasets(config)
    plan = plan_of(config, ref, datasets, in_process=in_process)
    name = name or f"{ref.name}-{time.strftime('%m%d-%H%M%S')}"
    store = Store(config.run.storage, config.run.store).child(name)
    record = RunRecord.create(
        store,
        {
            "name": name,
            **pipeline_identity(ref),
            "pliant": version("pliant"),
            "data_digest": datasets.train.digest,
            "validation_digest": datasets.validation.digest if datasets.validation else None,
            "lanes": config.data.lanes,
            "seed": config.seed,
            "init": initial.to_dict() if initial else None,
        },
    )
    store.put_if_absent(DATA_MANIFESTS["train"], datasets.train.to_bytes())
    if datasets.validation:
        store.put_if_absent(DATA_MANIFESTS["validation"], datasets.validation.to_bytes())
    return Launch(name, record, ref, config, origins, datasets, plan, in_process, Code.of(ref))


def resumed_run(
    store: Store,
    overrides: Overrides,
    *,
    take_over: bool,
    in_process: bool,
    accept_code: bool = False,
    waiting: Callable[[str], None] = lambda text: None,
) -> Launch:
    """Settles everything about going on with a run.

    Args:
        store: the run's.
        take_over: fence a living owner instead of refusing.
        accept_code: go on with what has changed in the pipeline's files, instead of refusing.
        waiting: told whom is being waited for.

    Raises:
        UsageError: there is no such run, its owner lives, or its pipeline's files have changed.
        ConfigError: a frozen setting was changed, or the dataset is another one.
    """
    record = RunRecord.open(store)
    if not take_over:
        refuse_living_owner(record, waiting)
    ref = recorded_pipeline(record)
    code, code_changes = check_code(record, ref, accept=accept_code)
    old, _ = load_recorded(record, ref)
    config, origins = load_recorded(record, ref, overrides)
    config = absolute(config, origins)
    changes = compare_for_resume(old, config, begun=has_begun(record))
    datasets = find_datasets(config)
    same_data(store, record, datasets)
    return Launch(
        str(record.identity["name"]),
        record,
        ref,
        config,
        origins,
        datasets,
        plan_of(config, ref, datasets, in_process=in_process),
        in_process,
        code,
        changes,
        tuple(code_changes),
    )


def refuse_living_owner(record: RunRecord, waiting: Callable[[str], None]) -> None:
    """Returns when nobody drives the run or sweep.

    Raises:
        UsageError: its driver lives.
    """
    owner = record.owner()
    if owner is None:
        return
    told = threading.Event()

    def tell(left: float) -> None:
        if not told.is_set():
            told.set()
            waiting(f"waiting up to {left:.0f} s for a sign of life of {owner.describe()}")

    if record.wait_for_owner(owner, tell):
        what = "sweep" if record.is_sweep else "run"
        raise UsageError(
            "run.owned",
            f"the {what} is being driven by {owner.describe()}",
            hint="stop that one first, or resume with --take-over to fence it",
            location=record.store.uri,
        )


def plan_of(config: RunConfig, ref: PipelineRef, datasets: Datasets, *, in_process: bool) -> RunPlan:
    """What a complete configuration comes to, once it is sure that it fits and that the pipeline's code works.

    Raises:
        PliantError: it does not fit the dataset or the machine, or the pipeline's code fails on a few rows.
    """
    from pliant.train.sizing import Sizing, local_rooms
    from pliant.train.trial import try_pipeline

    pipeline = ref.load()
    columns = config.data.columns or pipeline.columns
    allowed = (1, 1) if in_process else (config.elastic.min_workers, config.elastic.max_workers)
    workers = best_size(config.data.lanes or 1, *allowed)
    plan = make_plan(config, datasets, tuple(columns) if columns else None, workers=workers)
    sizing = Sizing(config, pipeline, datasets)
    sizing.refuse_what_does_not_fit((allowed[0], workers), local_rooms(config, in_process=in_process))
    try_pipeline(ref, config, datasets, sizing, in_process=in_process)
    return replace(plan, memory=sizing.at(workers))


def absolute(config: RunConfig, origins: dict[str, str]) -> RunConfig:
    """Paths as every worker and every later resume can use them, whatever its working directory and environment."""
    config, tracking = absolute_paths(config), config.tracking
    if tracking.kind != "none":
        uri, origin = settle_uri(tracking, config.run.storage, os.environ)
        tracking = tracking.model_copy(update={"uri": uri})
        origins.update({"tracking.uri": f"derived: {origin}"} if origin else {})
    return config.model_copy(update={"tracking": tracking})


def same_data(store: Store, record: RunRecord, datasets: Datasets) -> None:
    """Refuses a dataset that is not the run's, with the difference."""
    pairs = {"train": (record.identity["data_digest"], datasets.train)}
    if datasets.validation is not None:
        pairs["validation"] = (record.identity["validation_digest"], datasets.validation)
    for split, (digest, found) in pairs.items():
        if digest != found.digest:
            recorded = Manifest.from_bytes(store.get(DATA_MANIFESTS[split]))
            raise ConfigError(
                "data.changed",
                f"the {split} set is not the one that the run was started with:{listed(recorded.diff(found), 20)}",
                hint="put the dataset back, point data.path to a copy of it, or start a new run",
                location=found.root,
            )
