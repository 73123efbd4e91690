"""Runs from Python: what the commands do, as objects.

run = pliant.Run.new("digits", {"optim.lr": 1e-3}, name="first")
run.train()
for entry in run.metrics():
    ...
pliant.Run.open("runs/first").resume({"elastic.max_workers": 4})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.checkpoint.verify import best_checkpoint
from pliant.errors import DamageError, UsageError
from pliant.observe.output import output_log
from pliant.storage.logs import last_entry, read_log
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.standing import standing
from pliant.storage.store import Store
from pliant.track.status import groups_of, waiting_for_machines

if TYPE_CHECKING:
    from pliant.observe.console import Console
    from pliant.train.driver import Ending
    from pliant.train.launch import Launch

Overrides = Sequence[str] | Mapping[str, Any]


class Run:
    """One training run, new or recorded. Everything but ``train`` and ``resume`` works without Ray and torch.

    Attributes:
        store: the run's storage.
    """

    def __init__(self, store: Store, launch: Launch | None = None) -> None:
        self.store = store
        self._launch = launch

    @classmethod
    def new(cls, pipeline: str, overrides: Overrides = (), *, name: str | None = None, in_process: bool = False) -> Run:
        """Settles everything about a new run and begins its record; ``train`` starts it.

        Args:
            pipeline: a name, a path, or ``module:attribute``.
            overrides: ``["optim.lr=3e-4"]`` or ``{"optim.lr": 3e-4}``.
            name: of the run; default: pipeline and time.
            in_process: one worker in this process, without Ray.

        Raises:
            PliantError: as the command would show it.
        """
        from pliant.train.launch import new_run

        launch = new_run(pipeline, overrides, name=name, in_process=in_process)
        return cls(launch.record.store, launch)

    @classmethod
    def open(cls, uri: str, settings: StorageSettings | None = None) -> Run:
        """A recorded run by its path or URI. Raises UsageError when there is none, or a sweep."""
        store = Store(uri, settings or StorageSettings())
        if RunRecord.open(store).is_sweep:
            hint = f"pliant.Sweep.open reads it; each of its trials is a run: {store.uri}/trials/t0000"
            raise UsageError("run.is-sweep", "this is a sweep, not a run", hint=hint, location=store.uri)
        return cls(store)

    @property
    def name(self) -> str:
        return str(self.record.identity["name"])

    @property
    def record(self) -> RunRecord:
        """Identity, attempts, owner, and what counts."""
        return RunRecord.open(self.store)

    @property
    def launch(self) -> Launch | None:
        """What a new run, or the last resume, was settled to: configuration, datasets, plan."""
        return self._launch

    def train(self, console: Console | None = None) -> Ending:
        """Trains a new run to its end. How it ended is in the result; errors of training are there too.

        Raises:
            UsageError: the run has been started already.
        """
        if self._launch is None or self._launch.changes is not None:
            raise UsageError(
                "run.started", "the run has been started already", hint="resume it", location=self.store.uri
            )
        return self._drive(console)

    def resume(
        self,
        overrides: Overrides = (),
        *,
        take_over: bool = False,
        accept_code: bool = False,
        in_process: bool = False,
        console: Console | None = None,
    ) -> Ending:
        """Goes on from the newest intact checkpoint.

        Args:
            overrides: changed settings; a frozen one is refused.
            take_over: fence an owner that still lives.
            accept_code: go on although the pipeline's files have changed.
            in_process: one worker in this process, without Ray.

        Raises:
            PliantError: nothing was started then.
        """
        from pliant.train.launch import resumed_run

        self._launch = resumed_run(
            self.store, overrides, take_over=take_over, accept_code=accept_code, in_process=in_process
        )
        return self._drive(console)

    def _drive(self, console: Console | None) -> Ending:
        from pliant.observe.console import Console
        from pliant.train.driver import drive

        if self._launch is None:
            raise UsageError("run.not-settled", "there is nothing to start", location=self.store.uri)
        return drive(self._launch, console or Console())

    def metrics(self) -> Iterator[dict[str, Any]]:
        """An entry per step, each step once, whatever interrupted the run."""
        return self.log("metrics")

    def evaluations(self) -> Iterator[dict[str, Any]]:
        """An entry per evaluation."""
        return self.log("evaluations")

    def events(self) -> Iterator[dict[str, Any]]:
        """What happened to the run: starts, checkpoints, quarantines, changed settings, ends."""
        return self.log("events")

    def log(self, name: str) -> Iterator[dict[str, Any]]:
        """The entries of a log that count."""
        return read_log(self.store, self.record.view(), name)

    def samples(self) -> Iterator[dict[str, Any]]:
        """File and row of every sample of every step, of runs with ``train.audit=true``."""
        from pliant.train.audit import samples

        return samples(self.record, self.log("audit"))

    def report(self, out: Path | None = None) -> dict[str, Any]:
        """Writes the run's report, one offline HTML file, as it stands now.

        Args:
            out: default: ``report.html`` in the run's directory, in the working directory for a run that is elsewhere.

        Returns:
            Its ``file``, ``bytes``, and in short what it shows.
        """
        from pliant.report.html import default_place, write_report

        record = self.record
        return write_report(record, out or default_place(record))

    def printed(self, rank: int = 0) -> Iterator[dict[str, Any]]:
        """What a rank printed, line by line: time, stream (``out`` or ``err``), text and attempt."""
        return self.log(output_log(rank))

    def state(self) -> str:
        """How it stands: ``running``, ``done``, ``failed (…)``, ``stopped (REASON)``, ``died, resumable``, ``unknown``
        or ``not started``."""
        return standing(self.record).state

    def status(self) -> dict[str, Any]:
        """How the run stands, from its record alone."""
        record = self.record
        view, stand = record.view(), standing(record)
        last, evaluation = (last_entry(self.store, view, name) or {} for name in ("metrics", "evaluations"))
        state, detail = stand.state, stand.detail
        if state == "running" and (reason := waiting_for_machines(record, view)) is not None:
            state, detail = "waiting for machines", reason
        usable = view.checkpoints()
        best = best_checkpoint(self.store, usable)
        return {
            "run": record.identity["name"],
            "state": state,
            "step": last.get("step", 0),
            "loss": last.get("loss"),
            "evaluation": {k: v for k, v in evaluation.items() if k not in ("samples", "time", "seconds", "attempt")},
            "checkpoint": usable[0].step if usable else None,
            "best": {"step": best.step, **best.metrics} if best else None,
            "checkpoints": [ref.name for ref in usable],
            "workers": last.get("world_size"),
            "attempts": stand.starts,
            "owner": stand.owner.describe() if stand.owner else None,
            "last_sign_s": round(stand.owner.age, 1) if stand.owner else None,
            "detail": detail,
            "pipeline": record.identity["pipeline"],
            "uri": self.store.uri,
        }

    def history(self) -> list[dict[str, Any]]:
        """Every start of the run's workers, oldest first: ``attempt``, ``driver``, ``workers``, ``from_step``,
        ``to_step``, ``began``, ``cause`` and ``why`` it ended. From the record alone."""
        return [asdict(group) for group in groups_of(self.record)]

    def time_spent(self) -> dict[str, Any]:
        """Where every second of the run went: ``seconds`` by category, their ``causes``, and the ``goodput``, the share
        of the time with machines that went into steps that count. Reads all of the metrics."""
        from pliant.track.lives import read_accounts, spent

        return spent(read_accounts(self.record))


def runs_in(storage: str, settings: StorageSettings | None = None) -> list[Run]:
    """The runs under a storage path or URI, by name. Those of which nothing can be read are among them."""
    return [Run(store) for store, sweep in records_in(storage, settings) if not sweep]


def records_in(storage: str, settings: StorageSettings | None = None) -> list[tuple[Store, bool]]:
    """The stores of the runs and sweeps under a storage path or URI, by name, each with whether it is a sweep's."""
    root = Store(storage if "://" in storage else str(Path(storage).absolute()), settings or StorageSettings())

    def look(name: str) -> tuple[Store, bool] | None:
        store = root.child(name)
        try:
            return store, RunRecord.open(store).is_sweep
        except UsageError as error:
            return None if error.code == "record.unknown" else (store, False)
        except DamageError:
            return store, False

    with ThreadPoolExecutor(8) as pool:  # on object storage it is waiting, not work
        return [found for found in pool.map(look, root.folders()) if found is not None]
