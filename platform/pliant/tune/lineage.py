"""Whose training a trial's state comes from, and the settings by which one run without a sweep repeats all of it. Pure.

    t0002 ──4,500──► t0005.g1 ──9,000──► t0001.g2        each goes on from the one before, with settings of its own
    settings of t0002, phases: from 4,500 those of t0005.g1, from 9,000 those of t0001.g2

A trial that clones another one's state goes on at the very samples of that one's report, and a phase begins with the
first step from there on: so the run's losses are those of the segments, bit by bit where the conditions are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pliant.settings import RunConfig
from pliant.storage.layout import run_name
from pliant.train.phase_rules import phase_between
from pliant.train.phases import plan_course
from pliant.train.settings import PhaseSettings
from pliant.tune.table import Trial
from pliant.tune.types import Params

_ENDLESS = 10**12


@dataclass(frozen=True)
class Segment:
    """A stretch of training in one run of a sweep.

    Attributes:
        trial, generation: whose run.
        params: its point of the search space.
        samples: rows seen before it.
        until: rows seen when the next one went on from it; None for the last.
    """

    trial: str
    generation: int
    params: Params
    samples: int
    until: int | None = None

    @property
    def run(self) -> str:
        """Name of the run below ``trials/``."""
        return run_name(self.trial, self.generation)


def ancestry(trials: Mapping[str, Trial], trial: str, generation: int | None = None) -> tuple[Segment, ...]:
    """The segments that a trial's state has come through, the eldest first.

    Args:
        trials: of a replayed sweep, by id.
        generation: of the trial; None for its present one.
    """
    line: list[Segment] = []
    until: int | None = None
    number = trials[trial].generation if generation is None else generation
    while True:
        here = trials[trial].generations[number]
        line.append(Segment(trial, number, here.params, here.samples, until))
        if here.donor is None:
            return tuple(reversed(line))
        trial, number, until = here.donor, here.donor_generation, here.samples


def replay_config(
    segments: Sequence[Segment], settings: Callable[[Params], RunConfig], *, rows: int, samples: int
) -> RunConfig:
    """The configuration of one run that does what the segments did.

    Args:
        segments: as of ``ancestry``.
        settings: the complete ones of a trial at a point of the space.
        rows: of the training set.
        samples: the trial's length, or those of its last report; the run ends with the first step that reaches them.
    """
    segments = [segment for segment in segments if segment.until is None or segment.until > segment.samples]
    configs = [settings(segment.params) for segment in segments]
    changes = {phase.from_samples: dict(phase.settings) for phase in configs[0].phases}  # of all trials alike
    for segment, (before, after) in zip(segments[1:], pairwise(configs), strict=True):
        if changed := phase_between(before, after):
            changes[segment.samples] = {**changes.get(segment.samples, {}), **changed}
    phases = (PhaseSettings(from_samples=samples, settings=changed) for samples, changed in sorted(changes.items()))
    base = configs[0].model_copy(update={"phases": tuple(phases)})
    last = plan_course(_of_steps(base, _ENDLESS), rows).phases[-1]
    return _of_steps(base, last.step + -(-(samples - last.samples) // last.train.global_batch))


def _of_steps(config: RunConfig, steps: int) -> RunConfig:
    return config.model_copy(update={"train": config.train.model_copy(update={"steps": steps, "epochs": None})})
