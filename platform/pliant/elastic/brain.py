"""Carries out what the pure parts decide: it looks at nodes and workers, asks the policy, and asks the workers.

```
nodes.look ─┐                                    ┌─► Hand: calls into the workers' gates
gate.Report ┴► policy.running ─ keep, leave, abandon ┴─► EndGroup ─┐
errors of ranks ─► causes.explain ─────────────────────────────────┴► budget.charge ─► again, or the verdict
```
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pliant.elastic import causes, gate, policy
from pliant.elastic.budget import Budget, Failure, Stop
from pliant.elastic.control import Control, EndGroup, Hand, LostGroupError, StopAsked
from pliant.elastic.gate import Report
from pliant.elastic.nodes import Nodes, going, look, named
from pliant.elastic.policy import Abandon, Group, Leave, Memory, Node, Progress, Start, Wait
from pliant.elastic.silence import Silence
from pliant.elastic.timeline import Timeline
from pliant.elastic.watchdog import Watchdog
from pliant.errors import EXIT_STOPPED, EXIT_USER, BudgetError, PliantError

LOOK_EVERY_S = 0.5
WAIT_S = 0.5
"""Between two looks at the nodes, while a group runs and while machines are waited for."""
_ANSWER_S = 2.0
_HOLD_S = 6.0
"""How long ranks may take to answer when they are asked to leave."""
_TOLD_S = 10.0
_CULPRIT_S = 1.0
"""How long is waited for the other ranks to say that they left; and for the one whose loss the others have noticed."""
_LAST_WORDS_S = 1.0
"""How long the ranks of a group that has ended may take to say how far they had come."""
_LATE_S = 0.3
"""Before a deadline, for ending a group that has not left."""
_STEADY_S = 3.0
"""After its first step, before processes are started that stand by: they would slow down what is hurried."""
_READY_S = 20.0
"""How long growing waits for processes that stand by."""
_RESTART_S = 15.0
"""What a restart costs before one was seen."""


@dataclass
class _Leaving:
    """A group that was asked to leave."""

    decision: Leave
    since: float
    tick: int | None = None
    told: frozenset[int] = frozenset()


class Brain:
    """One for each start of a driver; lives in the controller's process.

    Args:
        hand: of the controller.
    """

    def __init__(self, control: Control, hand: Hand) -> None:
        self._control, self._hand = control, hand
        own = control.elastic
        self.timeline = Timeline()
        self.verdict: PliantError | None = None
        """What the run ends with, once it is to end."""
        self._budget = Budget(own.max_failures, own.max_failures_without_checkpoint, self._committed())
        self._watchdog = Watchdog(own.stall_timeout, control.patience_s)
        self._memory = Memory()
        self._nodes: Nodes | None = None
        self._looked_at = float("-inf")
        self._members: tuple[str, ...] = ()
        self._size_before = 0
        self._leaving: _Leaving | None = None
        self._report: Report | None = None
        self._reported_at = 0.0
        self._call: Any = None
        self._furthest = 0
        self._progressed = False
        self._silence = Silence()
        self._in_doubt = False
        self._free_only = False
        self._wanted_at: float | None = None
        self._waiting = ""
        self._first_error_at: float | None = None
        self._story = ""
        self._cause = ""
        self._restarts: list[float] = []

    # ------------------------------------------------------------ no group

    def idle(self) -> Start | Wait:
        """What to do while no group runs.

        Raises:
            StopAsked: nothing; the run waits for machines, and somebody wants it to stop.
        """
        if self._control.reserved is not None:
            self.timeline.mark("placement")
            return Start(self._control.limits.max_workers, ())
        nodes = look(self._control.resources, free=self._free_only)
        if self._in_doubt:
            self._silence.ask({node.id: nodes.addresses[node.id] for node in nodes.nodes if node.room})
        decision = policy.idle(nodes.without(self._silence.lost), self._control.limits)
        if isinstance(decision, Wait):
            if decision.reason != self._waiting:
                self._waiting = decision.reason
                self._tell("waiting", f"waiting for machines: {decision.reason}")
            if self._stop_asked():
                raise StopAsked
            self.timeline.mark("waiting")
            time.sleep(WAIT_S)
            return decision
        self._in_doubt = bool(self._silence.lost)
        self._waiting = ""
        self.timeline.mark("placement")
        return decision

    def started(self, nodes: tuple[str, ...]) -> None:
        """A group has been started; ``nodes`` has the node of each rank."""
        self._members = nodes
        self._leaving = self._report = self._call = self._first_error_at = self._wanted_at = None
        self._silence.begin()
        self._free_only = False
        self._watchdog.begin()
        self.timeline.mark("load")

    def not_started(self, error: BaseException, *, timed_out: bool) -> bool:
        """A group could not be started; whether to try again."""
        if timed_out and self._control.reserved is None:
            # Others hold what was counted on: count what is free, and wait if that is too little.
            self._free_only = True
            self._tell("failure", "the nodes did not give the workers their resources in time", cause="infrastructure")
            return True
        self._in_doubt = True
        inner = getattr(error, "cause", None) or error  # of a call, what it raised
        first = f"{type(inner).__name__}: {inner}".partition("\n")[0]
        return self._charge(Failure("infrastructure", f"workers could not be started: {first}", None), None)

    # ------------------------------------------------------------ a group runs

    def running(self) -> None:
        """Looks after the group; call it several times a second.

        Raises:
            EndGroup: it has to be ended from outside.
        """
        now = time.monotonic()
        self._hear(now)
        self._watch(now)
        if self._leaving is not None:
            self._press()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        self._nodes = look(self._control.resources)
        group = Group(self._members, self._report is not None and self._report.phase != "starting")
        nodes = self._nodes.without(self._silence.lost)
        limits = self._control.limits
        decision, memory = policy.running(time.time(), nodes, group, self._progress(), limits, self._memory)
        ready = self._stand_by(nodes)
        if not (isinstance(decision, Leave) and decision.cause == "resize"):
            self._wanted_at = None
        elif self._waits_to_grow(ready, now):
            return  # as if nothing had been decided
        self._memory = memory
        if isinstance(decision, Abandon):
            raise EndGroup(decision.cause, decision.text)
        if isinstance(decision, Leave):
            self._leave(decision)

    def _stand_by(self, nodes: Sequence[Node]) -> bool:
        """Keeps a process ready for each place that a next group may take, once this one is under way; whether all are
        ready, or none are wanted."""
        if not self._control.elastic.spares or self._control.resources.get("GPU"):
            return True
        if self._report is None or (self._report.stepped_s or 0.0) < _STEADY_S:
            return False
        return self._hand.keep_spares(policy.places(nodes, self._members, self._control.limits))

    def _waits_to_grow(self, ready: bool, now: float) -> bool:
        """Whether growing is put off: until a recovery is over, and until processes stand by on the new nodes, too. The
        run trains on meanwhile, and stands still for the shorter."""
        if self.timeline.active:
            return True
        self._wanted_at = self._wanted_at or now
        if not ready and now - self._wanted_at < _READY_S:
            return True
        self._wanted_at = None
        return False

    def hears_more(self, errors: Mapping[int, BaseException], *, finished: bool) -> bool:
        """Whether to wait for what the other ranks have to say before these errors are judged."""
        now = time.monotonic()
        self._first_error_at = self._first_error_at or now
        waited_s = now - self._first_error_at
        if causes.left(errors):
            return not finished and waited_s < _TOLD_S
        only_noticed = all(causes.only_noticed(error) for error in errors.values())
        return only_noticed and not finished and waited_s < _CULPRIT_S

    def _hear(self, now: float) -> None:
        """Takes rank 0's report when it has come, and asks for the next."""
        if self._call is not None:
            ended, report = self._hand.answer(self._call)
            if not ended:
                return
            self._call = None
            if isinstance(report, Report):
                self._take(report, now)
        self._call = self._hand.ask_later(0, gate.report)

    def _take(self, report: Report, now: float) -> None:
        self._report, self._reported_at = report, now
        if report.stepped_s is not None:
            self._progressed = True
        if self.timeline.active and report.open_s is not None and self._leaving is None:
            self._follow(report)
        self._furthest = max(self._furthest, report.step)

    def _follow(self, report: Report, *, over: bool = False) -> None:
        """A group that recovers: how far is it? ``over``: it is done, and has nothing more to do."""
        if self.timeline.part == "load":
            self.timeline.mark("first_step", ago_s=report.open_s or 0.0)
        if report.stepped_s is not None and self.timeline.part == "first_step":
            self.timeline.mark("replay", ago_s=report.stepped_s)
        if over or (report.stepped_s is not None and report.step > self._furthest):
            lost = max(self._furthest - report.first_step, 0)
            ago_s = max(report.step - self._furthest - 1, 0) * (report.step_s or 0.0) + report.idle_s
            parts = self.timeline.end(ago_s=ago_s)
            self._restarts = [*self._restarts[-4:], parts["total"]]
            before, after = self._size_before, len(self._members)
            size = f"{before}→{after} workers" if before != after else f"{after} worker{'s' * (after > 1)}"
            text = f"{size}: {self._story}; from step {report.first_step}, {lost} steps lost"
            self._tell(
                "recovered", f"{text}, training again after {parts['total']:.1f} s",
                cause=self._cause, steps_lost=lost, workers_before=before, workers=after, seconds=parts,
            )  # fmt: skip

    def _watch(self, now: float) -> None:
        """Raises EndGroup for a node that is gone, and for a group that stands still."""
        self._look_for_silence(now)
        stalled = self._watchdog.check(self._report, now - self._reported_at if self._report else 0.0)
        if stalled:
            stacks = self._hand.ask(gate.dump_stacks, timeout_s=3.0)
            places = [f"rank {rank} in {place}" for rank, place in sorted(stacks.items()) if place]
            places += [f"rank {r} does not answer" for r in range(len(self._members)) if r not in stacks]
            self._in_doubt = True
            raise EndGroup("infrastructure", f"{stalled}: {'; '.join(places[:8]) or 'no rank says where it stands'}")

    def _look_for_silence(self, now: float) -> None:
        since = {rank: at for rank, at in self._hand.silent_since().items() if now - at > causes.SILENT_S}
        if self._report is not None:
            progress_at = self._reported_at - self._report.idle_s
            since = {rank: at for rank, at in since.items() if at > progress_at or rank == 0}
        suspects = {self._members[rank] for rank in since if rank < len(self._members)}
        gone = self._silence.look(suspects, self._nodes.addresses if self._nodes is not None else {})
        if gone:
            self._in_doubt = True
            ranks = ", ".join(str(rank) for rank, node in enumerate(self._members) if node in gone)
            longest_s = max(now - at for at in since.values())
            text = f"node {named(sorted(gone))}, rank {ranks}, does not answer for {longest_s:.0f} s"
            raise EndGroup("infrastructure", text)

    def _progress(self) -> Progress:
        report = self._report
        restart_s = sum(self._restarts) / len(self._restarts) if self._restarts else _RESTART_S
        if report is None:
            return Progress(self._control.steps, None, None, restart_s)
        return Progress(self._control.steps - report.step, report.step_s, report.save_s, restart_s)

    # ------------------------------------------------------------ leaving

    def _leave(self, decision: Leave) -> None:
        if self._leaving is None:
            self._leaving = _Leaving(decision, time.monotonic())
            self._begin_story(decision.cause, decision.text)
            self.timeline.begin("save")
            self._tell(decision.cause, f"{decision.text}: saving, then leaving", nodes=list(decision.nodes))
            self._press()
        elif decision.cause == "preemption" and self._leaving.decision.cause == "resize":
            self._leaving.decision = decision
        elif decision.deadline is not None:
            deadlines = [d for d in (decision.deadline, self._leaving.decision.deadline) if d is not None]
            self._leaving.decision = replace(self._leaving.decision, deadline=min(deadlines))

    def _press(self) -> None:
        """Goes on with asking the group to leave; ends it when the time is over."""
        leaving = self._leaving
        if leaving is None:
            return
        decision = leaving.decision
        if decision.deadline is not None and time.time() > decision.deadline - _LATE_S:
            raise EndGroup("preemption", f"{decision.text}: the time was over before the checkpoint was committed")
        ranks = frozenset(range(len(self._members)))
        if leaving.tick is None:
            ticks = self._hand.ask(gate.hold, timeout_s=_ANSWER_S)
            if frozenset(ticks) == ranks and None not in ticks.values():
                leaving.tick = max(ticks.values())
            elif time.monotonic() - leaving.since > _HOLD_S:
                self._give_up_leaving(decision)
                return
        if leaving.tick is not None and leaving.told != ranks:
            told = self._hand.ask(gate.stop_at, leaving.tick, decision.cause, timeout_s=_ANSWER_S)
            leaving.told |= frozenset(told)

    def _give_up_leaving(self, decision: Leave) -> None:
        if decision.cause == "preemption":
            raise EndGroup("preemption", f"{decision.text}, and not all workers answer")
        self._hand.ask(gate.release, timeout_s=_ANSWER_S)
        self._leaving = None

    # ------------------------------------------------------------ a group has ended

    def finished(self) -> None:
        """The run is done. One that came back shortly before has not yet said so."""
        self._last_words()
        if self.timeline.active and self._report is not None and self._leaving is None:
            self._follow(self._report, over=True)

    def ended(self, errors: Mapping[int, BaseException]) -> bool:
        """Judges the errors of a group's ranks; whether to start again. If not, ``verdict`` says why."""
        step = self._last_words()
        if self._leaving is not None and causes.left(errors):
            decision = self._leaving.decision
            return self._charge(Failure(decision.cause, decision.text, step), None, left=True)
        self._in_doubt = True
        gone: dict[int, str] = {}
        if self._nodes is not None:
            self._nodes = look(self._control.resources)  # of now: what is gone explains the errors
            gone = going(self._members, self._nodes.nodes, self._silence.lost)
        end = causes.explain(errors, step=step, gone=gone)
        if end.failure is None:
            self.verdict = end.error
            return False
        return self._charge(end.failure, end.error)

    def ended_by(self, end: EndGroup) -> bool:
        """Charges a group that was ended from outside; whether to start again."""
        self._in_doubt = True
        return self._charge(Failure(end.cause, end.text, self._last_words()), None)

    def _last_words(self) -> int | None:
        """The step that the group was at; None before it has begun. The newest report may be many steps old."""
        reports = [one for one in self._hand.ask(gate.report, timeout_s=_LAST_WORDS_S).values() if one is not None]
        if reports:
            self._take(max(reports, key=lambda report: (report.open_s is not None, report.step)), time.monotonic())
        return self._report.step + 1 if self._report is not None and self._report.open_s is not None else None

    def _charge(self, failure: Failure, error: PliantError | None, *, left: bool = False) -> bool:
        """Charges the end of a group to the budget; ``left``: it ended as it was asked to."""
        now = time.monotonic()
        if not left:
            idle_s = now - self._reported_at + self._report.idle_s if self._report is not None else 0.0
            self._begin_story(failure.cause, failure.text)
            self.timeline.begin("teardown", detection_s=idle_s if not self.timeline.active else 0.0)
        else:
            self.timeline.mark("teardown")
        self._leaving = self._report = None
        if self._control.reserved is not None:
            own_fault = failure.cause == "user" and error is not None
            self.verdict = error if own_fault else LostGroupError(failure.cause, failure.text)
            return False
        self._budget, what = self._budget.charge(failure, committed_step=self._committed(), progressed=self._progressed)
        if isinstance(what, Stop):
            hint = "look at the causes, then resume the run"
            stopped = what.exit_code == EXIT_STOPPED
            own = BudgetError("elastic.given-up", what.text, hint=hint)
            lost = PliantError("elastic.given-up", what.text, hint=hint)
            self.verdict = error if what.exit_code == EXIT_USER and error is not None else own if stopped else lost
            return False
        about = f" ({what.text})" if what.text else ""
        if not left:
            kind = "preemption" if failure.cause == "preemption" else "failure"
            self._tell(kind, f"{failure.text}: starting again{about}", cause=failure.cause)
        return True

    def _begin_story(self, cause: str, text: str) -> None:
        told = self._story if self.timeline.active else ""
        if text not in told:
            self._story = text if told in text else f"{told}; {text}"
        self._cause = cause
        if not self.timeline.active:
            self._size_before = len(self._members)

    def _committed(self) -> int | None:
        try:
            return self._control.committed_step()
        except PliantError:  # storage is away: nothing new that is known of
            return self._budget.committed_step if hasattr(self, "_budget") else None

    def _stop_asked(self) -> bool:
        try:
            return self._control.stop_asked()
        except Exception:
            return False  # as below

    def _tell(self, kind: str, text: str, **fields: Any) -> None:
        try:
            self._control.tell([{"kind": kind, "text": text, "time": round(time.time(), 3), **fields}])
        except Exception:
            return  # the driver is gone; so is everything here, in a moment
