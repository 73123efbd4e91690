"""Settings that change in the course of a run: which hold for which step, and how many steps that makes. Pure.

    phases:
      - {from_samples: 4500, settings: {optim.lr: 0.004, train.global_batch: 128}}

A phase begins with the first step that starts at or beyond ``from_samples`` rows; its settings stay until another one
changes them. Which phase a step belongs to follows from the samples before it, so that nothing of it is state.

The run's length is that of its settings without phases, as a place in the stream of rows: with another batch, other
steps lead there. So does progress of the schedule: in ``samples`` it is what has been seen; in ``steps`` a phase counts
those before it in its own batch, so that the rate at some sample is that of its own settings, whatever was before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from pliant.config.dump import config_to_dict
from pliant.data.plan import Tail, position_after, steps_in
from pliant.settings import RunConfig
from pliant.train.settings import OptimSettings, ScheduleSettings, TrainSettings


@dataclass(frozen=True)
class Phase:
    """A stretch of a run with the same settings.

    Attributes:
        samples: rows seen before its first step.
        step: steps before it.
        total: the schedule's whole length in its unit, were this the last phase.
        shift: what is added to steps for progress in them.
    """

    samples: int
    step: int
    train: TrainSettings
    optim: OptimSettings
    schedule: ScheduleSettings
    total: float
    shift: float = 0.0


@dataclass(frozen=True)
class Course:
    """A run from its first step to its last.

    Attributes:
        phases: in order, each of at least one step; the first is what holds from the beginning.
        steps: of the whole run.
        unreached: ``from_samples`` of phases that begin where the run has ended.
    """

    phases: tuple[Phase, ...]
    steps: int
    unreached: tuple[int, ...] = ()

    def at(self, samples: int) -> Phase:
        """The phase of the step that starts after so many samples."""
        return next(phase for phase in reversed(self.phases) if phase.samples <= samples)

    def batch(self, samples: int) -> int:
        """Rows of the step that starts after so many samples."""
        return self.at(samples).train.global_batch


def phase_configs(config: RunConfig) -> list[RunConfig]:
    """The configuration of each phase, the first one's without its phases; as long as ``config.phases`` and one more.

    Raises:
        ValidationError: a phase's settings are not valid; the loader says so in its own words.
    """
    base = config.model_copy(update={"phases": ()})
    found, values = [base], config_to_dict(base)
    for phase in config.phases:
        for key, value in phase.settings.items():
            section, _, name = key.partition(".")
            values[section][name] = value
        found.append(type(config).model_validate(values))
    return found


def largest_batch(config: RunConfig) -> int:
    """Most rows of any step of a run."""
    later = (int(phase.settings.get("train.global_batch", 0)) for phase in config.phases)
    return max([config.train.global_batch, *later])


def plan_course(config: RunConfig, rows: int, *, total_steps: int | None = None) -> Course:
    """Works out a run of ``rows`` rows an epoch.

    Args:
        total_steps: of a run without phases, where it is not by its settings (a shorter trial of it).
    """
    base, *later = phase_configs(config)
    tail, steps = config.data.tail, _steps(base, rows)
    if not later:
        steps = steps if total_steps is None else total_steps
        return Course((_phase(base, 0, 0, steps),), steps)
    end = _end(base, rows, steps)
    phases, unreached = [_phase(base, 0, 0, steps)], []
    step, samples, place = 0, 0, (0, 0)
    for settings, config_after in zip(config.phases, later, strict=True):
        batch = phases[-1].train.global_batch
        left = steps_left(rows, batch, tail, place, end)

        def seen(more: int, batch: int = batch, at: tuple[int, int] = place, before: int = samples) -> int:
            return before + _taken(rows, batch, tail, at, more)

        more = bisect_left(range(left + 1), settings.from_samples, key=seen)
        if more >= left:
            unreached.append(settings.from_samples)
            continue
        step, samples = step + more, seen(more)
        place = _after(rows, batch, tail, place, more)
        remaining = steps_left(rows, config_after.train.global_batch, tail, place, end)
        if phases[-1].samples == samples:
            phases.pop()
        phases.append(_phase(config_after, samples, step, remaining))
    last = phases[-1].train.global_batch
    return Course(tuple(phases), step + steps_left(rows, last, tail, place, end), tuple(unreached))


def steps_left(rows: int, global_batch: int, tail: Tail, place: tuple[int, int], end: tuple[int, int]) -> int:
    """Steps of ``global_batch`` rows from a place (epoch, position) to another one; ``drop`` rounds down in each epoch,
    the others up."""
    (epoch, position), (last, part) = place, end
    if tail == "carry":
        return max(0, -(-((last - epoch) * rows + part - position) // global_batch))

    def steps(count: int) -> int:
        return count // global_batch if tail == "drop" else -(-count // global_batch)

    if epoch >= last:
        return steps(max(0, part - position)) if epoch == last else 0
    return steps(rows - position) + (last - epoch - 1) * steps(rows) + steps(part)


def _steps(config: RunConfig, rows: int) -> int:
    train = config.train
    return train.steps or steps_in(rows, train.global_batch, config.data.tail, train.epochs or 1.0)


def _end(config: RunConfig, rows: int, steps: int) -> tuple[int, int]:
    """Where a run without phases ends: by its epochs, or where so many steps lead."""
    train = config.train
    if train.steps is None:
        return divmod(round(rows * (train.epochs or 1.0)), rows)
    return position_after(rows=rows, global_batch=train.global_batch, tail=config.data.tail, steps=steps)


def _after(rows: int, batch: int, tail: Tail, place: tuple[int, int], steps: int) -> tuple[int, int]:
    epoch, position = place
    return position_after(rows=rows, global_batch=batch, tail=tail, steps=steps, epoch=epoch, position=position)


def _taken(rows: int, batch: int, tail: Tail, place: tuple[int, int], steps: int) -> int:
    """Rows that so many steps from a place take."""
    if tail != "pad":
        return steps * batch
    epoch, position = _after(rows, batch, tail, place, steps)
    return (epoch - place[0]) * rows + position - place[1]


def _phase(config: RunConfig, samples: int, step: int, remaining: int) -> Phase:
    batch, schedule = config.train.global_batch, config.schedule
    before = samples / batch if step else 0  # steps, had they all been of this batch
    total: float = samples + remaining * batch if schedule.unit == "samples" else before + remaining
    return Phase(
        samples=samples,
        step=step,
        train=config.train,
        optim=config.optim,
        schedule=schedule,
        total=total if schedule.total is None else schedule.total,
        shift=before - step,
    )


def describe(config: RunConfig, course: Course) -> Sequence[str]:
    """The phases for people, in lines."""
    starts = {phase.from_samples: phase.settings for phase in config.phases}
    lines = []
    for phase in course.phases[1:]:
        given = max(samples for samples in starts if samples <= phase.samples)
        changed = ", ".join(f"{key} {value}" for key, value in starts[given].items())
        lines.append(f"from sample {phase.samples:,} (step {phase.step + 1:,}): {changed}")
    lines += [f"note: the phase from sample {s:,} is never reached" for s in course.unreached]
    return lines
