"""``pliant chaos``: does to a run's machines and storage what happens to them sooner or later, and says what."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pliant.cli.common import JsonOption, OverridesArgument, RunOrSweepArgument, emit_lines, open_any, say, write_result
from pliant.errors import PliantError, StorageError, UsageError
from pliant.units import format_bytes, format_seconds, parse_bytes, parse_seconds

if TYPE_CHECKING:
    from pliant.cluster.chaos import Cluster
    from pliant.cluster.trace import Event, Fault
    from pliant.storage.record import RunRecord

_LOOK_EVERY_S = 0.5
_CLUSTER_S = 60.0  # that a driver may take to start its cluster
_LISTED = 20  # of an endless trace, by a dry run


def chaos(
    run: RunOrSweepArgument,
    overrides: OverridesArgument = None,
    every: Annotated[
        str | None, typer.Option(help="Mean time between two faults; the gaps are random. Default: 60s.")
    ] = None,
    faults: Annotated[
        str | None,
        typer.Option(
            help="Kinds, separated by commas: kill (a worker process), kill-node (a raylet and all below it), drain "
            "(notice, then gone), vanish (answers nothing), slow, fill-disk, corrupt (the newest checkpoint), "
            "cut-storage (a server on this machine). Default: kill,kill-node,drain."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same one gives the same faults at the same times.")] = 0,
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="TIME:FAULT[:NODE]", help="A fault at its time, as in 30s:drain:node-2; repeatable."),
    ] = None,
    once: Annotated[
        str | None,
        typer.Option(metavar="FAULT[:NODE]", help="One fault, now. NODE: a name, the beginning of an id, or driver."),
    ] = None,
    deadline: Annotated[str, typer.Option(help="Notice that a drained node gets; then it is gone.")] = "10s",
    lasts: Annotated[
        str, typer.Option("--for", help="How long a node is away or slow, the disk full, storage away.")
    ] = "20s",
    size: Annotated[str, typer.Option(help="Most that fill-disk takes.")] = "1GiB",
    duration: Annotated[str | None, typer.Option(help="End after so long. Default: with the run.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done when.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Kill, drain and damage what a run runs on, by a seeded trace or at given times. The run need not know.

    Nothing happens to the node of the run's driver unless it is named.
    """
    written = [*([f"0s:{once}"] if once is not None else []), *(at or [])]
    if written and (every is not None or faults is not None):
        raise UsageError("chaos.option", "--every and --faults make a random trace, --at and --once a written one")
    kinds, trace = _written(written, seed) if written else _random(every or "60s", faults, seed)
    until = math.inf if duration is None else _parsed("--duration", parse_seconds, duration)
    events = takewhile(lambda event: event.at_s <= until, trace)
    player = _Player(
        open_any(run, overrides).record,
        deadline_s=_parsed("--deadline", parse_seconds, deadline),
        for_s=_parsed("--for", parse_seconds, lasts),
        size=_parsed("--size", parse_bytes, size),
        tell=lambda line: emit_lines([line]) if as_json else write_result(_text(line)),
    )
    player.refuse(kinds)
    if dry_run:
        for event in islice(events, _LISTED):
            player.tell(_line(event, event.node, ""))
        return
    player.play(events, until, strict=once is not None)


def _random(every: str, faults: str | None, seed: int) -> tuple[set[Fault], Iterator[Event]]:
    from pliant.cluster.trace import parse_fault, random_trace

    mean_s = _parsed("--every", parse_seconds, every)
    if mean_s <= 0:
        raise UsageError("chaos.option", f"--every {every}: it must be above 0")
    try:
        kinds = [parse_fault(name) for name in (faults or "kill,kill-node,drain").split(",")]
    except ValueError as error:
        raise UsageError("chaos.fault", f"--faults: {error}") from None
    return set(kinds), random_trace(kinds, every_s=mean_s, seed=seed)


def _written(events: list[str], seed: int) -> tuple[set[Fault], Iterator[Event]]:
    from pliant.cluster.trace import parse_event

    source = random.Random(seed)
    try:
        parsed = [parse_event(text, pick=source.random()) for text in events]
    except ValueError as error:
        raise UsageError("chaos.fault", str(error)) from None
    return {event.fault for event in parsed}, iter(sorted(parsed, key=lambda event: event.at_s))


