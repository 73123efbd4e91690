"""Names of everything under a run's directory. Every object carries the number of the attempt that wrote it. Pure.

run.json                                          identity of the run
attempts/a000003/{claim,restore,stop,…}.json      what attempt 3 says about itself
checkpoints/step-00001200.a000003/                shards; a checkpoint exists when manifest.json does
markers/quarantine.step-00001200.a000003.a000005.json   attempt 5 on a checkpoint of attempt 3
markers/pin.step-00001200.a000003.HOLDER.a000003.json   another run, which is being cloned from it
logs/metrics/a000003-s0000000121.jsonl            entries 121, 122, … of attempt 3
trials/t0007.g1/                                  of a sweep: the run of trial 7 since it cloned another one's state
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pliant.errors import DamageError

RUN = "run.json"
ATTEMPTS = "attempts"
CHECKPOINTS = "checkpoints"
MARKERS = "markers"
LOGS = "logs"
MANIFEST = "manifest.json"
TRIALS = "trials"
"""Folder of a sweep that holds the runs of its trials."""

_ATTEMPT = re.compile(r"attempts/a(\d{6,})/(.+)")
_CHECKPOINT = re.compile(r"checkpoints/step-(\d{8,})\.a(\d{6,})/(.+)")
_CHECKPOINT_NAME = re.compile(r"step-(\d{8,})\.a(\d{6,})")
_MARKER = re.compile(r"markers/([a-z-]+)\.(.+)\.a(\d{6,})\.json")
_SEGMENT = re.compile(r"logs/([a-z0-9-]+)/a(\d{6,})-s(\d{10,})\.jsonl")


@dataclass(frozen=True, order=True)
class CheckpointRef:
    """A checkpoint: the step it was taken after, and the attempt that wrote it. Sorts oldest first."""

    step: int
    attempt: int

    @property
    def name(self) -> str:
        """``step-00001200.a000003``, also the target of markers about it."""
        return f"step-{self.step:08d}.a{self.attempt:06d}"

    @property
    def prefix(self) -> str:
        """Folder of its files."""
        return f"{CHECKPOINTS}/{self.name}"

    @property
    def manifest(self) -> str:
        """Key of its manifest."""
        return f"{self.prefix}/{MANIFEST}"

    @classmethod
    def parse(cls, name: str) -> CheckpointRef | None:
        """The inverse of ``name``; None for anything else."""
        found = _CHECKPOINT_NAME.fullmatch(name)
        return cls(int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True, order=True)
class Marker:
    """A statement about something: ``kind`` (quarantine, delete, …) of ``target`` by an attempt."""

    kind: str
    target: str
    attempt: int

    @property
    def key(self) -> str:
        """Key of the marker object."""
        return f"{MARKERS}/{self.kind}.{self.target}.a{self.attempt:06d}.json"


@dataclass(frozen=True, order=True)
class Segment:
    """A piece of a log; ``first`` is the sequence number of its first entry, from 1 in every attempt."""

    log: str
    attempt: int
    first: int

    @property
    def key(self) -> str:
        """Key of the segment object."""
        return f"{LOGS}/{self.log}/a{self.attempt:06d}-s{self.first:010d}.jsonl"


def attempt_key(number: int, name: str) -> str:
    """``attempts/a000003/claim.json``."""
    return f"{ATTEMPTS}/a{number:06d}/{name}"


def parse_attempt(key: str) -> tuple[int, str] | None:
    """(number, object name) of a key under ``attempts/``; None for foreign files."""
    found = _ATTEMPT.fullmatch(key)
    return (int(found[1]), found[2]) if found else None


def parse_checkpoint(key: str) -> tuple[CheckpointRef, str] | None:
    """(checkpoint, file name) of a key under ``checkpoints/``; None for foreign files."""
    found = _CHECKPOINT.fullmatch(key)
    return (CheckpointRef(int(found[1]), int(found[2])), found[3]) if found else None


def parse_marker(key: str) -> Marker | None:
    """The marker of a key under ``markers/``; None for foreign files."""
    found = _MARKER.fullmatch(key)
    return Marker(found[1], found[2], int(found[3])) if found else None


def parse_segment(key: str) -> Segment | None:
    """The segment of a key under ``logs/``; None for foreign files."""
    found = _SEGMENT.fullmatch(key)
    return Segment(found[1], int(found[2]), int(found[3])) if found else None


def encode(value: dict[str, Any]) -> bytes:
    """A record object as JSON."""
    return json.dumps(value, sort_keys=True, indent=1).encode() + b"\n"


def decode(data: bytes, location: str) -> dict[str, Any]:
    """The inverse of ``encode``; DamageError naming ``location`` when the bytes are not a JSON object."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise damaged(location, f"it is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise damaged(location, f"it holds a {type(value).__name__} where an object is expected")
    return value


def damaged(location: str, detail: str) -> DamageError:
    """A record object that cannot be trusted."""
    hint = "restore the object from a copy of the run, or start a new run from its last checkpoint with init.from"
    return DamageError(
        "record.damaged", f"this part of the run's record is damaged: {detail}", hint=hint, location=location
    )


def run_name(trial: str, generation: int) -> str:
    """Name of the run of a trial's generation, below the sweep's ``trials/``."""
    return f"{trial}.g{generation}" if generation else trial
