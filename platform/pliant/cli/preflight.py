"""``pliant preflight``: looks for what would make a run fail, before it is started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pliant.cli.common import JsonOption, OverridesArgument, PipelineArgument, emit, error_text, say

if TYPE_CHECKING:
    from pliant.train.preflight import Check


def preflight(
    pipeline: PipelineArgument,
    overrides: OverridesArgument = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="For a run that is started with --in-process: one worker.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check memory, storage, data, two whole steps, a checkpoint and its restore, tracking. Exit 3 when one fails."""
    from pliant.configure import load_config
    from pliant.errors import EXIT_UNSCHEDULABLE
    from pliant.registry import find_pipeline
    from pliant.train.preflight import Preflight

    ref = find_pipeline(pipeline)
    config, origins = load_config(ref, overrides or ())
    ref.load()

    def tell(check: Check) -> None:
        if not as_json:
            say(_line(check))

    checks = Preflight(ref, config, origins, tell, in_process=in_process).run()
    failed = [check for check in checks if check.status == "failed"]
    result = {"pipeline": ref.name, "ok": not failed, "checks": [_entry(check) for check in checks]}
    seconds = sum(check.seconds for check in checks)
    names = ", ".join(check.name for check in failed)
    text = f"{ref.name} would not run: {names} failed" if failed else f"{ref.name} is ready ({seconds:.1f} s)"
    emit(result, as_json=as_json, text=text)
    if failed:
        raise typer.Exit(EXIT_UNSCHEDULABLE)
    say(f"start it with: pliant train {' '.join([pipeline, *(['--in-process'] * in_process), *(overrides or ())])}")


def _line(check: Check) -> str:
    line = f"{check.name:<11} {check.status:<8} {check.seconds:>6.2f} s  {check.detail if check.error is None else ''}"
    if check.error is None:
        return line.rstrip()
    problem = error_text(check.error, as_json=False).rstrip().replace("\n", "\n  ")
    return f"{line.rstrip()}\n  {problem}"


def _entry(check: Check) -> dict[str, Any]:
    error = check.error
    return {
        "name": check.name,
        "status": check.status,
        "seconds": check.seconds,
        "detail": check.detail,
        "error": error and {"code": error.code, "message": error.message, "hint": error.hint, "where": error.location},
    }
