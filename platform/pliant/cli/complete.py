"""What a shell may complete besides commands and options. A completion never fails: it offers nothing then."""

from __future__ import annotations

from pathlib import Path


def complete_pipeline(incomplete: str) -> list[str]:
    """Names of pipelines."""
    from pliant.registry import known_pipelines

    return _starting(incomplete, known_pipelines())


def complete_run(incomplete: str) -> list[str]:
    """Names of the runs in ./runs; those in other places would take a request to find."""
    return _starting(incomplete, sorted(file.parent.name for file in Path("runs").glob("*/run.json")))


def complete_subject(incomplete: str) -> list[str]:
    """Pipelines and runs."""
    return sorted({*complete_pipeline(incomplete), *complete_run(incomplete)})


def complete_setting(incomplete: str) -> list[str]:
    """Settings, each with the ``=`` that its value follows."""
    if "=" in incomplete:
        return []
    from pliant.config.schema import leaves
    from pliant.settings import RunConfig

    return _starting(incomplete, [f"{leaf.dotted}=" for leaf in leaves(RunConfig)])


def complete_sweep_setting(incomplete: str) -> list[str]:
    """Settings of a sweep and of its trials."""
    if "=" in incomplete:
        return []
    from pliant.config.schema import leaves
    from pliant.tune.settings import SpaceFile

    own = [f"{leaf.dotted}=" for leaf in leaves(SpaceFile) if leaf.keys[0] == "sweep"]
    return _starting(incomplete, [*own, *complete_setting("")])


def complete_key(incomplete: str) -> list[str]:
    """Settings by name alone."""
    return [text.rstrip("=") for text in complete_sweep_setting(incomplete)]


def complete_space(incomplete: str) -> list[str]:
    """Names of search spaces."""
    from pliant.registry import known_spaces

    return _starting(incomplete, [file.stem for file in known_spaces()])


def _starting(incomplete: str, words: list[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
