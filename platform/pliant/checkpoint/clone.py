"""A new run that goes on from another run's checkpoint.

begin_clone   pin in the donor's record ─► run.json, dataset manifests of the new run
finish_clone  every file copied and digested on the way ─► manifest ─► pin released

The copy is the new run's first checkpoint, which any restore finds as its newest: model, optimizer, step, samples and
position in the data are the donor's. Both functions may be repeated: what a process that died has done stands.

**Pins.** A pin is a marker in the donor's record, put from outside, one for each clone: retention keeps the checkpoint,
whatever attempts of the donor decide meanwhile. It has no clock. It ends with its clone: whoever finishes that releases
it; one of a process that died stands until the clone is finished, since what was decided to be cloned has to be there
when that is tried again, or until somebody who gives the clone up releases it (``release``).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pliant.checkpoint.manifest import CheckpointManifest, FileEntry
from pliant.checkpoint.verify import pieces, read_manifest
from pliant.errors import DamageError, UsageError
from pliant.storage.attempts import Attempt
from pliant.storage.layout import CheckpointRef, Marker, damaged, encode
from pliant.storage.owner import process_identity
from pliant.storage.record import RunRecord
from pliant.storage.store import Store
from pliant.storage.view import PIN, QUARANTINE

_DATA = "data"
"""Where a run keeps the manifests of its datasets."""
_OWN = ("run_id", "created", "version")
"""What of a run's identity is never another run's."""


def checkpoint_at(donor: Store, samples: int) -> CheckpointRef:
    """The newest checkpoint of a run that was taken after so many samples.

    Raises:
        UsageError: ``clone.no-checkpoint``: there is none.
        DamageError: none of those that can be read, and others are damaged.
    """
    view, problems = RunRecord.open(donor).view(), []
    for ref in sorted(view.checkpoints() + view.marked(), reverse=True):
        try:
            if read_manifest(donor, ref).state["data"]["samples"] == samples:
                return ref
        except DamageError as error:
            problems.append(f"\n  {ref.name}: {error.message}")
    if problems:
        message = f"no checkpoint of {samples:,} samples can be read; damaged are:{''.join(problems)}"
        raise DamageError("clone.damaged", message, location=donor.uri)
    raise UsageError("clone.no-checkpoint", f"the run has no checkpoint of {samples:,} samples", location=donor.uri)


def begin_clone(donor: Store, checkpoint: CheckpointRef, target: Store, identity: Mapping[str, Any]) -> RunRecord:
    """Begins a run that goes on from a checkpoint of another one, or finds it begun. Nothing is copied yet.

    Args:
        donor: the other run's store.
        checkpoint: which one, e.g. from ``checkpoint_at``.
        target: the new run's store.
        identity: laid over the donor's identity. Its ``clone`` (a mapping, may be absent) gets ``run`` (the donor's
            URI), ``checkpoint`` (name) and ``samples``.

    Raises:
        UsageError: the checkpoint does not count in the donor, or there is another run in ``target``.
        DamageError: its manifest is damaged; it is then quarantined in the donor.
        StorageError.
    """
    pin(donor, checkpoint, target)
    try:
        manifest = _manifest(donor, checkpoint)
    except (UsageError, DamageError):
        release(donor, checkpoint, target)
        raise
    origin = {"run": donor.uri, "checkpoint": checkpoint.name, "samples": manifest.state["data"]["samples"]}
    inherited = {key: value for key, value in RunRecord.open(donor).identity.items() if key not in _OWN}
    full = {**inherited, **identity, "clone": {**identity.get("clone", {}), **origin}}
    try:
        record = RunRecord.create(target, full)
    except UsageError:
        record = RunRecord.open(target)
        if {key: (record.identity.get("clone") or {}).get(key) for key in origin} != origin:
            release(donor, checkpoint, target)
            raise
    for info in donor.list(_DATA):
        target.put_if_absent(info.key, donor.get(info.key))
    return record


def finish_clone(record: RunRecord, attempt: Attempt) -> CheckpointRef | None:
    """Copies what a run was begun from, unless that has been done; nothing for a run that is no clone.

    Every group of workers passes here before it restores. Needs a few pieces of 16 MiB of memory, whatever the
    checkpoint's size.

    Args:
        attempt: the group's; the checkpoint is named by it.

    Returns:
        The copy; None where there is nothing to do.

    Raises:
        DamageError: ``clone.damaged``, naming every damaged file; the checkpoint is then quarantined in the donor.
        UsageError: the donor's checkpoint is gone.
        FencedError: a newer attempt has claimed the run.
        StorageError.
    """
    clone = record.identity.get("clone")
    if not clone:
        return None
    ref = CheckpointRef.parse(str(clone.get("checkpoint")))
    if ref is None or "run" not in clone:
        raise damaged(f"{record.store.uri}/run.json", "it does not say what the run was cloned from")
    view, copied = record.view(), None
    if view.restore is not None:
        return None  # a group has passed here before: the donor is not needed any more
    donor = Store(clone["run"], record.store.settings)
    if not any(verdict.state in ("usable", "marked", "quarantined") for verdict in view.verdicts()):
        pin(donor, ref, record.store)
        try:
            copied = clone_checkpoint(donor, ref, record.store, attempt)
        except (DamageError, UsageError):  # that is not mended by another try
            release(donor, ref, record.store)
            raise
    attempt.check()
    release(donor, ref, record.store)
    return copied


def clone_checkpoint(source: Store, ref: CheckpointRef, target: Store, attempt: Attempt) -> CheckpointRef:
    """Copies a checkpoint into another run, digesting every byte on the way; the manifest is put last.

    Args:
        source: the donor's store, where the checkpoint is pinned.
        attempt: of the run in ``target``, which it writes under and is fenced by.

    Raises: as ``finish_clone``.
    """
    manifest = _manifest(source, ref)
    copy = CheckpointRef(ref.step, attempt.number)
    problems = []
    for name, entry in sorted(manifest.files.items()):
        attempt.check()
        if problem := _copy(source, f"{ref.prefix}/{name}", target, f"{copy.prefix}/{name}", entry):
            problems.append(f"{name} {problem}")
    if problems:
        _manifest(source, ref)  # still there? else it is no damage
        raise _damaged(source, ref, "; ".join(problems))
    # Positions in the donor's logs say nothing of the new run's, which begin after the copy.
    own = replace(manifest, attempt=copy.attempt, logs={}, created=time.time())
    attempt.check()
    if not target.put_if_absent(copy.manifest, own.to_bytes()):
        raise UsageError(
            "clone.exists", "this attempt has made the copy before", location=f"{target.uri}/{copy.prefix}"
        )
    return copy


def pin(donor: Store, checkpoint: CheckpointRef, target: Store) -> None:
    """Keeps a checkpoint of a run from being removed until its clone in ``target`` is made. May be repeated."""
    content = {"for": target.uri, "time": time.time(), **process_identity()}
    donor.put_if_absent(_pin(checkpoint, target).key, encode(content))


def release(donor: Store, checkpoint: CheckpointRef, target: Store) -> None:
    """Ends a pin. May be repeated."""
    donor.delete(_pin(checkpoint, target).key)


def _pin(checkpoint: CheckpointRef, target: Store) -> Marker:
    holder = hashlib.blake2b(target.uri.encode(), digest_size=8).hexdigest()
    return Marker(PIN, f"{checkpoint.name}.{holder}", checkpoint.attempt)


def _manifest(donor: Store, ref: CheckpointRef) -> CheckpointManifest:
    """The manifest of a checkpoint that counts."""
    verdicts = {verdict.checkpoint: verdict for verdict in RunRecord.open(donor).view().verdicts()}
    found = verdicts.get(ref)
    if found is None or found.state not in ("usable", "marked"):
        message = f"the run has no checkpoint {ref.name} to clone" + (f": {found.reason}" if found else "")
        if found is not None and found.state == "quarantined":
            raise DamageError("clone.damaged", message, location=f"{donor.uri}/{ref.prefix}")
        raise UsageError("clone.no-checkpoint", message, location=donor.uri)
    try:
        return read_manifest(donor, ref)
    except DamageError as error:
        raise _damaged(donor, ref, f"manifest.json: {error.message}") from error


def _damaged(donor: Store, ref: CheckpointRef, reason: str) -> DamageError:
    """The error; and the donor's record says so from now on, by its newest attempt that counts."""
    view = RunRecord.open(donor).view()
    marker = Marker(QUARANTINE, ref.name, max(view.claims.keys() - view.void))
    donor.put_if_absent(marker.key, encode({"reason": reason, "time": time.time(), **process_identity()}))
    message = f"the checkpoint cannot be cloned, it is damaged: {reason}"
    return DamageError("clone.damaged", message, location=f"{donor.uri}/{ref.prefix}")


def _copy(source: Store, key: str, target: Store, to: str, entry: FileEntry) -> str | None:
    """Copies a file; what is wrong with it, or None. A damaged one does not become visible in the target."""
    info = source.head(key)
    if info is None:
        return "is missing"
    if info.size != entry.size:
        return f"has {info.size} bytes where the manifest says {entry.size}"
    digest = hashlib.blake2b()
    with target.open_writer(to) as writer:
        try:
            for piece in pieces(source, key, entry.size):
                digest.update(piece)
                writer.write(piece)
        except FileNotFoundError:
            writer.abort()
            return "is missing"
        if digest.hexdigest() != entry.blake2b:
            writer.abort()
            return "differs from its digest"
    return None
