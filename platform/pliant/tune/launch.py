"""What a driver start of a sweep begins with, whether the sweep is new or resumed.

new sweep  space file, base settings ─► in samples ─► datasets, plan ─► run.json, manifests ─┐
resume     read record, owner gone? ─► compare settings, space ────────────────────────────┴► SweepLaunch
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from pliant.config.base import Settings, setting
from pliant.config.dump import config_to_yaml
from pliant.config.loader import read_text
from pliant.config.overrides import Overrides
from pliant.config.resume import ResumeChanges, compare_for_resume
from pliant.configure import LoadedConfig, load_config_text, short_path
from pliant.errors import ConfigError, UsageError, listed
from pliant.registry import PipelineRef, find_space
from pliant.settings import RunConfig
from pliant.storage.record import RunRecord
from pliant.storage.store import Store
from pliant.train.launch import absolute, plan_of, refuse_living_owner, same_data
from pliant.train.plan import DATA_MANIFESTS, Datasets, find_datasets
from pliant.train.recorded import Code, CodeChange, check_code, load_recorded, pipeline_identity, recorded_pipeline
from pliant.tune.build import Search
from pliant.tune.recorded import recorded_search
from pliant.tune.results import EARLIER, earlier_points, recorded_points
from pliant.tune.settings import SweepSettings
from pliant.tune.spacefile import LoadedSweep, load_sweep, load_sweep_text, split_overrides
from pliant.tune.table import Workers
from pliant.tune.types import Params


@dataclass(frozen=True)
class SweepLaunch:
    """Everything a driver start of a sweep needs.

    Attributes:
        base: settings that all trials share; the schedule counts samples.
        origins: of the base's settings.
        content: of the space's file, as it is recorded.
        changes: settings that a resume changes; None for a new sweep.
        narrowed: the space's content where a resume has narrowed it.
    """

    name: str
    record: RunRecord
    ref: PipelineRef
    base: RunConfig
    origins: dict[str, str]
    search: Search
    content: Mapping[str, Any]
    datasets: Datasets
    code: Code
    changes: ResumeChanges | None = None
    narrowed: Mapping[str, Any] | None = None
    code_changes: tuple[CodeChange, ...] = ()

    def trial_settings(self, params: Params) -> tuple[RunConfig, dict[str, str]]:
        """The complete settings of a trial at a point of the space, and where each came from.

        Raises:
            ConfigError: they do not fit together.
        """
        overrides = self.search.space.settings(params, samples=self.search.length, base=self.base)
        text = config_to_yaml(self.base)
        return load_config_text(self.ref, text, overrides, source="the sweep's settings", recorded=self.origins)


def new_sweep(pipeline: str, space: str, overrides: Overrides = (), *, name: str | None = None) -> SweepLaunch:
    """Settles everything about a new sweep and begins its record.

    Args:
        space: a name in search_spaces/, or a path.
        overrides: of the sweep's settings (``sweep.slots=2``) and of those that all trials share.

    Raises:
        PliantError: nothing has been started then; the record exists only after all checks.
    """
    loaded, datasets = plan_sweep(pipeline, space, overrides)
    ref, base, origins = loaded.ref, loaded.base, dict(loaded.origins)
    earlier = earlier_points(loaded.settings, base.run)
    search = search_of(loaded, base, datasets, earlier)
    plan_of(base, ref, datasets, in_process=True)
    name = name or f"{ref.name}-sweep-{time.strftime('%m%d-%H%M%S')}"
    store = Store(base.run.storage, base.run.store).child(name)
    identity = {
        "name": name,
        "kind": "sweep",
        **pipeline_identity(ref),
        "pliant": version("pliant"),
        "data_digest": datasets.train.digest,
        "validation_digest": datasets.validation.digest if datasets.validation else None,
        "lanes": base.data.lanes,
        "seed": base.seed,
        "metric": search.metric,
        "mode": search.mode,
        "length": search.length,
        "rows": search.rows,
        EARLIER: [[dict(params), value] for params, value in earlier],
    }
    record = RunRecord.create(store, identity)
    store.put_if_absent(DATA_MANIFESTS["train"], datasets.train.to_bytes())
    if datasets.validation:
        store.put_if_absent(DATA_MANIFESTS["validation"], datasets.validation.to_bytes())
    return SweepLaunch(name, record, ref, base, origins, search, loaded.content, datasets, Code.of(ref))


def plan_sweep(pipeline: str, space: str, overrides: Overrides = ()) -> tuple[LoadedSweep, Datasets]:
    """What a new sweep would begin with, its schedule counted in samples; nothing is started or written.

    Raises:
        PliantError: it cannot begin.
    """
    loaded = load_sweep(pipeline, space, overrides)
    origins = dict(loaded.origins)
    loaded = replace(loaded, base=absolute(loaded.base, origins), origins=origins)
    return loaded, _datasets(loaded.base)


def resumed_sweep(
    store: Store,
    overrides: Overrides = (),
    *,
    space: str | None = None,
    take_over: bool = False,
    accept_code: bool = False,
    waiting: Callable[[str], None] = lambda text: None,
) -> SweepLaunch:
    """Settles everything about going on with a sweep.

    Args:
        store: the sweep's.
        overrides: more trials, other budgets; of the trials' settings those that are free on resume.
        space: a narrower one, for the trials that are still to come.
        take_over, accept_code, waiting: as ``train.launch.resumed_run``.

    Raises:
        UsageError: there is no such sweep, its owner lives, or its pipeline's files have changed.
        ConfigError: a frozen setting was changed, a space is not narrower, or the dataset is another one.
    """
    record = RunRecord.open(store)
    if not take_over:
        refuse_living_owner(record, waiting)
    ref = recorded_pipeline(record)
    code, code_changes = check_code(record, ref, accept=accept_code)
    own, shared = split_overrides(overrides)
    old, origins = load_recorded(record, ref)
    base, origins = load_recorded(record, ref, shared)
    base = absolute(base, origins)
    before = recorded_search(record)
    if before is None:
        raise UsageError(
            "sweep.not-started",
            "the sweep has never started",
            hint="remove it, or give the new one another name",
            location=store.uri,
        )
    recorded = LoadedConfig(base, origins)
    loaded = load_sweep_text(ref, before.text, own, source=before.location, recorded=recorded)
    narrowed = None
    if space is not None:
        loaded, narrowed = _narrowed(ref, loaded, space, own, recorded)
    changes = _changes(old, base, before.settings, loaded.settings)
    datasets = _datasets(base)
    same_data(store, record, datasets)
    search = search_of(loaded, base, datasets, recorded_points(record))
    return SweepLaunch(
        str(record.identity["name"]),
        record,
        ref,
        base,
        origins,
        search,
        loaded.content,
        datasets,
        code,
        changes,
        narrowed,
        tuple(code_changes),
    )


def search_of(
    loaded: LoadedSweep, base: RunConfig, datasets: Datasets, earlier: Sequence[tuple[Params, float | None]]
) -> Search:
    """What is searched, on these data; ``earlier`` as of ``Search``."""
    rows, train, elastic = datasets.train.rows, base.train, base.elastic
    length = train.steps * train.global_batch if train.steps is not None else round((train.epochs or 1.0) * rows)
    return Search(
        loaded.settings,
        loaded.space,
        loaded.metric,
        loaded.mode,
        length,
        rows,
        Workers(elastic.min_workers, elastic.max_workers, base.data.lanes or 1),
        earlier,
    )


def _datasets(base: RunConfig) -> Datasets:
    datasets = find_datasets(base)
    if datasets.validation is None:
        raise ConfigError(
            "sweep.no-validation",
            "a sweep compares trials by their evaluation, and the dataset has no validation split",
            hint="prepare one, or name one: data.validation",
            location=base.data.path,
        )
    return datasets


def _narrowed(
    ref: PipelineRef, loaded: LoadedSweep, space: str, own: Overrides, recorded: LoadedConfig
) -> tuple[LoadedSweep, Mapping[str, Any]]:
    file = find_space(space)
    source = short_path(file)
    found = load_sweep_text(ref, read_text(file, source), own, source=source, recorded=recorded)
    if why := loaded.space.widened_by(found.space):
        raise ConfigError(
            "sweep.wider-space",
            f"the search space of a sweep can be narrowed only: the same settings, each within what it was; {why}",
            hint="start a new sweep with it, warm from this one: sweep.searcher.warm_start",
            location=source,
        )
    return replace(loaded, space=found.space, content=found.content), found.content


class _Whole(Settings):
    sweep: SweepSettings = setting(on_resume="free")


def _changes(old: RunConfig, new: RunConfig, before: SweepSettings, after: SweepSettings) -> ResumeChanges:
    """What this start changes.

    Raises:
        ConfigError: something that all trials share, or that the sweep was begun with.
    """
    trials = compare_for_resume(old, new)
    own = compare_for_resume(_Whole(sweep=before), _Whole(sweep=after))
    refused = [*trials.frozen, *trials.curve, *own.frozen]
    if refused:
        raise ConfigError(
            "sweep.frozen",
            f"the trials share these, and the log was written with them:{listed(list(map(str, refused)), 10)}",
            hint="leave them, or start a new sweep, warm from this one: sweep.searcher.warm_start",
        )
    return ResumeChanges((), (), (*trials.free, *own.free))
