"""The command ``pliant``: its commands, and how any of them ends.

stdout is the result, stderr the talk. Errors that Pliant raises on purpose carry their exit code and are shown without
a traceback, unless ``--debug`` is given or the user's own code raised.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from pliant import __version__
from pliant.cli import (
    chaos,
    cluster,
    config,
    data,
    doctor,
    gc,
    init,
    logs,
    ls,
    metrics,
    plan,
    preflight,
    prepare,
    report,
    status,
    stop,
    sweep,
    sync,
    train,
    verify,
)
from pliant.cli.common import apart, error_text, set_quiet
from pliant.errors import EXIT_INFRASTRUCTURE, PliantError, UsageError

_QUIET = ("--quiet", "-q")

app = typer.Typer(
    name="pliant",
    help="Deterministic, elastic PyTorch training on Ray.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done · 1 your code failed · 2 usage or config · 3 cannot be scheduled · 4 infrastructure or "
    "damage · 75 stopped, resumable · 130 interrupted",
)
app.command("ls")(ls.ls)
app.command("init")(init.init)
app.command("prepare")(prepare.prepare)
app.command("plan")(plan.plan)
app.command("preflight")(preflight.preflight)
app.command("train")(train.train)
app.command("resume")(train.resume)
app.command("sweep")(sweep.sweep)
app.command("status")(status.status)
app.command("logs")(logs.logs)
app.command("stop")(stop.stop)
app.command("metrics")(metrics.metrics)
app.command("report")(report.report)
app.command("verify")(verify.verify)
app.command("sync")(sync.sync)
app.command("gc")(gc.gc)
app.command("chaos")(chaos.chaos)
app.command("doctor")(doctor.doctor)
app.add_typer(data.app, name="data")
app.add_typer(config.app, name="config")
app.add_typer(cluster.app, name="cluster")
_groups = (app, *(group.typer_instance for group in app.registered_groups if group.typer_instance is not None))
for _command in (command for group in _groups for command in group.registered_commands):
    if _command.callback is not None:
        _command.callback = apart(_command.callback)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks. Works anywhere on the line.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Results, warnings and errors alone. Works anywhere too.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """``main`` takes these out before the line is parsed: here they are declared for the help text."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line.

    Args:
        arguments: without the program's name; default: the process's own.

    Returns:
        The exit code, as ``pliant.errors`` lists them.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    set_quiet(any(word in given for word in _QUIET))
    try:
        _no_dashes(given)
        app(args=[a for a in given if a not in ("--debug", *_QUIET)], prog_name="pliant")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except PliantError as error:
        if debug:
            traceback.print_exc()
        typer.echo(error_text(error, as_json="--json" in given, frames=not debug), err=True)
        return error.exit_code
    except Exception as error:
        if debug:
            traceback.print_exc()
        failure = PliantError(
            "internal",
            f"{type(error).__name__}: {error}",
            hint="this is a fault of Pliant or of its environment; --debug shows where it happened",
        )
        typer.echo(error_text(failure, as_json="--json" in given), err=True)
        return EXIT_INFRASTRUCTURE
    return 0


def _no_dashes(arguments: Sequence[str]) -> None:
    """Raises UsageError for a setting that is written like an option."""
    for argument in arguments:
        if match := re.fullmatch(r"--([A-Za-z_]+\.[A-Za-z_.]+)(=.*)?", argument, flags=re.DOTALL):
            written = f"{match[1]}{match[2] or '=VALUE'}"
            raise UsageError("usage.setting", f"{argument} is no option", hint=f"settings have no dashes: {written}")
