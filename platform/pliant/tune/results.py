"""A recorded sweep, from its log alone: no Ray, no torch, no process of the sweep is needed.

log `decisions` ─► State (tune/state.py): the same fold as the driver's ─► what is shown, in words and as plain values
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pliant.errors import PliantError, UsageError
from pliant.observe.sweep_table import END, SweepScreen, TrialRow
from pliant.storage.record import RunRecord
from pliant.storage.settings import RunSettings
from pliant.storage.store import Store
from pliant.tune.chosen import chosen_settings, train_command, yaml_of
from pliant.tune.decisions import Logged, read_decisions, replay
from pliant.tune.onlooker import Onlooker
from pliant.tune.settings import HALVING, POPULATION_BASED, SweepSettings
from pliant.tune.state import State
from pliant.tune.table import Best, Trial, Workers
from pliant.tune.types import Change, Mode, Params
from pliant.tune.words import first_line

if TYPE_CHECKING:
    from pliant.storage.standing import Standing

_HOUR_S = 3600.0
EARLIER = "earlier"
"""In a sweep's identity: points and values of the one that it started warm from."""


@dataclass(frozen=True)
class SweepResults:
    """What a sweep's log said at one moment.

    Attributes:
        record: of the sweep.
        log: its entries, oldest first.
        state: after them; to be read only.
        milestones: samples at which trials report, ascending; the last is a trial's length.
    """

    record: RunRecord
    log: Sequence[Logged]
    state: State
    milestones: Sequence[int]

    @property
    def name(self) -> str:
        """Of the sweep."""
        return str(self.record.identity["name"])

    @property
    def metric(self) -> str:
        """What is made better."""
        return str(self.record.identity["metric"])

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials, in the order of suggestion."""
        return tuple(self.state.trials.values())

    @property
    def settings(self) -> SweepSettings:
        """Of the newest start."""
        return self.state.settings

    @property
    def best(self) -> Best | None:
        """The best report so far."""
        return self.state.best

    def running(self, stand: Standing) -> frozenset[str]:
        """Trials of which a leg runs now: the log does not say, the records of their runs do."""
        if stand.owner is None or stand.state not in ("running", "unknown"):
            return frozenset()
        live = [trial for trial in self.trials if trial.live]
        with ThreadPoolExecutor(8) as pool:  # on object storage it is waiting, not work
            found = pool.map(lambda trial: _is_driven(self.record.store.child(f"trials/{trial.run}")), live)
            return frozenset(trial.id for trial, runs in zip(live, found, strict=True) if runs)

    def screen(self, running: Container[str] = ()) -> SweepScreen:
        """What its table shows; ``running``: trials of which a leg runs."""
        return screen_of(self.state, self.name, self.metric, self.milestones, running=running)

    def trial_facts(self, running: Container[str] = ()) -> list[dict[str, Any]]:
        """A dict per trial, in the order of suggestion."""
        return [self._facts_of(trial, running) for trial in self.trials]

    def best_facts(self) -> dict[str, Any] | None:
        """The best report: whose, its value, the point, and the settings of its run with the command that trains them;
        None before the first value."""
        if (best := self.best) is None:
            return None
        settings = chosen_settings(self.record.store, best.run)
        return {
            "trial": best.trial,
            "value": best.value,
            "samples": best.samples,
            "params": dict(best.params),
            "settings": settings,
            "yaml": yaml_of(settings if settings is not None else best.params),
            "command": train_command(self.record.identity, settings) if settings is not None else None,
        }

    def facts(self, stand: Standing, running: Container[str] = ()) -> dict[str, Any]:
        """All that ``pliant status SWEEP --json`` shows."""
        state, settings = self.state, self.settings
        price, hours = settings.budget.price_per_worker_hour, state.worker_seconds / _HOUR_S
        counts = Counter(status_of(self.state, trial, running) for trial in self.trials)
        halt = state.halt.text.partition("\n")[0] if state.halt is not None else None
        return {
            "sweep": self.name,
            "state": stand.state,
            "detail": stand.detail or halt,
            "metric": self.metric,
            "mode": state.mode,
            "scheduler": settings.scheduler.kind,
            "searcher": settings.searcher.kind,
            "planned": planned(state),
            "counts": dict(sorted(counts.items())),
            "decisions": state.decisions,
            "best": self.best_facts(),
            "worker_hours": hours,
            "cost": None if price is None else hours * price,
            "attempts": stand.starts,
            "owner": stand.owner.describe() if stand.owner else None,
            "last_sign_s": round(stand.owner.age, 1) if stand.owner else None,
            "pipeline": self.record.identity["pipeline"],
            "uri": self.record.store.uri,
            "trials": self.trial_facts(running),
        }

    def status(self, trial: Trial, running: Container[str] = ()) -> str:
        """How a trial stands; ``running``: trials of which a leg runs."""
        return status_of(self.state, trial, running)

    def _facts_of(self, trial: Trial, running: Container[str]) -> dict[str, Any]:
        last, best = trial.last, trial.best
        return {
            "trial": trial.id,
            "status": status_of(self.state, trial, running),
            "samples": trial.samples,
            "value": last.value if last is not None else None,
            "best": best.value if best is not None else None,
            "milestone": reached(trial, self.milestones),
            "generation": trial.generation,
            "workers": trial.workers,
            "worker_hours": trial.worker_seconds / _HOUR_S,
            "losses": len(trial.losses),
            "params": dict(trial.params),
            "note": trial.suggestion.note,
            "why": first_line(trial.why),
            "run": f"{self.record.store.uri}/trials/{trial.run}",
        }


def read_results(record: RunRecord) -> SweepResults:
    """Reads a sweep's log.

    Raises:
        DamageError: entries that count are missing or damaged.
    """
    from pliant.tune.schedulers import make_scheduler
    from pliant.tune.space import Space

    identity = record.identity
    log = list(read_decisions(record))
    settings = first_settings(log)
    mode: Mode = identity["mode"]
    # Decisions are those of the log: a reader needs no space to make any.
    scheduler = make_scheduler(
        settings, length=int(identity["length"]), rows=int(identity["rows"]), mode=mode, space=Space(())
    )
    onlooker = Onlooker(tuple(scheduler.milestones), scheduler.population)
    state = State(settings, mode=mode, scheduler=onlooker, searcher=onlooker, workers=Workers())
    replay((logged.entry for logged in log), state)
    return SweepResults(record, log, state, onlooker.milestones)


def earlier_points(settings: SweepSettings, run: RunSettings) -> list[tuple[Params, float | None]]:
    """The points of the sweep that this one starts warm from, each with its trial's best value; none without one.

    Raises:
        UsageError: there is no such sweep.
    """
    if (wanted := settings.searcher.warm_start) is None:
        return []
    place = wanted if "/" in wanted else f"{run.storage}/{wanted}"
    record = RunRecord.open(Store(place, run.store))
    if not record.is_sweep:
        message = f"sweep.searcher.warm_start is {wanted!r}, which is a run"
        raise UsageError("sweep.warm-start", message, hint="name a sweep", location=record.store.uri)
    trials = [(trial, trial.best) for trial in read_results(record).trials]
    return [
        (trial.params, None) if best is None else (trial.generations[best.generation].params, best.value)
        for trial, best in trials
    ]


def recorded_points(record: RunRecord) -> list[tuple[Params, float | None]]:
    """The same as they were when the sweep began: the other sweep may have gone on since."""
    return [(params, value) for params, value in record.identity.get(EARLIER, ())]


def screen_of(
    state: State,
    name: str,
    metric: str,
    milestones: Sequence[int],
    *,
    running: Container[str] = (),
    elapsed_s: float | None = None,
) -> SweepScreen:
    """What the table of a sweep shows.

    Args:
        state: a ``Sweep`` knows which trials run.
        running: with any other state, those of which a leg runs.
        milestones: the scheduler's.
        elapsed_s: of this start.
    """
    kind = state.settings.scheduler.kind
    at = "generation" if kind in POPULATION_BASED else "rung" if kind in HALVING else "report"
    stages = len(milestones) - (kind in HALVING)  # a trial's end is no rung
    rows = []
    for trial in state.trials.values():
        last, best, status = trial.last, trial.best, status_of(state, trial, running)
        rows.append(
            TrialRow(
                trial=trial.id,
                status=status,
                at=_place(reached(trial, milestones), stages) if last is not None else "",
                samples=trial.samples,
                value=last.value if last is not None else None,
                best=best.value if best is not None else None,
                workers=trial.workers if status == "running" else 0,
                why=first_line(trial.why),
            )
        )
    top = None if state.best is None else (state.best.trial, state.best.value)
    return SweepScreen(name, metric, at, rows, planned(state), top, state.worker_seconds, elapsed_s)


def status_of(state: State, trial: Trial, running: Container[str]) -> str:
    """How a trial stands; of one that may go on the log does not say whether a leg of it runs."""
    status = state.status(trial)
    if status == "running" and trial.paused:  # its leg is about to leave
        return "paused"
    return "running" if status == "waiting" and trial.id in running else status


def planned(state: State) -> int | None:
    """Trials that there will be, as far as is known: none is added to those of a searcher that has nothing left."""
    return len(state.trials) if state.closed else state.allowed


def _place(reached: int, stages: int) -> str:
    return f"{reached}/{stages}" if reached <= stages else END


def reached(trial: Trial, milestones: Sequence[int]) -> int:
    """How many milestones it has reached."""
    return bisect_right(milestones, trial.samples)


def first_settings(log: Sequence[Logged]) -> SweepSettings:
    """Those that a sweep began with; the defaults in an empty log."""
    changes = (logged.entry for logged in log if isinstance(logged.entry, Change))
    return next((SweepSettings.model_validate(change.settings) for change in changes), SweepSettings())


def _is_driven(run: Store) -> bool:
    """Whether a leg of a trial has begun in a run, and neither said why it ended nor is seen to be dead."""
    try:
        owner = RunRecord.open(run).owner()
    except PliantError:
        return False
    return owner is not None and owner.liveness(run.settings.heartbeat_fresh) != "dead"
