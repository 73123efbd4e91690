"""What a driver's start records of what it was settled to, and how that is read again. Light: no torch, no Ray.

attempts/a000001/config.yaml     all settings, each with its origin as a comment
                 origins.json    the origins by dotted key
                 code.json       the pipeline's own files: digest and text of each
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from pliant.config.dump import config_to_yaml
from pliant.config.overrides import Overrides
from pliant.config.resume import compare_for_resume, frozen_rule
from pliant.configure import LoadedConfig, absolute_paths, load_config_text
from pliant.errors import ConfigError, DamageError, UsageError
from pliant.registry import PipelineRef, find_pipeline
from pliant.settings import RunConfig
from pliant.storage.attempts import Attempt
from pliant.storage.layout import attempt_key, damaged, decode, encode
from pliant.storage.record import RunRecord
from pliant.storage.store import Store

CONFIG_OBJECT = "config.yaml"
ORIGINS_OBJECT = "origins.json"
CODE_OBJECT = "code.json"
NOTHING_RECORDED = "record.no-config"
_DIFF_LINES = 200


class SourceFile(NamedTuple):
    """A file's digest (blake2b of its bytes, 32 hex digits) and its text."""

    digest: str
    text: str


@dataclass(frozen=True)
class Code:
    """The files that a pipeline consists of, by path relative to its folder."""

    files: Mapping[str, SourceFile]

    @classmethod
    def of(cls, ref: PipelineRef) -> Code:
        """As they are now."""
        files = {}
        for name, path in ref.sources().items():
            content = path.read_bytes()
            text = content.decode("utf-8", errors="backslashreplace")
            files[name] = SourceFile(blake2b(content, digest_size=16).hexdigest(), text)
        return cls(files)

    def to_bytes(self) -> bytes:
        """As it is recorded."""
        return encode({"files": {name: file._asdict() for name, file in self.files.items()}})

    @classmethod
    def from_bytes(cls, data: bytes, location: str) -> Code:
        """The inverse of ``to_bytes``; DamageError naming ``location``."""
        try:
            files = decode(data, location)["files"]
            return cls({str(name): SourceFile(**file) for name, file in files.items()})
        except (KeyError, TypeError, AttributeError) as error:
            raise damaged(location, "it does not hold the pipeline's files") from error

    def changes(self, now: Code) -> list[CodeChange]:
        """The files that are not what they were; empty when all are."""
        found = []
        for name in sorted({*self.files, *now.files}):
            before, after = self.files.get(name), now.files.get(name)
            if before is None or after is None or before.digest != after.digest:
                found.append(CodeChange(name, before, after))
        return found


@dataclass(frozen=True)
class CodeChange:
    """A file that has changed; None on the side where it is not there."""

    name: str
    before: SourceFile | None
    after: SourceFile | None

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"{self.name} {'is new' if self.before is None else 'is gone'}"
        marks = [line[0] for line in self.diff()[2:]]
        return f"{self.name} +{marks.count('+')} −{marks.count('-')}"

    def diff(self) -> list[str]:
        """The change as a unified diff, without line ends."""
        before, after = (side.text.splitlines() if side else [] for side in (self.before, self.after))
        return list(difflib.unified_diff(before, after, f"{self.name} (recorded)", f"{self.name} (now)", lineterm=""))


def record_start(attempt: Attempt, config: RunConfig, origins: Mapping[str, str], code: Code) -> None:
    """Writes what a driver was settled to into its attempt."""
    attempt.write(CODE_OBJECT, code.to_bytes())
    attempt.write(ORIGINS_OBJECT, encode(dict(origins)))
    attempt.write(CONFIG_OBJECT, config_to_yaml(config, origins).encode())


def pipeline_identity(ref: PipelineRef) -> dict[str, Any]:
    """What a run's identity says of its pipeline."""
    return {"pipeline": str(ref.file), "module": ref.module, "attribute": ref.attribute}


def recorded_pipeline(record: RunRecord) -> PipelineRef:
    """The pipeline of a run.

    Raises:
        UsageError: its file is not there any more.
    """
    identity = record.identity
    file = str(identity["pipeline"])
    try:
        found = find_pipeline(str(Path(file).absolute()))
    except ConfigError:
        hint = f"put it back; its text is in {CODE_OBJECT} of the run's attempts"
        raise UsageError("resume.no-pipeline", "the run's pipeline is not there", hint=hint, location=file) from None
    module, attribute = identity.get("module", found.module), identity.get("attribute", found.attribute)
    return replace(found, module=str(module), attribute=str(attribute))


