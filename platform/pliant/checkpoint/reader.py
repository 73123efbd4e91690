"""Restoring the newest checkpoint that is intact, at any world size.

Rank 0 lists the candidates; the ranks share the reading of all bytes between them and vote. Only what a completed
read proves is damage: such a checkpoint is named, reported for quarantine, and the next older one is tried. Storage
that fails raises StorageError. Nothing is unpickled before its digest was found right.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.metadata import Metadata
from torch.optim import Optimizer

from pliant.checkpoint.dcp import ShardReader
from pliant.checkpoint.digest import named_shards, parameter_digest
from pliant.checkpoint.manifest import CheckpointManifest, FileEntry
from pliant.checkpoint.ranks import Ranks
from pliant.checkpoint.state import load_model_and_optimizer
from pliant.checkpoint.verify import check_file, read_manifest
from pliant.errors import DamageError
from pliant.storage.layout import CheckpointRef
from pliant.storage.store import Store
from pliant.storage.view import View


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that was not used, and why."""

    ref: CheckpointRef
    reason: str


@dataclass(frozen=True)
class OpenCheckpoint:
    """A verified checkpoint, ready to be loaded from."""

    ref: CheckpointRef
    manifest: CheckpointManifest
    reader: ShardReader
    metadata: Metadata

    def load(self, model: nn.Module, optimizer: Optimizer | None) -> None:
        """Loads in place; see ``load_model_and_optimizer``. Raises ConfigError when keys or shapes do not fit."""
        load_model_and_optimizer(self.reader, self.metadata, model, optimizer, self.ref.name)


@dataclass(frozen=True)
class RestoredCheckpoint:
    """What was restored.

    Attributes:
        skipped: newer ones that were found damaged, newest first.
        verify_s: seconds of verification, skipped checkpoints included.
        load_s: seconds of loading.
    """

    ref: CheckpointRef
    manifest: CheckpointManifest
    skipped: tuple[Skipped, ...]
    verify_s: float
    load_s: float


def restore(
    store: Store,
    view: Callable[[], View],
    *,
    group: dist.ProcessGroup | None,
    load: Callable[[OpenCheckpoint], None],
    on_quarantine: Callable[[CheckpointRef, str], None] = lambda ref, reason: None,
) -> RestoredCheckpoint | None:
    """Loads the newest intact checkpoint of a run; a collective over ``group``.

    Args:
        store: the run's storage.
        view: what counts in the run; called on rank 0 only.
        group: gloo group of all ranks; None for a single process.
        load: loads from the chosen checkpoint, on every rank; not a collective.
        on_quarantine: called on rank 0 with every damaged checkpoint and the reason, before an older one is tried.

    Returns:
        None when the run has never committed a checkpoint.

    Raises:
        DamageError: there are checkpoints, but none is intact; each is listed with its reason.
        StorageError: storage could not be read.
        ConfigError: the checkpoint does not fit the model.
    """
    ranks = Ranks(group)
    begin = time.perf_counter()
    candidates, skipped = ranks.at_root("listing checkpoints", lambda: _candidates(view()))
    already_known = len(skipped)
    for ref in candidates:
        manifest = _verified(ranks, store, ref)
        if isinstance(manifest, str):
            reason = manifest
            skipped.append(Skipped(ref, reason))
            ranks.at_root("quarantining", partial(on_quarantine, ref, reason))
            continue
        verified = time.perf_counter()
        ranks.gather("loading", partial(_load, store, ref, manifest, load))
        now = time.perf_counter()
        return RestoredCheckpoint(ref, manifest, tuple(skipped[already_known:]), verified - begin, now - verified)
    if skipped:
        raise _none_left(skipped, store)
    return None


def _load(
    store: Store, ref: CheckpointRef, manifest: CheckpointManifest, load: Callable[[OpenCheckpoint], None]
) -> None:
    load(open_checkpoint(store, ref, manifest))


def load_verified(
    store: Store, ref: CheckpointRef, group: dist.ProcessGroup | None, load: Callable[[OpenCheckpoint], None]
) -> None:
    """Loads from one checkpoint of a run after all of its bytes were verified; a collective over ``group``.

    Args:
        load: as for ``restore``.

    Raises:
        DamageError: it is damaged, or not there.
        StorageError: storage could not be read.
        ConfigError: the checkpoint does not fit the model.
    """
    ranks = Ranks(group)
    manifest = _verified(ranks, store, ref)
    if isinstance(manifest, str):
        raise DamageError("checkpoint.damaged", f"is damaged: {manifest}", location=f"{store.uri}/{ref.prefix}")
    ranks.gather("loading", partial(_load, store, ref, manifest, load))


def open_checkpoint(store: Store, ref: CheckpointRef, manifest: CheckpointManifest) -> OpenCheckpoint:
    """Opens a verified checkpoint of a run for loading."""
    reader = ShardReader(store.child(ref.prefix), manifest.files)
    return OpenCheckpoint(ref, manifest, reader, reader.read_metadata())


def check_parameters(manifest: CheckpointManifest, model: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Compares the loaded parameters with the digest that was taken when they were saved; a collective.

    Raises:
        DamageError: on all ranks, when they differ.
    """
    ranks = Ranks(group)
    digest = parameter_digest(named_shards(model), group, ranks.rank)

    def compare() -> None:
        if digest != manifest.parameter_digest:
            message = "the loaded parameters differ from those that were saved"
            raise DamageError("checkpoint.parameters", message, location=manifest.ref.name)

    ranks.at_root("comparing the parameters", compare)


def _candidates(view: View) -> tuple[list[CheckpointRef], list[Skipped]]:
    """What may be restored, newest first, and what is known as damaged.

    A checkpoint that is only marked for removal is as good as any: removal takes the manifest first.
    """
    damaged = [Skipped(v.checkpoint, v.reason) for v in view.verdicts() if v.state == "quarantined"]
    return sorted(view.checkpoints() + view.marked(), reverse=True), damaged


def _verified(ranks: Ranks, store: Store, ref: CheckpointRef) -> CheckpointManifest | str:
    """The manifest of an intact checkpoint, or what is wrong with it; the same on every rank."""

    def read() -> CheckpointManifest | str:
        try:
            return read_manifest(store, ref)
        except DamageError as error:
            return f"manifest.json: {error.message}"

    manifest = ranks.at_root("reading the manifest", read)
    if isinstance(manifest, str):
        return manifest

    def check_share() -> list[str]:
        share = _share(manifest.files, ranks.size)[ranks.rank]
        return [problem for name in share if (problem := check_file(store, ref, name, manifest.files[name]))]

    problems = [problem for found in ranks.gather("verifying", check_share) for problem in found]
    return "; ".join(sorted(problems)) or manifest


def _share(files: dict[str, FileEntry], world_size: int) -> list[list[str]]:
    """Divides files so that each rank reads about as many bytes: the largest first, each to who has least."""
    shares: list[list[str]] = [[] for _ in range(world_size)]
    sizes = [0] * world_size
    for name in sorted(files, key=lambda n: (-files[n].size, n)):
        rank = sizes.index(min(sizes))
        shares[rank].append(name)
        sizes[rank] += files[name].size
    return shares


def _none_left(skipped: list[Skipped], store: Store) -> DamageError:
    listed = "".join(f"\n  {s.ref.name}: {s.reason}" for s in sorted(skipped, key=lambda s: s.ref, reverse=True))
    hint = "restore the files from a copy, or start a new run; `pliant verify` shows what is wrong with each"
    message = f"every checkpoint of the run is damaged, and training does not start over by itself:{listed}"
    return DamageError("checkpoint.none-intact", message, hint=hint, location=store.uri)
