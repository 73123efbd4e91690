"""``pliant cluster``: what runs on the machines of a Ray cluster."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

app = typer.Typer(help="Ray clusters whose machines come and go.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps ``notice-agent`` a name of its own while it is the only one."""


@app.command("notice-agent")
def notice_agent(
    command: Annotated[list[str], typer.Argument(metavar="-- ray start …", help="How this machine joins the cluster.")],
    cloud: Annotated[
        Literal["auto", "aws", "gcp", "azure", "none"],
        typer.Option("--cloud", help="Whose notices to listen for; none: SIGTERM alone."),
    ] = "auto",
    rebalance: Annotated[
        Literal["drain", "ignore"],
        typer.Option("--rebalance", help="What a rebalance recommendation of AWS means, which has no deadline."),
    ] = "ignore",
    grace: Annotated[str, typer.Option("--grace", help="Time to become idle after SIGTERM.")] = "25s",
    respawn_after: Annotated[
        str, typer.Option("--respawn-after", help="Wait before a raylet that ended is started again.")
    ] = "1s",
    respawn: Annotated[
        bool, typer.Option("--respawn/--no-respawn", help="Start it again, or end with it and its exit code.")
    ] = True,
    join_timeout: Annotated[
        str, typer.Option("--join-timeout", help="Time for the head to answer and this node to join it.")
    ] = "2min",
) -> None:
    """Run a node's raylet, and drain the node when its machine is about to go away. One agent per node.

    Wraps `ray start`: pliant cluster notice-agent -- ray start --address=$HEAD:6379
    """
    from functools import partial

    from pliant.cli.common import end_now
    from pliant.cluster.notice_agent import NoticeAgent, log
    from pliant.cluster.notices.detect import discover, sources_of

    _check(command)
    agent = NoticeAgent(
        command,
        () if cloud == "auto" or cloud == "none" else sources_of(cloud, log, rebalance=rebalance),
        find=partial(discover, rebalance=rebalance) if cloud == "auto" else None,
        grace_s=_seconds("--grace", grace),
        respawn_after_s=_seconds("--respawn-after", respawn_after),
        respawn=respawn,
        join_timeout_s=_seconds("--join-timeout", join_timeout),
    )
    end_now(agent.run())  # its threads may be waiting for an answer that nobody needs any more


def _check(command: list[str]) -> None:
    """Raises UsageError unless the command is one that this agent can keep."""
    from pathlib import PurePath

    from pliant.errors import UsageError

    if "start" not in command or not any(PurePath(word).name == "ray" for word in command):
        raise UsageError(
            "cluster.command",
            f"what follows is no `ray start`: {' '.join(command)}",
            hint="pliant cluster notice-agent -- ray start --address=HOST:PORT",
        )


def _seconds(option: str, text: str) -> float:
    from pliant.errors import UsageError
    from pliant.units import parse_seconds

    try:
        return float(parse_seconds(text))
    except ValueError as error:
        raise UsageError("cluster.duration", f"{option}: {error}") from None
