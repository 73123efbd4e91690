"""What ends a run: how many failures of which kind it bears. Pure.

| cause | costs |
|---|---|
| preemption, resize | nothing |
| infrastructure | one of ``max_failures`` |
| user | nothing the first time, if the driver has completed a step; the same at the same step again is the end |
| any of them | one of ``max_without_checkpoint`` in a row, unless a checkpoint was committed since the last one |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pliant.errors import EXIT_INFRASTRUCTURE, EXIT_STOPPED, EXIT_USER

Cause = Literal["preemption", "resize", "infrastructure", "user"]


@dataclass(frozen=True)
class Failure:
    """Why a group ended before the run was done.

    Attributes:
        text: for people, one line.
        step: the one that it was at; None before the first.
        signature: of a user error its type and message; ``oom`` for a process that was killed for its memory.
    """

    cause: Cause
    text: str
    step: int | None
    signature: str = ""


@dataclass(frozen=True)
class Retry:
    """Start again. ``text`` says what is left of the budget that paid for it; empty where nothing did."""

    text: str = ""


@dataclass(frozen=True)
class Stop:
    """Give up. ``text`` has what happened, a line each."""

    exit_code: int
    text: str


@dataclass(frozen=True)
class Budget:
    """What a run still bears; one for each start of a driver.

    Attributes:
        max_failures: losses of workers and machines that are borne.
        max_without_checkpoint: attempts in a row that may end without a newly committed checkpoint.
        committed_step: of the newest committed checkpoint when the last failure was charged, or when the driver
            started; None: none.
        failures: losses so far.
        fruitless: the latest failures in a row without a newly committed checkpoint between them, oldest first.
        errors: signature and step of each user error so far.
    """

    max_failures: int
    max_without_checkpoint: int
    committed_step: int | None = None
    failures: int = 0
    fruitless: tuple[Failure, ...] = ()
    errors: frozenset[tuple[str, int | None]] = frozenset()

    def charge(self, failure: Failure, *, committed_step: int | None, progressed: bool) -> tuple[Budget, Retry | Stop]:
        """Charges the end of a group.

        Args:
            committed_step: of the run's newest committed checkpoint now; None: none.
            progressed: a step was completed since the driver started.

        Returns:
            what is left, and what to do.
        """
        committed = committed_step is not None and (self.committed_step is None or committed_step > self.committed_step)
        error = (failure.signature, failure.step)
        user, lost = failure.cause == "user", failure.cause == "infrastructure"
        after = replace(
            self,
            # Damage may have taken the newest one: what counts is whether this attempt added to what it found.
            committed_step=committed_step,
            failures=self.failures + lost,
            fruitless=() if committed else (*self.fruitless, failure),
            errors=self.errors | {error} if user else self.errors,
        )
        if user and error in self.errors:
            return after, Stop(EXIT_USER, f"the same error twice {_at(failure)}: {failure.text}")
        if user and not progressed:
            return after, Stop(EXIT_USER, failure.text)
        if len(after.fruitless) >= self.max_without_checkpoint:
            return after, Stop(EXIT_STOPPED, after._without_checkpoint())
        if after.failures > self.max_failures:
            times = "once" if after.failures == 1 else f"{after.failures} times"
            text = f"workers or machines were lost {times}, elastic.max_failures is {self.max_failures}"
            return after, Stop(EXIT_INFRASTRUCTURE, f"{text}; at last {_at(failure)}: {failure.text}")
        if lost:
            return after, Retry(f"{after.failures} of {self.max_failures} elastic.max_failures")
        return after, Retry("tried again once" if user else "")

    def _without_checkpoint(self) -> str:
        count = len(self.fruitless)
        lines = [f"\n  {failure.cause} {_at(failure)}: {failure.text}" for failure in self.fruitless]
        return f"{count} attempt{'s' * (count > 1)} in a row ended without a new checkpoint:{''.join(lines)}"


def _at(failure: Failure) -> str:
    return "before the first step" if failure.step is None else f"at step {failure.step}"
