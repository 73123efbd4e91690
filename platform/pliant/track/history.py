"""What a run's record says besides numbers: settings, datasets, code, attempts. Read anew where it has changed."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pliant.config.yamlfile import parse_yaml
from pliant.storage.layout import attempt_key, decode
from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.storage.snapshot import AttemptInfo
from pliant.storage.view import View
from pliant.track.causes import End
from pliant.track.names import flatten, shortened, stored_name
from pliant.track.provenance import PROVENANCE_OBJECT
from pliant.track.settings import TrackingSettings, masked
from pliant.track.status import read_ends
from pliant.track.tracker import DatasetCard

CONFIG = "config.yaml"
RESOLVED = "config.resolved.yaml"
_SWEEP = "sweep.yaml"
"""Of a sweep: its settings and its search space."""
TOLD_OBJECT = "tracked.json"
"""Of a driver that died without a word: that the tracker has been told so."""
_LIVING = frozenset({"claim.json", "heartbeat.json", "stop-request.json", TOLD_OBJECT})
"""Objects of an attempt that are no artifacts."""
_LARGEST = 16 * 2**20
_SPLITS = {"train": "training", "validation": "validation"}

Objects = frozenset[tuple[int, str]]


@dataclass(frozen=True)
class Facts:
    """What is known of a run at one moment.

    Attributes:
        objects: what its attempts have written about themselves: (attempt, name).
        newest_driver: its attempt number; 0 before the first.
        params: settings by stored name, as of the first start.
        tags: one for each attempt, and MLflow's own about the code.
    """

    objects: Objects = frozenset()
    newest_driver: int = 0
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


def read_facts(record: RunRecord, view: View, before: Facts) -> Facts:
    """The facts now; ``before`` itself when nothing has changed."""
    attempts = record.attempts()
    objects = frozenset((a.number, name) for a in attempts for name in a.objects if name not in _LIVING)
    if objects == before.objects:
        return before
    drivers = [a for a in attempts if a.claim.kind == "driver"]
    return Facts(
        objects,
        drivers[-1].number if drivers else 0,
        _params(record, [a for a in drivers if CONFIG in a.objects]),
        {**_attempt_tags(record, view, attempts), **_code_tags(record, attempts)},
    )


def recorded_tracking(record: RunRecord) -> tuple[TrackingSettings, str] | None:
    """The tracking settings that the newest driver recorded, and its ``run.storage``. Light: the pipeline's own
    settings are not looked at."""
    configs = [a.number for a in record.attempts() if CONFIG in a.objects]
    if not configs:
        return None
    value = _config(record, configs[-1])
    settings = TrackingSettings.model_validate(value.get("tracking", {"kind": "none"}))
    return settings, str(value["run"]["storage"])


def artifact(record: RunRecord, number: int, name: str) -> bytes | None:
    """The bytes of an attempt's object; None for one that is too large."""
    key = attempt_key(number, name)
    info = record.store.head(key)
    if info is None or info.size > _LARGEST:
        return None
    data = record.store.get(key)
    return masked(data.decode()).encode() if name == CONFIG else data


def datasets(record: RunRecord) -> list[DatasetCard]:
    """The datasets that the run is bound to."""
    from pliant.data.manifest import Manifest

    cards = []
    for split, context in _SPLITS.items():
        try:
            manifest = Manifest.from_bytes(record.store.get(f"data/{split}.json"))
        except FileNotFoundError:
            continue
        cards.append(
            DatasetCard(
                context,
                name="/".join(manifest.root.rstrip("/").split("/")[-2:]),
                digest=manifest.digest,
                uri=manifest.root,
                schema={f.name: str(f.type) for f in manifest.schema},
                profile={
                    "rows": manifest.rows,
                    "files": len(manifest.files),
                    "bytes": sum(f.size for f in manifest.files),
                },
            )
        )
    return cards


def _params(record: RunRecord, starts: list[AttemptInfo]) -> dict[str, str]:
    """Of the first start; settings that it did not know yet, of the newest."""
    params: dict[str, str] = {}
    for start in (starts[-1], starts[0]) if starts else ():
        for name in (CONFIG, _SWEEP):
            if name in start.objects:
                for key, value in flatten(_config(record, start.number, name)):
                    params[stored_name(key)] = shortened(masked(value), RESOLVED if name == CONFIG else name)
    return params


def first_config(record: RunRecord) -> dict[str, Any] | None:
    """The settings of a run's first start; None before it."""
    configs = [a.number for a in record.attempts() if CONFIG in a.objects]
    return _config(record, configs[0]) if configs else None


def newest_config(record: RunRecord) -> bytes | None:
    """The settings of a run's newest start, as they stand in its record; None before the first."""
    configs = [a.number for a in record.attempts() if CONFIG in a.objects]
    return artifact(record, configs[-1], CONFIG) if configs else None


def _config(record: RunRecord, number: int, name: str = CONFIG) -> dict[str, Any]:
    key = attempt_key(number, name)
    value = parse_yaml(record.store.get(key).decode(), f"{record.store.uri}/{key}").value
    return value if isinstance(value, dict) else {}


def _attempt_tags(record: RunRecord, view: View, attempts: list[AttemptInfo]) -> dict[str, str]:
    every = list(read_log(record.store, view, "events"))
    events: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in every:
        events[event["attempt"]].append(event)
    stops, ends = read_ends(record, attempts, every)
    tags, before = {}, None
    for info in attempts:
        about = _attempt(info, stops.get(info.number), ends[info.number], events[info.number])
        if info.claim.kind == "group":
            size = info.claim.info.get("world_size")
            about |= {"resize": f"{before}→{size}"} if before not in (None, size) else {}
            before = size
        tags[f"pliant.attempt.{info.number:06d}"] = json.dumps(about, ensure_ascii=False)
    return tags


def _attempt(
    info: AttemptInfo, stop: Mapping[str, Any] | None, end: End, events: list[dict[str, Any]]
) -> dict[str, Any]:
    claim = info.claim
    began = float(claim.info.get("time", 0.0))
    about: dict[str, Any] = {
        "kind": claim.kind,
        "host": claim.info.get("host"),
        "pid": claim.info.get("pid"),
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
    }
    if claim.kind == "group":
        about |= {"driver": claim.driver, "world_size": claim.info.get("world_size")}
    for event in events:
        if event["kind"] == "start":
            about |= {"restored": event.get("restored"), "comparable": event.get("comparable")}
        elif event["kind"] in ("setting", "not-comparable", "quarantine"):
            about.setdefault(event["kind"], []).append(event["text"])
    if stop is not None:
        about["ended"] = stop["reason"]
    if end.cause is not None:
        about |= {"cause": end.cause, "why": masked(end.text)}
    return about


def _code_tags(record: RunRecord, attempts: list[AttemptInfo]) -> dict[str, str]:
    tags = {"mlflow.source.type": "LOCAL", "mlflow.source.name": str(record.identity["pipeline"])}
    for info in reversed(attempts):
        if PROVENANCE_OBJECT in info.objects:
            key = attempt_key(info.number, PROVENANCE_OBJECT)
            known = decode(record.store.get(key), f"{record.store.uri}/{key}")
            git = known.get("git") or {}
            texts = {
                "mlflow.user": known.get("user"),
                "mlflow.source.git.commit": git.get("commit"),
                "mlflow.source.git.branch": git.get("branch"),
                "mlflow.source.git.repoURL": git.get("remote"),
                "pliant.git.dirty": json.dumps(git.get("dirty")),
                "pliant.version": known.get("pliant"),
            }
            return tags | {key: str(value) for key, value in texts.items() if value is not None}
    return tags
