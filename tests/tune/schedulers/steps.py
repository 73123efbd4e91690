"""Trials whose values are given: one report after the other, and what became of whom."""

from __future__ import annotations

from pliant.tune.types import Decision, End, How, Params, Report, Scheduler, Suggestion, trial_id


class Steps:
    """Applies every decision at once, as they come."""

    def __init__(self, scheduler: Scheduler, begun: int = 0, params: Params | None = None) -> None:
        self.scheduler = scheduler
        self.begun = 0
        for _ in range(begun):
            self.begin(params)

    def begin(self, params: Params | None = None) -> str:
        """The next trial."""
        trial = trial_id(self.begun)
        self.scheduler.add(Suggestion(trial, self.begun, params or {}))
        self.begun += 1
        return trial

    def report(self, number: int, samples: int, value: float | None, generation: int = 0) -> list[Decision]:
        """Decisions that follow."""
        self.scheduler.observe(Report(trial_id(number), samples, value, {}, generation=generation))
        return self.follow()

    def end(self, number: int, how: How, samples: int = 0) -> list[Decision]:
        self.scheduler.end(End(trial_id(number), how, samples))
        return self.follow()

    def close(self) -> list[Decision]:
        self.scheduler.close()
        return self.follow()

    def follow(self) -> list[Decision]:
        found = []
        while due := self.scheduler.decide():
            self.scheduler.apply(due[0])
            found.append(due[0])
        return found


def told(decisions: list[Decision]) -> list[tuple[int, str]]:
    """Number of the trial and action of each."""
    return [(int(decision.trial[1:]), decision.action) for decision in decisions]
