"""What a checkpoint consists of. In ``checkpoints/step-00001200.a000003/`` lie, in the order of their writing:

__0_0.distcp   rank 0's shards, in torch's distributed checkpoint format; and so on for each rank
.metadata      which tensor lies where in them, in torch's format
manifest.json  this, which makes the checkpoint exist
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from pliant.errors import DamageError, UsageError
from pliant.storage.layout import CheckpointRef

MANIFEST_VERSION = 1
METADATA_NAME = ".metadata"

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
    def total_bytes(self) -> int:
        """Size of all files together."""
        return sum(entry.size for entry in self.files.values())

    def to_bytes(self) -> bytes:
        """As JSON, with a digest of its own."""
        record = asdict(self)
        return json.dumps({"blake2b": _digest(record), "manifest": record}, sort_keys=True, indent=1).encode()

    @staticmethod
    def from_bytes(data: bytes, ref: CheckpointRef) -> CheckpointManifest:
        """Reads the manifest of ``ref``.

        Raises:
            DamageError: it is not a manifest, its digest differs, or it is that of another checkpoint.
            UsageError: it was written by another version of Pliant.
        """
        try:
            envelope = json.loads(data)
            record = envelope["manifest"]
            intact = envelope["blake2b"] == _digest(record)
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(ref, f"it cannot be read ({type(error).__name__}: {error})") from error
        if not intact:
            raise _damaged(ref, "it differs from its digest")
        if record.get("version") != MANIFEST_VERSION:
            message = f"the manifest has version {record.get('version')}; this Pliant reads {MANIFEST_VERSION}"
            hint = "resume with the version of Pliant that wrote it"
            raise UsageError("checkpoint.version", message, hint=hint, location=ref.manifest)
        try:
            manifest = _ADAPTER.validate_json(json.dumps(record))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise _damaged(ref, f"{place}: {first['msg']}") from error
        if manifest.ref != ref:
            raise _damaged(ref, f"it is that of step {manifest.step}, attempt {manifest.attempt}")
        if METADATA_NAME not in manifest.files:
            raise _damaged(ref, f"it names no {METADATA_NAME}")
        return manifest


_ADAPTER = TypeAdapter(CheckpointManifest)


def _digest(record: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _damaged(ref: CheckpointRef, reason: str) -> DamageError:
    return DamageError("checkpoint.manifest", reason, location=ref.manifest)


@dataclass(frozen=True)
class ManifestFields:
    """What the training loop knows and the manifest records. See CheckpointManifest for the meaning."""

    state: Mapping[str, Any]
    data_digest: str
    config_digest: str
    code_version: str
    logs: Mapping[str, LogPosition] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
