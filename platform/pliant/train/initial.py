"""``init.from``: which parameters a new run begins with. Settled once, by the driver that begins its record.

a run ─► its best checkpoint, or its last ─┐
RUN/checkpoints/step-…                    ─┼► place and digest ─► the run's identity, its settings, every start
FILE.safetensors                          ─┘
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.checkpoint.manifest import CheckpointManifest
from pliant.checkpoint.verify import best_checkpoint, read_manifest
from pliant.errors import ConfigError, UsageError
from pliant.settings import RunConfig
from pliant.storage.layout import CHECKPOINTS, CheckpointRef
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch import nn

    from pliant.train.protocols import Pipeline

SAFETENSORS = ".safetensors"
_INDEX = ".safetensors.index.json"
_CHECKPOINT = re.compile(rf"(?P<run>.+)/{CHECKPOINTS}/(?P<name>[^/]+)/?")
_ALLOWED = "give a run, one of its checkpoints (RUN/checkpoints/step-…), or a local .safetensors file"


@dataclass(frozen=True)
class Initial:
    """Parameters that a run begins with.

    Attributes:
        place: full path or URI of a checkpoint (``RUN/checkpoints/step-…``) or a ``.safetensors`` file.
        digest: the checkpoint's parameter digest, or blake2b of the file, 128 hex digits.
        text: what it is, for people.
    """

    place: str
    digest: str
    text: str

    def to_dict(self) -> dict[str, str]:
        """As the run's identity holds it."""
        return asdict(self)

    def check(self, config: RunConfig, pipeline: type[Pipeline[Any]]) -> None:
        """Compares keys and shapes with those of the model before anything is started, where that can be built without
        values; where not, ``load`` compares them.

        Raises:
            ConfigError: ``init.mismatch``.
            DamageError, StorageError: the source cannot be read.
        """
        import torch

        from pliant.checkpoint.initial import CheckpointSource, SafetensorsSource, compare_parameters
        from pliant.checkpoint.reader import open_checkpoint

        try:
            with torch.device("meta"):
                model = pipeline(config.model).model()
        except Exception:  # a model may look at values while it is built; what is wrong with it shows at the start
            return
        found = _as_checkpoint(self.place, config.run.store)
        source = CheckpointSource(open_checkpoint(*found, read_manifest(*found))) if found else None
        compare_parameters(source or SafetensorsSource(self.place), model, config.init.skip, self.place)

    def load(self, config: RunConfig, model: nn.Module, group: dist.ProcessGroup | None) -> None:
        """Loads the parameters into the model of a new run, at any world size; a collective over ``group``.

        Raises:
            ConfigError: they do not fit the model, or are no longer those that the run was begun with.
            DamageError, StorageError: they cannot be read.
        """
        from pliant.checkpoint.initial import CheckpointSource, SafetensorsSource, load_parameters
        from pliant.checkpoint.ranks import Ranks
        from pliant.checkpoint.reader import OpenCheckpoint, load_verified

        ranks, skip = Ranks(group), config.init.skip
        found = _as_checkpoint(self.place, config.run.store)
        if found is None:
            ranks.at_root("reading init.from", lambda: self._check(_file_digest(self.place)))
            ranks.gather(
                "loading init.from",
                lambda: load_parameters(SafetensorsSource(self.place), model, skip, self.place),
            )
            return

        def load(checkpoint: OpenCheckpoint) -> None:
            self._check(checkpoint.manifest.parameter_digest)
            load_parameters(CheckpointSource(checkpoint), model, skip, self.place)

        load_verified(*found, group, load)

    def _check(self, digest: str) -> None:
        if digest != self.digest:
            message = "these are not the parameters that the run was begun with"
            raise ConfigError("init.changed", message, hint="put them back, or start a new run", location=self.place)


def settle_initial(config: RunConfig) -> Initial | None:
    """What ``init.from`` means now; None where it is not set.

    Raises:
        ConfigError: ``init.unknown``, there is no such thing, or a run without a checkpoint.
        DamageError: the checkpoint's manifest is damaged.
        StorageError: storage cannot be read.
    """
    wanted, settings = config.init.from_, config.run.store
    if wanted is None:
        return None
    if wanted.endswith(_INDEX):
        message = f"{wanted} lists the parts of a model in several files, which are not read"
        hint = "write them into one: safetensors.torch.load_file of each part, save_file of all tensors"
        raise ConfigError("init.unknown", message, hint=hint, location="init.from")
    if wanted.endswith(SAFETENSORS):
        if "://" in wanted:
            hint = "copy it to a path that every host sees"
            raise ConfigError("init.unknown", f"{wanted} is not a local file", hint=hint, location="init.from")
        place = str(Path(wanted).expanduser().absolute())
        return Initial(place, _file_digest(place), f"the file {place}")
    found = _as_checkpoint(_absolute(wanted), settings)
    if found is not None:
        store, ref = found
        return _initial(store, _manifest(store, ref))
    place = _absolute(wanted) if "/" in wanted or wanted.startswith(("~", ".")) else f"{config.run.storage}/{wanted}"
    store = Store(_absolute(place.rstrip("/")), settings)
    try:
        checkpoints = RunRecord.open(store).view().checkpoints()
    except UsageError:
        message = f"there is no run {wanted}"
        raise ConfigError("init.unknown", f"{message} at {store.uri}", hint=_ALLOWED, location="init.from") from None
    if not checkpoints:
        message = f"the run {store.uri} has no checkpoint yet"
        raise ConfigError("init.unknown", message, hint="wait for its first one", location="init.from")
    return _initial(store, best_checkpoint(store, checkpoints) or _manifest(store, checkpoints[0]))


def _initial(store: Store, manifest: CheckpointManifest) -> Initial:
    ref = manifest.ref
    name = RunRecord.open(store).identity.get("name", store.uri)
    return Initial(f"{store.uri}/{ref.prefix}", manifest.parameter_digest, f"step {ref.step} of the run {name}")


def _as_checkpoint(place: str, settings: StorageSettings) -> tuple[Store, CheckpointRef] | None:
    match = _CHECKPOINT.fullmatch(place)
    ref = CheckpointRef.parse(match["name"]) if match else None
    return (Store(match["run"], settings), ref) if match and ref else None


def _manifest(store: Store, ref: CheckpointRef) -> CheckpointManifest:
    if store.head(ref.manifest) is None:
        message = f"there is no checkpoint {store.uri}/{ref.prefix}"
        raise ConfigError("init.unknown", message, hint="pliant verify RUN lists a run's", location="init.from")
    return read_manifest(store, ref)


def _absolute(place: str) -> str:
    return place if "://" in place else str(Path(place).expanduser().absolute())


def _file_digest(place: str) -> str:
    try:
        with open(place, "rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError as error:
        message = f"{place} cannot be read: {error.strerror}"
        raise ConfigError("init.unknown", message, hint=_ALLOWED, location="init.from") from None
