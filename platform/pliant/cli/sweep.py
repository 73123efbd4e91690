"""``pliant sweep``: search settings of a pipeline; ``pliant resume`` comes here for a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pliant.cli.common import (
    JsonOption,
    PipelineArgument,
    check_run_name,
    emit,
    end_now,
    is_quiet,
    say,
)
from pliant.cli.complete import complete_space, complete_sweep_setting
from pliant.errors import EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from pliant.storage.store import Store
    from pliant.tune.drive import SweepEnding
    from pliant.tune.launch import SweepLaunch

SpaceOption = Annotated[
    str,
    typer.Option(
        "--space",
        metavar="SPACE",
        help="A name in search_spaces/, or the path of a YAML file.",
        autocompletion=complete_space,
    ),
]
SweepOverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Settings of the sweep (sweep.slots=2) and of its trials (optim.lr=3e-4).",
        show_default=False,
        autocompletion=complete_sweep_setting,
    ),
]


def sweep(
    pipeline: PipelineArgument,
    space: SpaceOption,
    overrides: SweepOverridesArgument = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the sweep; default: pipeline and time.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it would come to, trials, rows, worker-hours; start nothing.")
    ] = False,
    rows_per_second: Annotated[
        str | None,
        typer.Option(
            metavar="N|RUN|SWEEP", help="With --dry-run: of one trial, as a number or as an earlier one measured it."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Search settings of a pipeline. Shows the plan first, and last the best trial and the command that goes on."""
    if dry_run:
        from pliant.cli.sweep_preview import show_preview

        show_preview(pipeline, space, overrides or [], rows_per_second, as_json=as_json)
        return
    if rows_per_second is not None:
        raise UsageError("sweep.speed", "--rows-per-second is for --dry-run")
    from pliant.tune.launch import new_sweep

    _run(new_sweep(pipeline, space, overrides or [], name=check_run_name(name) if name else None), as_json=as_json)


def resume_sweep(
    store: Store,
    overrides: list[str],
    *,
    space: str | None = None,
    take_over: bool,
    accept_code: bool,
    as_json: bool,
) -> None:
    """Goes on with a sweep where its log ends."""
    from pliant.tune.launch import resumed_sweep

    launch = resumed_sweep(
        store, overrides, space=space, take_over=take_over, accept_code=accept_code, waiting=say
    )  # fmt: skip
    _run(launch, as_json=as_json)


def _run(launch: SweepLaunch, *, as_json: bool) -> None:
    from pliant.observe.console import Console
    from pliant.tune.drive import drive_sweep
    from pliant.tune.results import read_results

    console = Console(quiet=is_quiet())
    try:
        ending = drive_sweep(launch, console)
    except KeyboardInterrupt:
        console.close()
        say(f"interrupted at once; resume with: pliant resume {_short(launch)}")
        end_now(EXIT_INTERRUPTED)
    best = None
    if ending.reason != "damage":
        best = read_results(launch.record).best_facts()
    console.summary(_summary(launch, ending, best))
    if as_json:
        result = {"sweep": launch.name, "uri": ending.uri, "reason": ending.reason, "text": ending.text, "best": best}
        emit(result, as_json=True, text="")
    if ending.error is not None:
        raise ending.error
    raise typer.Exit(ending.exit_code)


_ENDED = {
    "done": "done",
    "user": "stopped: trials fail in the pipeline's code",
    "signal": "stopped",
    "limit": "stopped at a limit",
    "damage": "ended by a damaged log",
    "infrastructure": "ended by a fault of storage or machines",
}
"""Reasons in words."""


def _summary(launch: SweepLaunch, ending: SweepEnding, best: dict[str, Any] | None) -> list[str]:
    lines = [f"{_ENDED[ending.reason]}: {ending.text.partition(chr(10))[0]}"]
    if best is not None:
        metric = launch.search.metric
        lines.append(f"best {metric} {best['value']:.6g}, trial {best['trial']} after {best['samples']:,} rows:")
        lines += [f"  {line}" for line in str(best["yaml"]).splitlines()]
        if best["command"] is not None:
            lines.append(f"train it with: {best['command']}")
    lines.append(f"everything is in {ending.uri}")
    name = _short(launch)
    if ending.reason == "done":
        lines.append(f"look at it with: pliant status {name}; pliant report {name}")
        lines.append(f"go on with: pliant resume {name} sweep.trials={2 * launch.search.settings.trials}")
    else:
        lines.append(f"resume with: pliant resume {name}")
    return lines


def _short(launch: SweepLaunch) -> str:
    from pliant.train.screen import run_reference

    return run_reference(launch.name, launch.record.store.uri)
