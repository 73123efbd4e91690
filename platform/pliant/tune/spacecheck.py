"""What must hold of a whole search space before a sweep starts, and what is derived from it. Pure.

Rules between settings are those of every configuration: points of the space, its corners first, are made into settings
and put through the same loader as a file.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from pliant.config.dump import config_to_dict
from pliant.config.loader import DEFAULT, load_settings
from pliant.config.problems import ConfigErrors
from pliant.config.schema import show
from pliant.config.yamlfile import Document, Path
from pliant.data.plan import default_lanes
from pliant.errors import ConfigError
from pliant.rules import RULES
from pliant.settings import RunConfig
from pliant.tune.constraints import Constraint
from pliant.tune.domainfile import Problems
from pliant.tune.domains import Dimension
from pliant.tune.point import BATCH, LR, NO_WARMUP, PEAK, WARMUP_RATIO
from pliant.tune.settings import POPULATION_BASED, SweepSettings
from pliant.tune.space import Space
from pliant.tune.types import Params

GRID_MOST = 1000
"""Points of the largest grid."""
ENUMERATED = 200
"""Of a space with at most so many points every one is tried out."""
DRAWS = 2000
"""Draws that say how much of a space its constraints leave."""
LEFT_AT_LEAST = 0.02
"""Share of the draws that the constraints must leave: then ``TRIES`` in a row are as good as never refused."""
SAMPLES = 1_000_000
"""Rows of a trial whose length is given in epochs, before the dataset is known."""


def settle_batches(
    config: RunConfig, origins: Mapping[str, str], space: Space, problems: Problems, *, lanes_open: bool
) -> tuple[RunConfig, dict[str, str], Space]:
    """One number of lanes for all batches of the space, and a schedule that does not depend on the batch.

    Args:
        lanes_open: whether the lanes may be chosen, where the configuration's were derived.

    Returns:
        The configuration, its origins, and the space, whose range of batches goes in multiples of the lanes.
    """
    settled = dict(origins)
    config = _in_samples(config, settled)
    dimension = space.by_name.get(BATCH)
    if dimension is None:
        return config, settled, space
    if lanes_open and origins["data.lanes"].startswith("derived"):
        config = _common_lanes(config, settled, dimension, problems)
        if problems.found:
            return config, settled, space
    lanes = config.data.lanes or 1
    for path, batch in _batches(dimension, problems):
        if batch % lanes:
            below, above = batch // lanes * lanes, (batch // lanes + 1) * lanes
            problems.problem(
                "config.global-batch",
                path,
                f"{BATCH} {batch} is not a multiple of data.lanes {lanes}",
                f"the nearest that fit: {f'{below} or ' if below else ''}{above}",
            )
    if dimension.kind == "int":
        step = math.lcm(dimension.step, lanes)
        changed = replace(dimension, step=step)  # it has both ends, as these are multiples of the lanes
        space = replace(space, dimensions=tuple(changed if d is dimension else d for d in space.dimensions))
    return config, settled, space


def _common_lanes(config: RunConfig, origins: dict[str, str], dimension: Dimension, problems: Problems) -> RunConfig:
    """Lanes that divide every batch, where the configuration leaves them open."""
    batch, workers = config.train.global_batch, config.elastic.max_workers
    if dimension.kind == "int" and dimension.step == 1:
        return config  # the range follows the lanes of the base
    later = (int(phase.settings[BATCH]) for phase in config.phases if BATCH in phase.settings)
    together = math.gcd(batch, *later, *(int(value) for value in dimension.values))
    if together < workers:
        problems.problem(
            "config.lanes",
            ("space", BATCH),
            f"no number of lanes that is at least elastic.max_workers {workers} divides every {BATCH} of the space,"
            f" and the pipeline's own {batch}: their greatest common divisor is {together}",
            f"use batches with a common divisor of at least {workers}, or elastic.max_workers={together}",
        )
        return config
    lanes = default_lanes(together, workers)
    origins["data.lanes"] = (
        f"derived: the smallest divisor of every train.global_batch of the space (all of them multiples of {together})"
        f" that is at least elastic.max_workers {workers}"
    )
    return config.model_copy(update={"data": config.data.model_copy(update={"lanes": lanes})})


def _batches(dimension: Dimension, problems: Problems) -> Iterator[tuple[Path, int]]:
    """Batches that must be multiples of the lanes, and where they stand."""
    path: Path = ("space", BATCH)
    if dimension.kind == "int":
        yield (*path, "int"), int(dimension.low)
        yield (*path, "int"), int(dimension.high)
        return
    for index, value in enumerate(dimension.choices):
        short = (*path, index)
        yield (short if short in problems.places else (*path, "choice", index)), int(value)


def _in_samples(config: RunConfig, origins: dict[str, str]) -> RunConfig:
    """The schedule counted in samples: it then means the same at every batch, also where that changes in mid-run."""
    schedule, batch = config.schedule, config.train.global_batch
    if schedule.unit != "steps":
        return config
    changed: dict[str, object] = {"unit": "samples"}
    if schedule.warmup or schedule.kind == "constant":
        changed["warmup"] = schedule.warmup * batch or NO_WARMUP
    if schedule.total is not None:
        changed["total"] = schedule.total * batch
    for name in changed:
        was = show(getattr(schedule, name))
        origins[f"schedule.{name}"] = f"sweep: trials count samples, whatever their batch; was {was} at {batch}"
    return config.model_copy(update={"schedule": schedule.model_copy(update=changed)})


def derive(
    settings: SweepSettings, origins: Mapping[str, str], space: Space, problems: Problems
) -> tuple[SweepSettings, dict[str, str]]:
    """The sweep's settings with what follows from the space, and their origins. Adds what does not fit together."""
    settled = {key: origin for key, origin in origins.items() if key.startswith("sweep.")}
    _check_constraints(space, problems)
    trials, population, grid = settings.trials, None, None
    if settings.searcher.kind == "grid":
        grid = _grid_size(space, origins["sweep.searcher.kind"], problems)
    if settings.scheduler.kind in POPULATION_BASED:
        population = settings.scheduler.population
        _check_population(settings, space, origins, problems)
    if origins["sweep.trials"] == DEFAULT and (grid or population):
        what = f"{grid} points of the grid" if grid else f"{population} members of the population"
        settled["sweep.trials"] = f"derived: the {what}"
        return settings.model_copy(update={"trials": grid or population}), settled
    if grid and trials < grid:
        message = f"sweep.trials is {trials}, and the grid has {grid} points"
        hint = "leave it out to try all of them, or list fewer choices"
        problems.problem_of("space.grid", origins["sweep.trials"], message, hint)
    if population and trials < population:
        message = f"sweep.trials is {trials}, below sweep.scheduler.population {population}"
        hint = "leave it out: it is then the population"
        problems.problem_of("space.population", origins["sweep.trials"], message, hint)
    return settings, settled


