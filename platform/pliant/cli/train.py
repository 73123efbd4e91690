"""``pliant train`` and ``pliant resume``: start a run, go on with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pliant.cli.common import (
    JsonOption,
    OverridesArgument,
    PipelineArgument,
    RunOrSweepArgument,
    check_run_name,
    emit,
    end_now,
    is_quiet,
    open_any,
    say,
)
from pliant.errors import EXIT_INTERRUPTED, UsageError, UserCodeError

if TYPE_CHECKING:
    from pliant.sweeps import Sweep
    from pliant.train.driver import Ending
    from pliant.train.launch import Launch

InProcessOption = Annotated[
    bool, typer.Option("--in-process", help="One worker in this process, without Ray: breakpoints work.")
]


def train(
    pipeline: PipelineArgument,
    overrides: OverridesArgument = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the run; default: pipeline and time.")] = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a pipeline. Shows the plan first, and last the command that goes on."""
    from pliant.train.launch import new_run

    launch = new_run(pipeline, overrides or [], name=check_run_name(name) if name else None, in_process=in_process)
    _run(launch, as_json=as_json)


def resume(
    run: RunOrSweepArgument,
    overrides: OverridesArgument = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what would be resumed, and why; start nothing.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence an owner that still lives: nothing it writes counts any more.")
    ] = False,
    accept_code: Annotated[
        bool, typer.Option("--accept-code", help="Go on although the pipeline's files have changed; it is recorded.")
    ] = False,
    in_process: InProcessOption = False,
    space: Annotated[
        str | None, typer.Option("--space", metavar="SPACE", help="Of a sweep: a narrower space for new trials.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a run from its newest verified checkpoint, with any number of workers up to its lanes, or a sweep."""
    from pliant.sweeps import Sweep

    found = open_any(run, [text for text in overrides or [] if text.startswith("run.")])
    if isinstance(found, Sweep):
        _resume_sweep(
            found,
            overrides or [],
            space=space,
            explain=explain,
            take_over=take_over,
            accept_code=accept_code,
            in_process=in_process,
            as_json=as_json,
        )
        return
    if space is not None:
        raise UsageError("resume.kind", "--space is for sweeps, and this is a run", location=found.store.uri)
    store = found.store
    if explain:
        from pliant.storage.explain import explain_resume
        from pliant.train.recorded import explain_code, explain_settings

        lines = [*explain_resume(store), *explain_settings(store, overrides or []), *explain_code(store)]
        emit({"run": store.uri, "explanation": lines}, as_json=as_json, text="\n".join(lines))
        return
    from pliant.train.launch import resumed_run

    launch = resumed_run(
        store, overrides or [], take_over=take_over, accept_code=accept_code, in_process=in_process, waiting=say
    )
    _run(launch, as_json=as_json)


def _resume_sweep(
    sweep: Sweep,
    overrides: list[str],
    *,
    space: str | None,
    explain: bool,
    take_over: bool,
    accept_code: bool,
    in_process: bool,
    as_json: bool,
) -> None:
    if in_process:
        raise UsageError("resume.kind", "--in-process is for runs; a sweep's trials have processes of their own")
    if explain:
        from pliant.tune.words import explain_sweep

        changes = _changes_of(sweep, overrides, space) if overrides or space is not None else []
        lines = [*explain_sweep(sweep.results()), *changes]
        emit({"run": sweep.store.uri, "explanation": lines}, as_json=as_json, text="\n".join(lines))
        return
    from pliant.cli.sweep import resume_sweep

    resume_sweep(sweep.store, overrides, space=space, take_over=take_over, accept_code=accept_code, as_json=as_json)


def _changes_of(sweep: Sweep, overrides: list[str], space: str | None) -> list[str]:
    """What a resume with these would change, for people; raises what it would raise."""
    from pliant.tune.launch import resumed_sweep

    launch = resumed_sweep(sweep.store, overrides, space=space, take_over=True, accept_code=True)
    lines = [f"it would change {change}" for change in launch.changes.free] if launch.changes else []
    return [*lines, *(["it would narrow the search space"] if launch.narrowed is not None else [])]


def _run(launch: Launch, *, as_json: bool) -> None:
    from pliant.observe.console import Console
    from pliant.train.driver import drive

    console = Console(quiet=is_quiet())
    try:
        ending = drive(launch, console)
    except KeyboardInterrupt:
        console.close()
        say(f"interrupted at once; resume with: pliant resume {_short(launch)}")
        end_now(EXIT_INTERRUPTED)
    console.summary(_summary(launch, ending))
    result = {
        "run": launch.name,
        "uri": ending.uri,
        "reason": ending.reason,
        "step": ending.step,
        "total_steps": ending.total_steps,
        "values": ending.values,
        "rate": ending.rate,
        "unit": ending.unit,
    }
    if as_json:
        emit(result, as_json=True, text="")
    if ending.error is not None:
        raise ending.error
    raise typer.Exit(ending.exit_code)


_ENDED = {
    "done": "done",
    "user": "failed in the pipeline's code or settings",
    "signal": "stopped",
    "limit": "cannot be scheduled",
    "damage": "ended by damaged data or checkpoints",
    "infrastructure": "ended by a fault of storage or machines",
}
"""Reasons in words."""


def _summary(launch: Launch, ending: Ending) -> list[str]:
    lines = [f"{_ENDED[ending.reason]}: step {ending.step} of {ending.total_steps}"]
    figures = dict(ending.values)
    if ending.reason == "done" and launch.datasets.validation is not None and figures:
        figures |= _baseline(launch)
    lines += [f"  {name:<24} {value:.4f}" for name, value in figures.items()]
    if ending.rate:
        lines.append(f"  {ending.unit}/s{'':<{24 - len(ending.unit) - 2}} {ending.rate:,.0f}")
    lines.append(f"everything is in {ending.uri}")
    if ending.reason == "done":
        lines.append(f"look at it with: pliant metrics {_short(launch)}")
        lines.append(f"go on with: pliant resume {_short(launch)} {_longer(launch)}")
    elif isinstance(ending.error, UserCodeError):
        lines.append(f"once its code is mended, resume with: pliant resume {_short(launch)} --accept-code")
    else:
        lines.append(f"resume with: pliant resume {_short(launch)}")
    return lines


def _baseline(launch: Launch) -> dict[str, float]:
    """The pipeline's own comparison; the run is done, so that its failing is said and changes nothing."""
    from pliant.train.usercode import build_pipeline, user_code

    try:
        with user_code("baseline"):
            found = build_pipeline(launch.ref, launch.config.model).baseline(
                launch.datasets.train.root, launch.datasets.validation.root if launch.datasets.validation else ""
            )
            return {str(name): float(value) for name, value in found.items()}
    except UserCodeError as error:
        say(f"warning: {error.frames}{error.message}")
        return {}


def _short(launch: Launch) -> str:
    from pliant.train.screen import run_reference

    return run_reference(launch.name, launch.record.store.uri)


def _longer(launch: Launch) -> str:
    train = launch.config.train
    return f"train.steps={2 * train.steps}" if train.steps is not None else f"train.epochs={2 * (train.epochs or 1):g}"
