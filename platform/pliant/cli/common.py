"""What commands share: their common arguments, output, and which run a name means."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, TextIO

import typer

from pliant.cli.complete import complete_pipeline, complete_run, complete_setting
from pliant.errors import PliantError, UsageError, UserCodeError

if TYPE_CHECKING:
    from pliant.api import Run
    from pliant.storage.settings import RunSettings
    from pliant.sweeps import Sweep

PipelineArgument = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="A name in pipelines/, the path of a .py file, or module:attribute.",
        autocompletion=complete_pipeline,
    ),
]
RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run's name under run.storage, or its full path or URI.", autocompletion=complete_run
    ),
]
RunOrSweepArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN_OR_SWEEP",
        help="The name of a run or sweep under run.storage, SWEEP/trials/TRIAL, or a full path or URI.",
        autocompletion=complete_run,
    ),
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Settings, as in optim.lr=3e-4, or a file of them, as in @best.yaml.",
        show_default=False,
        autocompletion=complete_setting,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write the result as JSON.")]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TRIAL = re.compile(rf"{_NAME.pattern}/trials/{_NAME.pattern}")


class RunTarget(NamedTuple):
    """A run that a command is about: where it is, and how its storage is used."""

    uri: str
    settings: RunSettings


_quiet = False


def set_quiet(on: bool) -> None:
    """Whether this command line wants results, warnings and errors alone."""
    global _quiet
    _quiet = on


def is_quiet() -> bool:
    """As ``set_quiet`` was told."""
    return _quiet


def say(text: str) -> None:
    """Writes a line of talk to stderr, unless the command line wants none."""
    if not _quiet:
        typer.echo(text, err=True)


_results: TextIO | None = None


def apart(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with stdout for its results alone: what else prints, a user's pipeline say, talks on stderr."""

    @wraps(command)
    def with_stdout_apart(*args: Any, **kwargs: Any) -> None:
        global _results
        _results = sys.stdout
        try:
            with redirect_stdout(sys.stderr):
                command(*args, **kwargs)
        finally:
            _results = None

    return with_stdout_apart


def results() -> TextIO:
    """Where a command's results go."""
    return _results or sys.stdout


def write_result(text: str) -> None:
    """Writes a line, or several, of a command's result."""
    typer.echo(text, file=results())


def emit(result: Any, *, as_json: bool, text: str) -> None:
    """Writes a command's result to stdout: ``result`` as one line of JSON, or ``text``."""
    write_result(_json(result) if as_json else text)


def emit_lines(entries: Iterable[dict[str, Any]]) -> None:
    """Writes entries to stdout, one line of JSON each, as they come."""
    for entry in entries:
        write_result(_json(entry))


def _json(value: Any) -> str:
    """One line of JSON. It has no infinity and no NaN: null stands for them, or nothing strict could read the line."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def end_now(code: int) -> NoReturn:
    """Ends the process without waiting for its threads: some may be writing what nobody waits for any more."""
    results().flush()
    sys.stderr.flush()
    os._exit(code)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Plain text in columns, numbers to the right."""
    cells = [list(header), *([f"{c:,}" if isinstance(c, int) else str(c) for c in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [bool(rows) and all(isinstance(c, (int, float)) for c in column) for column in zip(*rows, strict=True)]
    numeric = numeric or [False] * len(header)

    def line(row: Sequence[str]) -> str:
        columns = zip(row, widths, numeric, strict=True)
        return "  ".join(c.rjust(width) if right else c.ljust(width) for c, width, right in columns).rstrip()

    return "\n".join(map(line, cells))


def error_text(error: PliantError, *, as_json: bool, frames: bool = True) -> str:
    """An error as it is shown on stderr; one in user code with the user's frames, unless they were shown already."""
    if not as_json:
        return f"{error.frames}{error}" if frames and isinstance(error, UserCodeError) else str(error)
    from pliant.config.problems import ConfigErrors

    result: dict[str, Any] = {"error": _parts(error), "exit_code": error.exit_code}
    if isinstance(error, UserCodeError):
        result["traceback"] = error.frames
    if isinstance(error, ConfigErrors):
        result["problems"] = [_parts(problem) for problem in error.problems]
    return json.dumps(result, ensure_ascii=False)


def _parts(error: PliantError) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "hint": error.hint, "location": error.location}


def check_run_name(name: str) -> str:
    """The name, if a run may have it.

    Raises:
        UsageError: ``run.name``.
    """
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            "run.name", f"{name!r} cannot name a run; allowed: letters, digits, '.', '_' and '-', 100 at most"
        )
    return name


def resolve_run(reference: str, overrides: Sequence[str] | None = ()) -> RunTarget:
    """Where a run or sweep is: a full path or URI as it stands, a name under ``run.storage``, or a trial of one there.

    Args:
        reference: what the user wrote.
        overrides: of which ``run.…`` alone is known here.

    Raises:
        ConfigError: an override of something else.
        UsageError: neither a name nor a path.
    """
    from pliant.config.base import Settings, setting
    from pliant.config.loader import load_settings
    from pliant.storage.settings import RunSettings

    class OnlyRun(Settings):
        run: RunSettings = setting(RunSettings(), on_resume="free")

    run = load_settings(OnlyRun, text="", source="command line", overrides=list(overrides or ())).settings.run
    if _TRIAL.fullmatch(reference) and not Path(reference).exists():
        return RunTarget(f"{run.storage.rstrip('/')}/{reference}", run)
    if "/" in reference or reference.startswith(("~", ".")):
        return RunTarget(reference.rstrip("/"), run)
    return RunTarget(f"{run.storage.rstrip('/')}/{check_run_name(reference)}", run)


def open_run(reference: str, overrides: Sequence[str] | None = ()) -> Run:
    """The run that is meant.

    Raises:
        ConfigError, UsageError: as ``open_any``, or it is a sweep.
    """
    from pliant.api import Run

    found = open_any(reference, overrides)
    if not isinstance(found, Run):
        hint = f"its trials are runs: {reference}/trials/t0000"
        raise UsageError("run.is-sweep", f"{reference} is a sweep, not a run", hint=hint, location=found.store.uri)
    return found


def open_any(reference: str, overrides: Sequence[str] | None = ()) -> Run | Sweep:
    """The run or sweep that is meant.

    Raises:
        ConfigError, UsageError: as ``resolve_run``, or there is none; the closest of those that are there is named.
    """
    from pliant.sweeps import all_in, open_uri

    target = resolve_run(reference, overrides)
    try:
        return open_uri(target.uri, target.settings.store)
    except UsageError as error:
        if error.code != "record.unknown" or "/" in reference:
            raise
        known = [one.store.uri.rpartition("/")[2] for one in all_in(target.settings.storage, target.settings.store)]
        raise unknown_run(reference, error.location, known) from None


def unknown_run(reference: str, uri: str, known: Sequence[str]) -> UsageError:
    """The error for a run or sweep that is not there, with the closest of those that are."""
    from pliant.config.suggest import closest

    near = closest(reference, known)
    listed = ", ".join(sorted(known)[:10]) + (" …" if len(known) > 10 else "")
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"runs there: {listed}"
        if known
        else "there are no runs there"
    )
    return UsageError("run.unknown", f"there is no run {reference}", hint=hint, location=uri)
