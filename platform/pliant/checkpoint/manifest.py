"""What a checkpoint consists of. In ``checkpoints/step-00001200.a000003/`` lie, in the order of their writing:

__0_0.distcp   rank 0's shards, in torch's distributed checkpoint format; and so on for each rank
.metadata      which tensor lies where in them, in torch's format
manifest.json  this, which makes the checkpoint exist
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from pliant.errors import DamageError

MANIFEST_VERSION = 1
MANIFEST_NAME = "manifest.json"
METADATA_NAME = ".metadata"
FOLDER = "checkpoints/"
_REF = re.compile(r"step-(\d{8,})\.a(\d{6,})")


class CheckpointRef(NamedTuple):
    """A checkpoint by step and by the attempt that wrote it. Sorts by step, then by attempt."""

    step: int
    attempt: int

    @property
    def prefix(self) -> str:
        """Key prefix of its files, with the slash at the end."""
        return f"{FOLDER}step-{self.step:08d}.a{self.attempt:06d}/"

    @staticmethod
    def parse(key: str) -> CheckpointRef | None:
        """The checkpoint that a key below ``checkpoints/`` belongs to, or None."""
        match = _REF.match(key.removeprefix(FOLDER))
        return CheckpointRef(int(match.group(1)), int(match.group(2))) if match else None


_STRICT: Any = {"extra": "forbid", "strict": True}


@checked(frozen=True, config=_STRICT)
class FileEntry:
    """One file: its size in bytes and the blake2b of its bytes (hex, 64 bytes)."""

    size: int
    blake2b: str


@checked(frozen=True, config=_STRICT)
class LogPosition:
    """Last entry of a log that belongs to the checkpoint: the attempt that wrote it and its number there."""

    attempt: int
    seq: int


@checked(frozen=True, config=_STRICT)
class CheckpointManifest:
    """The content of ``manifest.json``.

    Attributes:
        step: completed steps.
        attempt: number of the attempt that wrote it.
        files: every other file by name, without the prefix.
        state: record of progress and data position.
        parameter_digest: blake2b of all parameters, the same at every world size.
        data_digest: identity of the dataset's manifest.
        config_digest: identity of the settings.
        world_size: number of workers that wrote it.
        logs: position of each step log, by name.
        metrics: measured values at this step, by name.
        created: seconds since 1970.
    """

    step: int
    attempt: int
    files: dict[str, FileEntry]
    state: dict[str, Any]
    parameter_digest: str
    data_digest: str
    config_digest: str
    world_size: int
    code_version: str
    torch_version: str
    logs: dict[str, LogPosition]
    metrics: dict[str, float]
    created: float
    version: int = MANIFEST_VERSION

    @property
    def ref(self) -> CheckpointRef:
        return CheckpointRef(self.step, self.attempt)

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(entry.size for entry in self.files.values())

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, indent=1).encode()

    @staticmethod
    def from_bytes(data: bytes, ref: CheckpointRef) -> CheckpointManifest:
        """Reads a manifest; raises DamageError when it is not one, or not that of ``ref``."""
        try:
            manifest = _ADAPTER.validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            reason = f"{place}: {first['msg']}" if place else first["msg"]
            raise _damaged(ref, f"the manifest cannot be read: {reason}") from error
        if manifest.version != MANIFEST_VERSION:
            raise _damaged(ref, f"the manifest has version {manifest.version}, this Pliant reads {MANIFEST_VERSION}")
        if manifest.ref != ref:
            raise _damaged(ref, f"the manifest is that of step {manifest.step}, attempt {manifest.attempt}")
        if METADATA_NAME not in manifest.files:
            raise _damaged(ref, f"the manifest names no {METADATA_NAME}")
        return manifest


_ADAPTER = TypeAdapter(CheckpointManifest)


def _damaged(ref: CheckpointRef, reason: str) -> DamageError:
    return DamageError("checkpoint.manifest", reason, location=ref.prefix + MANIFEST_NAME)


@dataclass(frozen=True)
class ManifestFields:
    """What the training loop knows and the manifest records. See CheckpointManifest for the meaning."""

    state: Mapping[str, Any]
    data_digest: str
    config_digest: str
    code_version: str
    logs: Mapping[str, LogPosition] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
