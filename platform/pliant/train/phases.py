"""Settings that change in the course of a run: which hold for which step, and how many steps that makes. Pure.

    phases:
      - {from_samples: 4500, settings: {optim.lr: 0.004, train.global_batch: 128}}

A phase begins with the first step that starts at or beyond ``from_samples`` rows; its settings stay until another one
changes them. Which phase a step belongs to follows from the samples before it, so that nothing of it is state.

``train.steps`` counts steps, whatever their batch; ``train.epochs`` lead to a place in the stream of rows, and another
batch gets there in other steps. Then a schedule in steps counts those before a phase in the phase's own batch, so that
its rate at some sample is that of its own settings, whatever was before; as one in samples does anyway.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from pliant.config.dump import config_to_dict
from pliant.data.plan import Tail, position_after
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
    tail, length = config.data.tail, _Length(base, rows)
    if not later:
        steps = length.left(base, 0, (0, 0)) if total_steps is None else total_steps
        return Course((_phase(base, 0, 0, steps),), steps)
    phases, unreached = [_phase(base, 0, 0, length.left(base, 0, (0, 0)))], []
    now, step, samples, place = base, 0, 0, (0, 0)
    for settings, after in zip(config.phases, later, strict=True):
        left = length.left(now, step, place)

        def seen(more: int, batch: int = now.train.global_batch, at: tuple[int, int] = place) -> int:
            return _taken(rows, batch, tail, at, more)

        more = bisect_left(range(left + 1), settings.from_samples - samples, key=seen)
        if more >= left:
            unreached.append(settings.from_samples)
            continue
        place_after = _after(rows, now.train.global_batch, tail, place, more)
        step, samples, place, now = step + more, samples + seen(more), place_after, after
        if phases[-1].samples == samples:
            phases.pop()
        before = step if length.counted else samples / now.train.global_batch
        phases.append(_phase(now, samples, step, length.left(now, step, place), before))
    return Course(tuple(phases), step + length.left(now, step, place), tuple(unreached))


class _Length:
    """Where a run ends: after ``train.steps`` steps, or at the place in the stream that ``train.epochs`` lead to."""

    def __init__(self, config: RunConfig, rows: int) -> None:
        self._steps, epochs = config.train.steps, config.train.epochs or 1.0
        self._rows, self._tail = rows, config.data.tail
        self._end = divmod(round(rows * epochs), rows)

    @property
    def counted(self) -> bool:
        """Whether it is a number of steps, whatever their batch."""
        return self._steps is not None

    def left(self, config: RunConfig, step: int, place: tuple[int, int]) -> int:
        """Steps after ``step`` ones, which led to a place, with the batch of these settings."""
        if self._steps is not None:
            return max(0, self._steps - step)
        left = steps_left(self._rows, config.train.global_batch, self._tail, place, self._end)
        return left if step else max(1, left)


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


def _after(rows: int, batch: int, tail: Tail, place: tuple[int, int], steps: int) -> tuple[int, int]:
    epoch, position = place
    return position_after(rows=rows, global_batch=batch, tail=tail, steps=steps, epoch=epoch, position=position)


def _taken(rows: int, batch: int, tail: Tail, place: tuple[int, int], steps: int) -> int:
    """Rows that so many steps from a place take."""
    if tail != "pad":
        return steps * batch
    epoch, position = _after(rows, batch, tail, place, steps)
    return (epoch - place[0]) * rows + position - place[1]


def _phase(config: RunConfig, samples: int, step: int, remaining: int, before: float = 0) -> Phase:
    """A phase; ``before``: progress of the schedule in steps at its beginning."""
    batch, schedule = config.train.global_batch, config.schedule
    total = samples + remaining * batch if schedule.unit == "samples" else before + remaining
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
