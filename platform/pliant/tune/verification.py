"""Whether a sweep's decisions follow from its log: its searcher and scheduler are built again and asked.

The pipeline is imported, since the search space is checked against its settings; torch with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pliant.configure import LoadedConfig
from pliant.errors import DamageError
from pliant.storage.record import RunRecord
from pliant.train.recorded import load_recorded, recorded_pipeline
from pliant.tune.build import Search, build_sweep
from pliant.tune.decisions import Difference, read_entries, verify
from pliant.tune.recorded import first_search, text_of
from pliant.tune.results import recorded_points
from pliant.tune.settings import SweepSettings
from pliant.tune.space import Space
from pliant.tune.spacefile import load_sweep_text
from pliant.tune.sweep import Sweep


def verify_decisions(record: RunRecord) -> Difference | None:
    """The first suggestion or decision that does not follow from what stands before it; None when all do.

    Raises:
        DamageError: the log, or what a driver recorded of the search, is damaged.
        UsageError: the pipeline is not there any more.
        ConfigError: its settings have changed so that the recorded space is none any more.
    """
    entries = read_entries(record)
    if not entries:
        return None
    found = first_search(record)
    if found is None:
        raise DamageError("record.no-config", "no driver has recorded the search", location=record.store.uri)
    ref = recorded_pipeline(record)
    base = load_recorded(record, ref)

    def space_of(text: str, location: str) -> Space:
        return load_sweep_text(ref, text, source=location, recorded=LoadedConfig(*base)).space

    identity = record.identity
    search = Search(
        settings=found.settings,
        space=space_of(found.text, found.location),
        metric=str(identity["metric"]),
        mode=identity["mode"],
        length=int(identity["length"]),
        rows=int(identity["rows"]),
        earlier=recorded_points(record),
    )

    def build(settings: SweepSettings, narrowed: Mapping[str, Any] | None) -> Sweep:
        space = search.space if narrowed is None else space_of(text_of(settings, narrowed), "the narrowed space")
        return build_sweep(replace(search, settings=settings, space=space))

    return verify(entries, build)
