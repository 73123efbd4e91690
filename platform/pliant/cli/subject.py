"""What a command about settings is about: a pipeline, a YAML file, or a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pliant.cli.common import resolve_run
from pliant.cli.complete import complete_subject
from pliant.errors import ConfigError

if TYPE_CHECKING:
    from pliant.configure import LoadedConfig
    from pliant.registry import PipelineRef
    from pliant.storage.record import RunRecord

HELP = "A pipeline (a name in pipelines/, a .py file, module:attribute), a YAML file, or a run (name, path or URI)."
SubjectArgument = Annotated[str, typer.Argument(metavar="PIPELINE", help=HELP, autocompletion=complete_subject)]
_FILE_ENDINGS = (".yaml", ".yml")


def load_subject(
    reference: str,
    overrides: Sequence[str] = (),
    *,
    places: Sequence[str] = (),
    otherwise: PipelineRef | None = None,
) -> tuple[LoadedConfig, PipelineRef | None]:
    """The settings of a pipeline or a YAML file as a new run would have them, those of a run as a resume would.

    Args:
        reference: what the user wrote.
        overrides: laid over them.
        places: overrides that only say where runs are looked for, as those of ``run.…`` in ``overrides`` do too.
        otherwise: the pipeline of a YAML file that lies beside none.

    Raises:
        ConfigError, UsageError: there is no such thing, or its settings are not valid.
    """
    from pliant.configure import load_config, load_config_text, short_path
    from pliant.registry import find_pipeline

    if reference.endswith(_FILE_ENDINGS):
        from pliant.config.loader import read_text

        file = Path(reference).expanduser()
        ref = otherwise if _is_loose(reference) else find_pipeline(str(file.with_suffix(".py").absolute()))
        source = short_path(file.absolute())
        return load_config_text(ref, read_text(file, source), overrides, source=source), ref
    record = _run(reference, [*places, *(text for text in overrides if text.startswith("run."))])
    if record is None:
        ref = find_pipeline(reference)
        return load_config(ref, overrides), ref
    from pliant.train.recorded import load_recorded, recorded_pipeline

    ref = recorded_pipeline(record)
    return load_recorded(record, ref, overrides), ref


def load_pair(a: str, b: str, places: Sequence[str]) -> tuple[LoadedConfig, LoadedConfig]:
    """The settings of two subjects, to be compared: with absolute paths, as a run has them. A YAML file without a
    pipeline beside it has the other's.

    Raises:
        ConfigError: ``places`` holds something else than ``run.…``, or as ``load_subject``.
    """
    from pliant.configure import absolute_paths

    resolve_run("any", places)
    if _is_loose(a):
        second, ref = load_subject(b, places=places)
        first, _ = load_subject(a, places=places, otherwise=ref)
    else:
        first, ref = load_subject(a, places=places)
        second, _ = load_subject(b, places=places, otherwise=ref)
    return (
        first._replace(config=absolute_paths(first.config)),
        second._replace(config=absolute_paths(second.config)),
    )


def _is_loose(reference: str) -> bool:
    """Whether it is a YAML file beside which there is no pipeline."""
    return reference.endswith(_FILE_ENDINGS) and not Path(reference).expanduser().with_suffix(".py").is_file()


def _run(reference: str, places: Sequence[str]) -> RunRecord | None:
    """The run that is meant; None where it is a pipeline or nothing. A pipeline's name comes before a run's."""
    path = Path(reference).expanduser()
    is_place = "://" in reference or (path / "run.json").is_file()
    if not is_place and (reference.endswith(".py") or ":" in reference or _is_pipeline(reference)):
        return None
    from pliant.errors import UsageError
    from pliant.storage.record import RunRecord
    from pliant.storage.store import Store

    try:
        target = resolve_run(reference, places)
        return RunRecord.open(Store(target.uri, target.settings.store))
    except UsageError:
        if "/" in reference:
            raise
        return None  # what is said about pipelines names those that there are


def _is_pipeline(reference: str) -> bool:
    from pliant.registry import find_pipeline

    try:
        find_pipeline(reference)
    except ConfigError:
        return False
    return True