def _grid_size(space: Space, origin: str, problems: Problems) -> int | None:
    """Points of the grid; None where there is none."""
    floats = [dimension.name for dimension in space.dimensions if dimension.kind == "float"]
    if floats:
        message = f"a grid has no floats, and the space has {', '.join(floats)}"
        hint = "list choices for them, or use sweep.searcher.kind=random"
        problems.problem_of("space.grid", origin, message, hint)
        return None
    combinations = math.prod(dimension.size or 1 for dimension in space.dimensions)
    few = combinations <= 100 * GRID_MOST  # constraints and conditions may leave little of them
    size = sum(1 for _ in islice(space.grid(), GRID_MOST + 1)) if few else combinations
    if size > GRID_MOST:
        shown = f"more than {GRID_MOST}" if few else f"{combinations:,}"
        message = f"the grid has {shown} points; at most {GRID_MOST} are tried one by one"
        problems.problem_of("space.grid", origin, message, "use sweep.searcher.kind=random")
        return None
    return size


def _check_population(settings: SweepSettings, space: Space, origins: Mapping[str, str], problems: Problems) -> None:
    """Whether population based training has something to change, and room for its population."""
    kind, population, slots = settings.scheduler.kind, settings.scheduler.population, settings.slots
    origin = origins["sweep.scheduler.kind"]
    mutable = [dimension for dimension in space.dimensions if dimension.mutable]
    if not mutable:
        names = ", ".join(dimension.name for dimension in space.dimensions)
        message = (
            f"{kind} changes settings in the middle of a run, and none of those searched can change there: {names}"
        )
        hint = "search the learning rate, the schedule or train.global_batch too"
        problems.problem_of("space.population", origin, message, hint)
    elif kind == "pb2" and all(dimension.kind == "choice" for dimension in mutable):
        names = ", ".join(dimension.name for dimension in mutable)
        message = (
            f"pb2 fits a model over numbers, and those that can change in the middle of a run are choices: {names}"
        )
        problems.problem_of("space.population", origin, message, "search a range, or use sweep.scheduler.kind=pbt")
    if not settings.scheduler.sync and slots is not None and slots < population:
        message = f"sweep.slots is {slots}, below sweep.scheduler.population {population}: the others would never begin"
        hint = f"use sweep.slots={population}, a smaller population, or sweep.scheduler.sync=true"
        problems.problem_of("space.population", origins["sweep.slots"], message, hint)


