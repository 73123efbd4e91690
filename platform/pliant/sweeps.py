"""Sweeps from Python: what the commands do, as objects.

sweep = pliant.Sweep.new("digits", "search_spaces/digits-asha.yaml", {"sweep.trials": 27}, name="asha")
sweep.run()
print(sweep.best())
pliant.Sweep.open("runs/asha").resume({"sweep.trials": 54})
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.api import Overrides, Run, records_in, runs_in
from pliant.errors import UsageError
from pliant.storage.layout import TRIALS
from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.standing import Standing, standing
from pliant.storage.store import Store

if TYPE_CHECKING:
    from pliant.observe.console import Console
    from pliant.tune.drive import SweepEnding
    from pliant.tune.launch import SweepLaunch
    from pliant.tune.results import SweepResults


class Sweep:
    """One sweep, new or recorded. Everything but ``run`` and ``resume`` works without Ray and torch.

    Attributes:
        store: the sweep's storage.
    """

    def __init__(self, store: Store, launch: SweepLaunch | None = None) -> None:
        self.store = store
        self._launch = launch

    @classmethod
    def new(cls, pipeline: str, space: str, overrides: Overrides = (), *, name: str | None = None) -> Sweep:
        """Settles everything about a new sweep and begins its record; ``run`` starts it.

        Args:
            pipeline: a name, a path, or ``module:attribute``.
            space: a name in ``search_spaces/``, or a path.
            overrides: of the sweep's settings (``sweep.slots=2``) and of those that all trials share.
            name: of the sweep; default: pipeline and time.

        Raises:
            PliantError: as the command would show it.
        """
        from pliant.tune.launch import new_sweep

        launch = new_sweep(pipeline, space, overrides, name=name)
        return cls(launch.record.store, launch)

    @classmethod
    def open(cls, uri: str, settings: StorageSettings | None = None) -> Sweep:
        """A recorded sweep by its path or URI. Raises UsageError when there is none, or a run."""
        store = Store(uri, settings or StorageSettings())
        if not RunRecord.open(store).is_sweep:
            hint = "pliant.Run.open reads it"
            raise UsageError("sweep.is-run", "this is a run, not a sweep", hint=hint, location=store.uri)
        return cls(store)

    @property
    def name(self) -> str:
        return str(self.record.identity["name"])

    @property
    def record(self) -> RunRecord:
        """Identity, drivers, owner, and what counts."""
        return RunRecord.open(self.store)

    @property
    def launch(self) -> SweepLaunch | None:
        """What a new sweep, or the last resume, was settled to."""
        return self._launch

    def run(self, console: Console | None = None) -> SweepEnding:
        """Carries out a new sweep to its end. How it ended is in the result; errors are there too.

        Raises:
            UsageError: it has been started already.
        """
        if self._launch is None or self.record.attempts():
            message = "the sweep has been started already"
            raise UsageError("run.started", message, hint="resume it", location=self.store.uri)
        return self._drive(self._launch, console)

    def resume(
        self,
        overrides: Overrides = (),
        *,
        space: str | None = None,
        take_over: bool = False,
        accept_code: bool = False,
        console: Console | None = None,
    ) -> SweepEnding:
        """Goes on: searcher and scheduler are what they were, by the decision log.

        Args:
            overrides: changed settings; a frozen one is refused.
            space: a narrower search space.
            take_over: fence an owner that still lives.
            accept_code: go on although the pipeline's files have changed.

        Raises:
            PliantError: nothing was started then.
        """
        from pliant.tune.launch import resumed_sweep

        self._launch = resumed_sweep(self.store, overrides, space=space, take_over=take_over, accept_code=accept_code)
        return self._drive(self._launch, console)

    def _drive(self, launch: SweepLaunch, console: Console | None) -> SweepEnding:
        from pliant.observe.console import Console
        from pliant.tune.drive import drive_sweep

        return drive_sweep(launch, console or Console())

    def results(self) -> SweepResults:
        """Everything that its log says, read now."""
        from pliant.tune.results import read_results

        return read_results(self.record)

    def trials(self) -> list[dict[str, Any]]:
        """A dict per trial, in the order of suggestion; see ``pliant status SWEEP --json``."""
        found = self.results()
        return found.trial_facts(found.running(self.standing()))

    def best(self) -> dict[str, Any] | None:
        """The best trial so far: ``trial``, ``value``, ``samples``, ``params``, ``settings`` by dotted key and the
        ``command`` that trains them; None before the first value."""
        return self.results().best_facts()

    def decisions(self) -> Iterator[dict[str, Any]]:
        """Every entry of the decision log, in order: what happened, and what followed. Each has a ``kind``, its fields
        (``pliant.tune.types``), the ``time`` at which it was logged, and the ``attempt`` of the driver that did so."""
        from pliant.tune.decisions import read_decisions, to_dict

        for logged in read_decisions(self.record):
            yield {**to_dict(logged.entry), "time": logged.time, "attempt": logged.attempt}

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The same as ``decisions``: what a sweep measures are its trials' reports."""
        return self.decisions()

    def events(self) -> Iterator[dict[str, Any]]:
        """What happened to the sweep: starts, losses of machines, ends."""
        return self.log("events")

    def log(self, name: str) -> Iterator[dict[str, Any]]:
        """The entries of a log that count."""
        return read_log(self.store, self.record.view(), name)

    def trial(self, name: str) -> Run:
        """A trial as the run that it is: ``t0003``, ``t0003.g1``. Raises UsageError when there is none."""
        return Run.open(f"{self.store.uri}/{TRIALS}/{name}", self.store.settings)

    def runs(self) -> list[Run]:
        """The runs of all trials, those of their clones included, by name."""
        return runs_in(f"{self.store.uri}/{TRIALS}", self.store.settings)

    def report(self, out: Path | None = None) -> dict[str, Any]:
        """Writes the sweep's report, one offline HTML file, as it stands now.

        Args:
            out: default: ``report.html`` in the sweep's directory, in the working directory for one that is elsewhere.

        Returns:
            Its ``file``, ``bytes``, and in short what it shows.
        """
        from pliant.report.html import default_place
        from pliant.report.sweep import write_sweep_report

        return write_sweep_report(self.results(), out or default_place(self.record))

    def state(self) -> str:
        """How it stands: as ``Run.state``."""
        return self.standing().state

    def standing(self) -> Standing:
        """How it stands, by its drivers."""
        return standing(self.record)

    def status(self) -> dict[str, Any]:
        """How the sweep and each of its trials stand, from its log alone."""
        stand, found = self.standing(), self.results()
        return found.facts(stand, found.running(stand))


def open_uri(uri: str, settings: StorageSettings | None = None) -> Run | Sweep:
    """What is recorded at a path or URI. Raises UsageError when it is neither a run nor a sweep."""
    store = Store(uri, settings or StorageSettings())
    return Sweep(store) if RunRecord.open(store).is_sweep else Run(store)


def sweeps_in(storage: str, settings: StorageSettings | None = None) -> list[Sweep]:
    """The sweeps under a storage path or URI, by name."""
    return [found for found in all_in(storage, settings) if isinstance(found, Sweep)]


def all_in(storage: str, settings: StorageSettings | None = None) -> list[Run | Sweep]:
    """The runs and sweeps under a storage path or URI, by name. The trials of sweeps are not among them."""
    return [Sweep(store) if sweep else Run(store) for store, sweep in records_in(storage, settings)]