def load_recorded(record: RunRecord, ref: PipelineRef, overrides: Overrides = ()) -> LoadedConfig:
    """The settings of a run's newest driver, with the origins that they had, and overrides over them.

    Raises:
        ConfigError: all problems of the overrides, changes of frozen settings among them, or settings that the
            pipeline no longer has.
        DamageError: no driver has recorded its settings.
    """
    number = _newest_start(record)
    key = attempt_key(number, CONFIG_OBJECT)
    origins_key = attempt_key(number, ORIGINS_OBJECT)
    origins = decode(record.store.get(origins_key), f"{record.store.uri}/{origins_key}")
    source = f"{record.store.uri}/{key}"
    try:
        text = record.store.get(key).decode()
    except UnicodeDecodeError as error:
        raise damaged(source, "it is not UTF-8") from error
    loaded = load_config_text(ref, text, source=source, recorded=origins)
    if not overrides:
        return loaded
    reads = ("data.path", "data.validation", "run.storage")
    frozen = frozen_rule(loaded.config, *reads, settle=absolute_paths, begun=has_begun(record))
    return load_config_text(ref, text, overrides, source=source, recorded=origins, rules=[frozen])


def has_begun(record: RunRecord) -> bool:
    """Whether a resume has parameters to go on with: a checkpoint was committed, be it damaged by now."""
    return any(verdict.state in ("usable", "quarantined", "marked") for verdict in record.view().verdicts())


def recorded_code(record: RunRecord) -> Code:
    """The code that a run's newest driver ran; no files where it recorded none."""
    key = attempt_key(_newest_start(record), CODE_OBJECT)
    try:
        return Code.from_bytes(record.store.get(key), f"{record.store.uri}/{key}")
    except FileNotFoundError:
        return Code({})


def check_code(record: RunRecord, ref: PipelineRef, *, accept: bool) -> tuple[Code, list[CodeChange]]:
    """The pipeline's code as it is, and what has changed in it since the run's newest driver started.

    Raises:
        UsageError: ``resume.code-changed``, with the change as a diff; not with ``accept``.
    """
    now = Code.of(ref)
    changes = recorded_code(record).changes(now)
    if changes and not accept:
        lines = [line for change in changes for line in change.diff()]
        cut = [f"… {len(lines) - _DIFF_LINES} more lines"] if len(lines) > _DIFF_LINES else []
        shown = "".join(f"\n  {line}" for line in [*lines[:_DIFF_LINES], *cut])
        raise UsageError(
            "resume.code-changed",
            f"the pipeline's code is not what the run was started with ({', '.join(map(str, changes))}):{shown}",
            hint="put it back, or go on with the new code: --accept-code; the change is recorded",
            location=str(ref.file),
        )
    return now, changes


def explain_code(store: Store) -> list[str]:
    """What a resume would say of the pipeline's code, for people."""
    record = RunRecord.open(store)
    try:
        changes = recorded_code(record).changes(Code.of(recorded_pipeline(record)))
    except UsageError as error:
        return [f"the pipeline cannot be read: {error.location} {error.message}"]
    except DamageError as error:
        if error.code != NOTHING_RECORDED:
            raise
        return []
    if not changes:
        return ["the pipeline's code is what the run was started with"]
    return [f"the pipeline's code has changed ({', '.join(map(str, changes))}): a resume would need --accept-code"]


def explain_settings(store: Store, overrides: Overrides) -> list[str]:
    """What a resume with these settings would change, and whether anything is left to train, for people.

    Raises:
        ConfigError: what the resume itself would refuse of the settings.
    """
    record = RunRecord.open(store)
    try:
        ref = recorded_pipeline(record)
        old, new = (load_recorded(record, ref, texts).config for texts in ((), overrides))
    except UsageError:
        return []  # said of its code
    except DamageError as error:
        if error.code != NOTHING_RECORDED:
            raise
        return []
    changes = compare_for_resume(old, absolute_paths(new), begun=has_begun(record))
    lines = [f"it would change {change}, and with it the curve" for change in changes.curve]
    lines += [f"it would change {change}" for change in changes.free]
    usable, steps = record.view().checkpoints(), new.train.steps
    if usable and steps is not None and usable[0].step >= steps:
        lines.append(f"nothing is left to train: the checkpoint is at step {usable[0].step} of {steps}")
    return lines


def _newest_start(record: RunRecord) -> int:
    """The newest attempt that has recorded its settings; it has recorded everything before them."""
    for info in reversed(record.attempts()):
        if CONFIG_OBJECT in info.objects:
            return info.number
    raise DamageError(
        NOTHING_RECORDED,
        "no attempt of the run has recorded its settings",
        hint="it never started: start a new run",
        location=record.store.uri,
    )