def _check_constraints(space: Space, problems: Problems) -> None:
    """Whether the constraints leave enough of the space to find a point by drawing."""
    if not space.constraints:
        return
    free = Space(space.dimensions)
    chance = random.Random(0)
    points = [free.draw(lambda name: chance.random()) for _ in range(DRAWS)]
    points += [point for point, _ in zip(_all(free), range(ENUMERATED), strict=False)]
    for index, constraint in enumerate(space.constraints):
        if not any(constraint.holds(point) for point in points):
            message = f"nothing in the space satisfies the constraint {constraint.text!r}{_what_is(constraint)}"
            problems.problem("space.constraints", ("constraints", index), message, "loosen it, or widen what it names")
            return
    left = sum(space.allowed(point) for point in points[:DRAWS]) / DRAWS
    if left < LEFT_AT_LEAST:
        share = f"{left:.1%} of the space" if left else "nothing of the space"
        message = f"the constraints leave {share}; at least {LEFT_AT_LEAST:.0%} are needed to draw from it"
        problems.problem("space.constraints", ("constraints", 0), message, "narrow the domains to what they allow")


def _what_is(constraint: Constraint) -> str:
    """The settings in a constraint that are fixed."""
    shown = ", ".join(f"{name} is {show(value)}" for name, value in constraint.fixed.items())
    return f", where {shown}" if shown else ""


def check_overridden(space: Space, base: RunConfig, origins: Mapping[str, str], problems: Problems) -> None:
    """Settings that somebody gave for this sweep, and that the space searches."""
    settings = {PEAK: LR, WARMUP_RATIO: "schedule.warmup"}
    for dimension in space.dimensions:
        key = settings.get(dimension.name, dimension.name)
        given = origins[key].startswith(("override ", f"{problems.source}:"))
        if given and not dimension.when and key != BATCH:  # a batch is what the coupling refers to
            message = f"{key} has no effect: the space searches {'it' if key == dimension.name else dimension.name}"
            problems.problem_of("config.no-effect", origins[key], message, "leave one of them out")
        for number, phase in enumerate(base.phases):
            if key in phase.settings:
                message = f"phases[{number}] sets {key}, and the space searches {dimension.name}"
                problems.problem_of("config.no-effect", origins["phases"], message, "leave one of them out")


def check_phases_lengths(base: RunConfig, origins: Mapping[str, str], problems: Problems) -> None:
    """Phases that give lengths of the schedule in steps, which nothing converts."""
    for number, phase in enumerate(base.phases if base.schedule.unit == "steps" else ()):
        for key in ("schedule.warmup", "schedule.total"):
            if phase.settings.get(key):
                message = f"phases[{number}] gives {key} in steps, and trials of a sweep count samples"
                problems.problem_of("config.schedule", origins["phases"], message, "use schedule.unit=samples")


def check_points(space: Space, base: RunConfig, problems: Problems) -> None:
    """Whether points of the space are configurations that load; names the first that is none."""
    samples = (
        base.train.steps * base.train.global_batch if base.train.steps else int(SAMPLES * (base.train.epochs or 1))
    )
    whole = Document(config_to_dict(base), {})
    for params in points_to_try(space):
        settings = space.settings(params, samples=samples, base=base)
        try:
            load_settings(type(base), text=whole, source="", overrides=settings, rules=RULES)
        except ConfigError as error:
            found = error.problems if isinstance(error, ConfigErrors) else [error]
            what = "; ".join(problem.message for problem in found)
            named = {name: value for name, value in params.items() if name.rpartition(".")[2] in what} or params
            point = ", ".join(f"{name} {show(value)}" for name, value in named.items())
            message = f"a trial with {point} cannot be: {what}"
            problems.problem("space.point", ("space",), message, "narrow the space, or add a constraint")
            return


def points_to_try(space: Space) -> list[Params]:
    """Points that stand for all of them: every one of a small space, else corners, and some drawn."""
    if math.prod(dimension.size or ENUMERATED + 1 for dimension in space.dimensions) <= ENUMERATED:
        return list(space.grid())
    chance = random.Random(0)
    low = {dimension.name: 0.0 for dimension in space.dimensions}
    high = {name: 1.0 for name in low}
    corners = [low, high]
    corners += [{**low, name: 1.0} for name in low]
    corners += [{**high, name: 0.0} for name in low]
    for dimension in space.dimensions:
        if dimension.kind == "choice":
            corners += [{**low, dimension.name: dimension.unit(value)} for value in dimension.choices]
    corners += [{name: float(chance.random() < 0.5) for name in low} for _ in range(ENUMERATED // 4)]
    points = [point for point in map(space.from_unit, corners) if space.allowed(point)]
    return points + [space.draw(lambda name: chance.random()) for _ in range(ENUMERATED // 4)]


def _all(space: Space) -> Iterator[Params]:
    """Every point of a space without floats; none of another."""
    return space.grid() if all(dimension.size is not None for dimension in space.dimensions) else iter(())
