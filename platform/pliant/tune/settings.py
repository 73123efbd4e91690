"""Settings of a sweep: how trials are proposed, which go on, and what all of it may cost."""

from __future__ import annotations

from typing import Any, Literal

from pliant.config.base import Settings, rule, setting, where
from pliant.units import Seconds

_KIND = "sweep.scheduler.kind"
POPULATION_BASED = ("pbt", "pb2")
HALVING = ("asha", "halving", "hyperband")


class SchedulerSettings(Settings):
    """Which trials go on."""

    kind: Literal["none", "asha", "halving", "hyperband", "median", "pbt", "pb2"] = setting("none", on_resume="frozen")
    """``none``: every trial to its end. ``asha``: asynchronous successive halving (Li et al. 2020). ``halving``: the
    synchronous one (Jamieson & Talwalkar 2016). ``hyperband``: several synchronous brackets of it (Li et al. 2018).
    ``median``: stops what is worse than the median of the others (Golovin et al. 2017). ``pbt``: population based
    training (Jaderberg et al. 2017). ``pb2``: the same with a Gaussian process that chooses (Parker-Holder et al.
    2020)."""
    eta: int = setting(3, on_resume="frozen", ge=2, only_with=where(_KIND, *HALVING))
    """One of ``eta`` trials goes on at each rung, to ``eta`` times the samples."""
    first_epochs: float | None = setting(None, on_resume="frozen", gt=0, only_with=where(_KIND, *HALVING, "median"))
    """Epochs to the first rung; for ``median`` those in which nothing is stopped. Default: a trial's length by ``eta``
    cubed, for ``median`` a quarter of it."""
    brackets: int = setting(1, on_resume="frozen", ge=1, only_with=where(_KIND, "asha"))
    """Brackets of ``asha``, each with a first rung ``eta`` times later; trials are dealt to them in turn."""
    every_epochs: float | None = setting(
        None, on_resume="frozen", gt=0, only_with=where(_KIND, "none", "median", *POPULATION_BASED)
    )
    """Epochs between two reports, for ``pbt`` and ``pb2`` the length of a generation. Default: a tenth of a trial's
    length; for ``none`` only its end."""
    population: int = setting(8, on_resume="frozen", ge=2, only_with=where(_KIND, *POPULATION_BASED))
    """Trials of ``pbt`` and ``pb2``, all of them alive from the first generation to the last."""
    sync: bool = setting(True, on_resume="frozen", only_with=where(_KIND, *POPULATION_BASED))
    """A generation waits for all of its trials: so decisions do not depend on which is faster. ``false``: each trial is
    compared at its report with what the others have reported last."""
    quantile: float = setting(0.25, on_resume="frozen", gt=0, le=0.5, only_with=where(_KIND, *POPULATION_BASED))
    """Share of the population that clones, and of those that are cloned."""
    resample: float = setting(0.25, on_resume="frozen", ge=0, le=1, only_with=where(_KIND, "pbt"))
    """Probability that a parameter is drawn anew instead of perturbed."""


class SearcherSettings(Settings):
    """Where new trials come from."""

    kind: Literal["random", "grid", "tpe", "bohb"] = setting("random", on_resume="frozen")
    """``random``; ``grid``: every combination once, in order; ``tpe``: Optuna's multivariate tree-structured Parzen
    estimator (Bergstra et al. 2011, Falkner et al. 2018), on values at the largest number of samples that each trial
    has reached; ``bohb``: the same model fitted at the largest number of samples that enough trials have reached, with
    every third trial random (Falkner et al. 2018)."""
    startup_trials: int = setting(10, on_resume="frozen", ge=1, only_with=where("sweep.searcher.kind", "tpe", "bohb"))
    """Random trials before the model is asked."""
    warm_start: str | None = setting(None, on_resume="frozen", min_length=1)
    """An earlier sweep (name under ``run.storage``, path or URI): its best configurations are tried first, and a model
    learns from all of its trials."""
    warm_start_trials: int = setting(1, on_resume="frozen", ge=0)
    """How many of the earlier sweep's best configurations are tried first."""


class BudgetSettings(Settings):
    """Hard limits. What is reached first ends the sweep, resumable with more."""

    worker_hours: float | None = setting(None, on_resume="free", gt=0)
    """Sum over all trials of their workers times the hours they had them."""
    time: Seconds | None = setting(None, on_resume="free", gt=0)
    """Time of this start of the sweep."""
    plateau_trials: int | None = setting(None, on_resume="free", ge=1)
    """The sweep ends when this many trials have ended in a row without a better best value."""
    price_per_worker_hour: float | None = setting(None, on_resume="free", gt=0)
    """For the preview and the report: what a worker costs in an hour, in any currency."""


class SweepSettings(Settings):
    """A search over settings of a pipeline."""

    metric: str | None = setting(None, on_resume="frozen", min_length=1)
    """What is made better: one of the pipeline's metrics; default: its main one."""
    trials: int = setting(20, on_resume="free", ge=1)
    """Trials in all. More on resume extend the sweep."""
    slots: int | None = setting(None, on_resume="free", ge=1)
    """Trials that run at once. Default: as many as the cluster holds. With one, the order of everything is fixed."""
    seed: int = setting(0, on_resume="frozen", ge=0, lt=2**63)
    """Seed of suggestions and mutations; that of the trials is ``seed``."""
    scheduler: SchedulerSettings = setting(SchedulerSettings(), on_resume="frozen")
    searcher: SearcherSettings = setting(SearcherSettings(), on_resume="frozen")
    budget: BudgetSettings = setting(BudgetSettings(), on_resume="free")
    max_failures: int = setting(2, on_resume="free", ge=0)
    """How many times a trial is started again after it was lost with a machine, or after an error of the user's code
    that came after a report. Preemptions with notice are free."""
    max_identical_failures: int = setting(3, on_resume="free", ge=1)
    """Trials in a row that may end with the same error of the user's code. Then the sweep stops with it."""

    @rule("scheduler", "searcher")
    def _population_is_drawn(self) -> None:
        if self.scheduler.kind in POPULATION_BASED and self.searcher.kind not in ("random",):
            raise ValueError(
                f"{self.scheduler.kind} draws its population at random; sweep.searcher.kind is {self.searcher.kind!r}"
            )


class SpaceFile(Settings):
    """A space file."""

    pipeline: str | None = setting(None, on_resume="frozen", min_length=1)
    """Whose it is."""
    sweep: SweepSettings = setting(SweepSettings(), on_resume="free")
    settings: dict[str, Any] = setting({}, on_resume="free")
    """Settings that all trials have, by dotted key."""
    space: dict[str, Any] = setting(on_resume="free", min_length=1)
    """By dotted key, what is searched."""
    constraints: tuple[str, ...] = setting((), on_resume="free")
    """What must hold between searched settings."""
