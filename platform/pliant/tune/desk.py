"""Between a sweep's state and the legs on the cluster: what a leg is made of, and what its end means.

Sweep.next_leg ─► LegSpec ─► executor ─► Reached ─► Sweep.report ─► on, or leave ─► … ─► Outcome ─► left, lost, ended
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pliant.checkpoint.clone import checkpoint_at, pin, release
from pliant.config.dump import config_to_dict
from pliant.errors import PliantError
from pliant.observe.board import STOP
from pliant.observe.sweep_table import SweepScreen
from pliant.settings import RunConfig
from pliant.storage.layout import RUN, TRIALS, CheckpointRef, run_name
from pliant.storage.store import Store
from pliant.train.reports import ReportPlan
from pliant.train.worker import worker_resources
from pliant.tune.launch import SweepLaunch
from pliant.tune.legs import Reached
from pliant.tune.lineage import ancestry, replay_config
from pliant.tune.results import screen_of
from pliant.tune.settings import POPULATION_BASED
from pliant.tune.sweep import Finished, Leg, Sweep
from pliant.tune.trial import Donor, LegSpec, Outcome
from pliant.tune.types import End, Loss, Report, finite

_RESTART_S = 15.0
"""To begin a leg of several workers: measured on two cores."""


class SweepDesk:
    """Between the sweep's state and the legs on the cluster; called by the executor's thread.

    Args:
        request: wishes something of a leg, or of all.
        asked: whether the driver was asked to stop.
    """

    def __init__(
        self, launch: SweepLaunch, sweep: Sweep, request: Callable[..., None], *, asked: Callable[[], bool]
    ) -> None:
        self._launch, self._sweep, self._request, self._asked = launch, sweep, request, asked
        self._pinned: set[str] = set()
        self._held: dict[str, tuple[Store, CheckpointRef]] = {}
        self._legs: dict[str, tuple[Leg, float]] = {}  # by key: the leg, and when it began or last reported
        self._workers = (sweep.slots or 1) * launch.search.workers.usual
        self._begun, self._count, self._hurried = time.monotonic(), 0, False
        settings = launch.search.settings
        population_based = settings.scheduler.kind in POPULATION_BASED
        self._milestones, self._durable = sweep.milestones, population_based
        self._holds = population_based and not settings.scheduler.sync
        self.finished: Finished | None = None
        self._pin_donors()
        self._screen = self._look()

    @property
    def screen(self) -> SweepScreen:
        """How the sweep stands; may be asked by another thread."""
        return replace(self._screen, elapsed_s=time.monotonic() - self._begun)

    @property
    def over(self) -> bool:
        """Whether no leg begins any more."""
        return self.finished is not None or (self._asked() and not self._legs)

    def next_leg(self) -> tuple[str, LegSpec, Mapping[str, float]] | None:
        """As ``executor.Desk``."""
        self._sweep.elapsed(time.monotonic() - self._begun)
        if self._sweep.halt is not None and not self._hurried:
            self._hurried = True
            self._request(STOP)
        if self._asked() or self.finished is not None:
            return None
        free = self._workers - sum(leg.workers for leg, _ in self._legs.values())
        found = self._sweep.next_leg(free)
        if not isinstance(found, Leg) and free:
            self._sweep.grow(free, restart_s=_RESTART_S)
        if isinstance(found, Finished):
            self.finished, self._screen = found, self._look()
        if not isinstance(found, Leg):
            return None
        try:
            spec = self._spec(found)
        except PliantError as error:  # this point of the space makes no valid configuration
            text, signature = str(error), f"{error.code}: {error.message.partition(chr(10))[0]}"
            self._sweep.ended(End(found.trial, "failed", found.samples, text, signature))
            return None
        key = f"{found.run}-{self._count}"
        self._count += 1
        self._legs[key] = (found, time.monotonic())
        self._screen = self._look()
        return key, spec, worker_resources(self._launch.base)

    def report(self, key: str, reached: Reached) -> bool:
        """As ``executor.Desk``."""
        leg, _ = self._legs[key]
        self._legs[key] = (leg, time.monotonic())
        values = {name: finite(value) for name, value in reached.values.items()}
        report = Report(
            leg.trial,
            reached.samples,
            values.get(self._launch.search.metric),
            values,
            round(reached.worker_seconds, 3),
            leg.generation,
        )
        if self._holds:
            self._hold(leg, reached.samples)
        goes_on = self._sweep.report(report) == "continue"
        self._pin_donors()
        self._screen = self._look()
        return goes_on

    def ended(self, key: str, outcome: Outcome) -> None:
        """As ``executor.Desk``."""
        leg, since = self._legs.pop(key)
        trial, seconds = leg.trial, round((time.monotonic() - since) * leg.workers, 3)
        if outcome.how in ("done", "left"):
            self._sweep.left(trial)
        elif outcome.how == "diverged":
            samples = self._sweep.trials[trial].samples
            self._sweep.ended(End(trial, "diverged", samples, outcome.text, outcome.signature, seconds))
        else:
            cause = outcome.cause or "infrastructure"
            self._sweep.lost(Loss(trial, cause, outcome.text, outcome.signature, seconds))
        self._screen = self._look()

    def _pin_donors(self) -> None:
        """Keeps what was decided to be cloned: donors go on, and retire checkpoints, before their clones begin."""
        for trial in self._sweep.trials.values():
            here = trial.generations[-1]
            if here.donor is None or trial.reported or trial.end is not None or trial.run in self._pinned:
                continue
            self._pinned.add(trial.run)
            target = self._store(trial.run)
            if target.head(RUN) is None:
                donor = self._store(run_name(here.donor, here.donor_generation))
                pin(donor, checkpoint_at(donor, here.samples), target)

    def _hold(self, leg: Leg, samples: int) -> None:
        """Keeps the state of a trial's newest report, which others may be decided to clone until its next one."""
        store, sweep = self._store(leg.run), self._launch.record.store
        held = checkpoint_at(store, samples)
        pin(store, held, sweep)
        before = self._held.get(leg.trial)
        self._held[leg.trial] = (store, held)
        if before is not None and before != (store, held):
            release(*before, sweep)

    def _store(self, run: str) -> Store:
        return self._launch.record.store.child(f"{TRIALS}/{run}")

    def _look(self) -> SweepScreen:
        return screen_of(self._sweep, self._launch.name, self._launch.search.metric, self._milestones)

    def _settings(self, leg: Leg) -> tuple[RunConfig, dict[str, str]]:
        """Of a leg's run. Those of a clone are its ancestors', in phases: by themselves they train all of it again."""
        launch, line = self._launch, ancestry(self._sweep.trials, leg.trial, leg.generation)
        config, origins = launch.trial_settings(line[0].params)
        if len(line) > 1:
            origin = f"sweep: clones, {' → '.join(segment.run for segment in line)}"
            origins = {**origins, "phases": origin, "train.steps": origin}
        elif not config.phases:
            return config, origins
        search = launch.search
        config = replay_config(line, lambda p: launch.trial_settings(p)[0], rows=search.rows, samples=search.length)
        return config, origins

    def _spec(self, leg: Leg) -> LegSpec:
        launch, store = self._launch, self._launch.record.store
        config, origins = self._settings(leg)
        trials = f"{store.uri}/{TRIALS}"
        origin = launch.record.identity
        own = {"name": leg.run, "sweep": _sweep_identity(launch, leg), "init": None}
        inherited = {key: origin[key] for key in _INHERITED if key in origin}
        donor = Donor(f"{trials}/{leg.donor_run}", leg.donor_samples or 0) if leg.donor_run else None
        return LegSpec(
            trial=leg.trial,
            leg=leg.leg,
            sweep_uri=store.uri,
            run_uri=f"{trials}/{leg.run}",
            pipeline=launch.ref,
            identity={**inherited, **own},
            settings=config_to_dict(config),
            origins=origins,
            length=launch.search.length,
            reports=ReportPlan(tuple(self._milestones), leg.samples if leg.samples else -1, self._durable),
            validation=launch.datasets.validation is not None,
            workers=leg.workers,
            donor=donor,
        )


_INHERITED = ("pipeline", "module", "attribute", "pliant", "data_digest", "validation_digest", "lanes", "seed")
"""What the identity of a trial's run has from its sweep's."""


def _sweep_identity(launch: SweepLaunch, leg: Leg) -> dict[str, Any]:
    return {"name": launch.name, "trial": leg.trial, "generation": leg.generation, "params": dict(leg.params)}