def _parsed(option: str, parse: Callable[[Any], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError("chaos.option", f"{option}: {error}") from None


def _line(event: Event, node: str, text: str, *, skipped: bool = False) -> dict[str, Any]:
    return {"at_s": round(event.at_s, 1), "fault": event.fault, "node": node, "text": text, "skipped": skipped}


def _text(line: dict[str, Any]) -> str:
    told = f"{'not done: ' if line['skipped'] else ''}{line['text']}"
    return " · ".join(filter(None, (f"{line['at_s']:7.1f} s  {line['fault']}", line["node"], told)))


class _Player:
    """Carries out a trace on a run that goes on."""

    def __init__(
        self, record: RunRecord, *, deadline_s: float, for_s: float, size: int, tell: Callable[[dict[str, Any]], None]
    ) -> None:
        self._record, self._deadline_s, self._for_s, self._size, self.tell = record, deadline_s, for_s, size, tell
        self._held: list[tuple[float, ExitStack]] = []  # what ends at a time, and how

    def refuse(self, kinds: Iterable[Fault]) -> None:
        """Raises UsageError for faults that cannot be made on this run."""
        store = self._record.store
        if "cut-storage" in kinds:
            self._refuse_cutting()
        if "fill-disk" in kinds and not store.is_local:
            hint = "the other faults are possible"
            raise UsageError("chaos.fill-disk", "object storage has no disk to fill", hint=hint, location=store.uri)

    def _refuse_cutting(self) -> None:
        from pliant.cluster.storage_faults import storage_server

        store = self._record.store
        hint = (
            "it stops what listens at AWS_ENDPOINT_URL: a storage server on this machine, or a relay to one,"
            " as in `socat TCP-LISTEN:9000,fork,reuseaddr TCP:HOST:PORT` and AWS_ENDPOINT_URL=http://127.0.0.1:9000 for"
            " the run and for this command"
        )
        try:
            if store.is_local:
                raise LookupError("the run's storage is a path of this machine")
            storage_server()
        except LookupError as nothing:
            message = f"cut-storage: {nothing.args[0]}"
            raise UsageError("chaos.cut-storage", message, hint=hint, location=store.uri) from None

    def play(self, events: Iterable[Event], until_s: float, *, strict: bool) -> None:
        """Until the trace, its time or the run ends.

        Args:
            strict: what cannot be done is an error; else a line says so.

        Raises:
            UsageError: nobody drives the run; with ``strict`` also that a node is not there.
            PliantError: with ``strict`` alone: the cluster cannot be reached, or does not obey.
        """
        owner = self._owner()
        begun = time.monotonic()
        try:
            for event in events:
                if not self._wait(owner, begun + event.at_s):
                    return
                try:
                    self.tell(self._strike(owner, event))
                except PliantError as error:
                    if strict:
                        raise
                    self.tell(_line(event, event.node, error.message, skipped=True))
            if until_s < math.inf:
                self._wait(owner, begun + until_s)
            self._wait(owner, max((end for end, _ in self._held), default=0.0))
        finally:
            for _, stack in self._held:
                stack.close()

    def _owner(self) -> int:
        owner = self._record.owner()
        if owner is None or owner.liveness(self._record.store.settings.heartbeat_fresh) == "dead":
            raise UsageError("chaos.not-running", "nobody drives the run", location=self._record.store.uri)
        return owner.attempt

    def _wait(self, owner: int, until: float) -> bool:
        """False when the run ends before; what has to end meanwhile ends."""
        while True:
            now = time.monotonic()
            for end, stack in self._held:
                if end <= now:
                    stack.close()
            self._held = [(end, stack) for end, stack in self._held if end > now]
            try:
                ended = self._record.owner() is None
            except StorageError:  # it may be away on purpose
                ended = False
            if ended:
                say("the run has ended")
                return False
            if now >= until:
                return True
            time.sleep(min(_LOOK_EVERY_S, until - now))

    def _strike(self, owner: int, event: Event) -> dict[str, Any]:
        from pliant.cluster.trace import ON_NODES

        try:
            if event.fault in ON_NODES:
                from pliant.cluster.chaos import strike

                node, text = strike(self._cluster(owner), event, deadline_s=self._deadline_s, for_s=self._for_s)
                return _line(event, node, text)
            if event.fault == "corrupt":
                from pliant.cluster.storage_faults import corrupt_newest_checkpoint

                return _line(event, "", corrupt_newest_checkpoint(self._record.store, event.pick))
            if event.fault == "cut-storage":
                from pliant.cluster.storage_faults import stop_storage_server

                return _line(event, "", stop_storage_server(self._for_s))
            return _line(event, "", self._fill())
        except LookupError as nothing:
            return _line(event, event.node, str(nothing.args[0]), skipped=True)

    def _fill(self) -> str:
        from pliant.cluster.storage_faults import filled_disk

        stack = ExitStack()
        folder = self._record.store.local_path()
        taken = stack.enter_context(filled_disk(folder, self._size))
        self._held.append((time.monotonic() + self._for_s, stack))
        return f"{format_bytes(taken)} taken on the disk of {folder} for {format_seconds(self._for_s)}"

    def _cluster(self, owner: int) -> Cluster:
        """Where the driver said that its cluster is, which it does once that has started."""
        from pliant.cluster.chaos import Cluster
        from pliant.storage.layout import attempt_key, decode
        from pliant.storage.snapshot import CLUSTER

        key, until = attempt_key(owner, CLUSTER), time.monotonic() + _CLUSTER_S
        while True:
            try:
                said = decode(self._record.store.get(key), f"{self._record.store.uri}/{key}")
                return Cluster(said["address"], said["node_id"])
            except FileNotFoundError:
                if not self._wait(owner, min(until, time.monotonic() + _LOOK_EVERY_S)):
                    raise LookupError("the run has ended") from None
            if time.monotonic() > until:
                raise UsageError(
                    "chaos.no-cluster",
                    "the run's driver has started no cluster: it runs in one process, or an older Pliant started it",
                    hint="storage can be damaged all the same: corrupt, fill-disk",
                    location=self._record.store.uri,
                )
