"""The agent of a node: starts its raylet, listens for what ends the machine, and makes Ray leave in time.

```
sources (a thread each) ─┐
signals ─────────────────┼─► one queue ─► the main thread: raylet, drain, acknowledgement, next start
answers of the cluster ──┘
```

All state belongs to the main thread; what others have to say is a call that they put into the queue. A drain in Ray
cannot be taken back, and a drained raylet ends as soon as it is idle. So a machine that survives gets a new raylet,
which joins as new capacity, and what runs goes on either way.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from pliant.cluster import draining
from pliant.cluster.notices import MetadataError, Notice, NoticeSource, Say, watch
from pliant.cluster.raylet import Raylet, shown
from pliant.cluster.respawn import Backoff, differs, most_urgent
from pliant.errors import PliantError

Find = Callable[[Say, threading.Event], Sequence[NoticeSource]]
"""Blocks until it knows what to ask on this machine."""

_TICK_S = 0.5
_JOINING_TICK_S = 0.1
_DRAIN_AGAIN_S = 2.0
_STOP_PATIENCE_S = 5.0
_ASKED_BY_OTHERS_S = 30.0  # an autoscaler that lets a node go takes its machine next
_SETTLE_S = 2.5  # `ray start` looks at its processes once a second
_DEADLINE_IS_NEAR_S = 2.0
_STOP = (signal.SIGTERM, signal.SIGINT)
_FORWARDED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def log(text: str) -> None:
    """One event on stderr, with its time."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    sys.stderr.write(f"{now} notice-agent: {text}\n")
    sys.stderr.flush()


class NoticeAgent:
    """One raylet, kept running, drained when its machine goes away.

    Args:
        command: ``ray start …``; ``--block`` is added where it is missing.
        sources: what is asked for notices.
        find: finds further sources, in a thread.
        grace_s: how long the node may take to become idle after SIGTERM.
        respawn_after_s: before a raylet that ended is started again; doubled while it does not last, up to 60 s.
        respawn: False: end with the raylet, with its exit code; for where something else starts it again.
        join_timeout_s: for the cluster to answer, and for the node to join it.
        say: takes the lines of the log.
    """

    def __init__(
        self,
        command: Sequence[str],
        sources: Sequence[NoticeSource] = (),
        *,
        find: Find | None = None,
        grace_s: float = 25.0,
        respawn_after_s: float = 1.0,
        respawn: bool = True,
        join_timeout_s: float = 120.0,
        say: Say = log,
    ) -> None:
        self._command = list(command)
        self._sources = tuple(sources)
        self._find = find
        self._grace_s = grace_s
        self._respawn = respawn
        self._join_timeout_s = join_timeout_s
        self._say = say
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._notices: dict[str, tuple[NoticeSource, Notice]] = {}  # by source
        self._acknowledged: set[str] = set()
        self._backoff = Backoff(respawn_after_s)
        self._next_start = 0.0
        self._may_start = False  # not before the cluster has said that we may drain
        self._ever_joined = False
        self._raylet: Raylet | None = None
        self._started = 0.0
        self._asked_to_join = False
        self._joined = False
        self._asked_to_drain = False
        self._told: tuple[float | None] | None = None  # the deadline that Ray knows; None: it was told of none
        self._drain_after = 0.0
        self._stop_at: float | None = None
        self._hurry = False
        self._zombie: int | None = None
        self._failure: PliantError | None = None

    def run(self) -> int:
        """Runs until SIGTERM or SIGINT, and returns the exit code: 0, or the raylet's without ``respawn``.

        To be called on the main thread of a process of its own: signals are handled, and children are reaped that
        others leave to this process.

        Raises:
            PliantError: ``cluster.token`` (this node may not drain itself), ``cluster.unreachable``,
                ``cluster.not-joined`` (the first raylet did not come up). Later it is tried again instead.
        """
        with self._signals():
            try:
                self._begin()
                while (code := self._step(time.time())) is None:
                    self._wait()
                return code
            finally:
                self._ending.set()
                if self._raylet is not None:
                    self._raylet.stop(patience_s=_STOP_PATIENCE_S)

    def _begin(self) -> None:
        address = address_of(self._command)
        if address:  # known before the raylet is: a wrong token shows at once, not after Ray's own 20 s
            self._ask(lambda: draining.prove(address, within_s=self._join_timeout_s), self._proved)
        else:
            self._may_start = True
        for source in self._sources:
            self._listen(source)
        if self._find is not None:
            threading.Thread(target=self._search, args=(self._find,), daemon=True).start()

    def _wait(self) -> None:
        joining = self._raylet is not None and not self._joined
        with suppress(queue.Empty):
            self._queue.get(timeout=_JOINING_TICK_S if joining else _TICK_S)()
            while True:
                self._queue.get_nowait()()

    def _step(self, now: float) -> int | None:
        """One look at everything. The exit code, if it is time to end."""
        if self._failure is not None:
            raise self._failure
        self._reap()
        self._forget_survived(now)
        code = self._look(now)
        if self._stop_at is not None:
            if self._raylet is None:
                return 0
            if self._hurry or not self._joined or now >= self._stop_at:
                self._raylet.stop(patience_s=0.0 if self._hurry else _STOP_PATIENCE_S)
                self._raylet = None
                self._say("stopped")
                return 0
        elif code is not None and not self._respawn:
            return code
        self._drain(now)
        self._acknowledge(now)
        self._start(now)
        return None

    # ------------------------------------------------------------ the raylet
    def _start(self, now: float) -> None:
        waits = self._notices or self._stop_at is not None or now < self._next_start
        if self._raylet is None and self._may_start and not waits:
            self._say(f"starting {shown(self._command)}")
            self._raylet, self._started = Raylet(self._command), now
            self._asked_to_join = self._joined = False
            self._told = None

    def _look(self, now: float) -> int | None:
        """Sees whether the raylet has come up, or ended: then its exit code."""
        raylet = self._raylet
        if raylet is None:
            return None
        node = raylet.look()
        if node is not None and not self._asked_to_join:
            self._asked_to_join = True
            left_s = self._started + self._join_timeout_s - now
            self._ask(
                lambda: draining.prove(node.controller, node_id=node.id, within_s=left_s),
                lambda error: self._has_joined(raylet, error),
            )
        code = raylet.ended(settle_s=0.0 if self._told else _SETTLE_S)
        if code is None:
            if node is None and now > self._started + self._join_timeout_s:
                self._give_up(self._not_joined(f"`ray start` has no raylet after {self._join_timeout_s:.0f} s"))
            return None
        raylet.stop(patience_s=_STOP_PATIENCE_S)
        self._raylet = None
        if not self._ever_joined and self._stop_at is None:
            raise self._not_joined(f"`ray start` ended with {code} before its node had joined")
        if self._told:
            self._say("the node is drained, its raylet has ended")
            self._backoff = self._backoff.fresh()
            wait_s = self._backoff.wait_s
        elif code == 0:
            self._say("the raylet was made to end by somebody else (the autoscaler, `ray stop`, a drain)")
            wait_s = max(_ASKED_BY_OTHERS_S, self._backoff.first_s)
        else:
            self._say(f"the raylet ended by itself (`ray start`: {code})")
            self._backoff = self._backoff.after(now - self._started)
            wait_s = self._backoff.wait_s
        self._next_start = now + wait_s
        if self._respawn and self._stop_at is None and not self._notices:
            self._say(f"the next one starts in {wait_s:.0f} s")
        return code

    def _has_joined(self, raylet: Raylet, error: PliantError | None) -> None:
        if self._raylet is not raylet or self._stop_at is not None:
            return
        if error is not None:
            self._give_up(error)
        elif raylet.node is not None:
            self._joined = self._ever_joined = True
            self._say(f"node {raylet.node.id[:8]} has joined {raylet.node.controller}; this agent may drain it")

    def _give_up(self, error: PliantError) -> None:
        """The raylet of now is no use: at first that is the user's to mend, later it is tried again."""
        if not self._ever_joined:
            self._failure = error
        elif self._raylet is not None:
            self._say(str(error))
            self._raylet.stop(patience_s=_STOP_PATIENCE_S)

    def _proved(self, error: PliantError | None) -> None:
        self._failure, self._may_start = error, error is None

    def _not_joined(self, message: str) -> PliantError:
        hint = "what `ray start` said stands above; its logs are in the session's directory"
        return PliantError("cluster.not-joined", message, hint=hint, location=shown(self._command))

    # ------------------------------------------------------------ notices
    def _listen(self, source: NoticeSource) -> None:
        def changed(notice: Notice | None) -> None:
            self._queue.put(lambda: self._heard(source, notice))

        arguments = (source, changed, self._say, self._ending)
        threading.Thread(target=watch, args=arguments, name=source.name, daemon=True).start()

    def _search(self, find: Find) -> None:
        for source in find(self._say, self._ending):
            self._listen(source)

    def _heard(self, source: NoticeSource, notice: Notice | None) -> None:
        if notice is None:
            if self._notices.pop(source.name, None) is not None:
                what = "a new raylet starts when the drained one has ended" if self._told else "nothing was done yet"
                self._say(f"{source.name}: the notice is withdrawn; {what}")
            return
        self._notices[source.name] = (source, notice)
        left = "its time is not known" if notice.deadline is None else f"{notice.deadline - time.time():.0f} s left"
        self._say(f"notice: {notice.text}, {left}")

    def _forget_survived(self, now: float) -> None:
        for name, (_, notice) in list(self._notices.items()):
            if notice.is_over(now):
                del self._notices[name]
                self._say(f"this machine has survived: {notice.text}")

    def _drain(self, now: float) -> None:
        raylet, notice = self._raylet, most_urgent(notice for _, notice in self._notices.values())
        if raylet is None or raylet.node is None or not self._joined or (notice is None and self._stop_at is None):
            return
        deadline = notice.deadline if notice is not None else None
        if self._stop_at is not None:
            deadline = self._stop_at if deadline is None else min(deadline, self._stop_at)
        text = notice.text if notice is not None else "the node's agent was told to stop"
        told = self._told is not None and not differs(self._told[0], deadline)
        if told or self._asked_to_drain or now < self._drain_after:
            return
        node = raylet.node
        self._asked_to_drain = True
        self._ask(
            lambda: draining.drain(node.controller, node.id, text=text, deadline=deadline),
            lambda error: self._has_drained(raylet, deadline, error),
        )

    def _has_drained(self, raylet: Raylet, deadline: float | None, error: PliantError | None) -> None:
        self._asked_to_drain = False
        if self._raylet is not raylet or raylet.node is None:
            return
        if error is not None:
            self._drain_after = time.time() + _DRAIN_AGAIN_S
            self._say(f"node {raylet.node.id[:8]} could not be drained, tried again: {error}")
            return
        self._told = (deadline,)
        left = "no deadline" if deadline is None else f"{deadline - time.time():.0f} s left"
        self._say(f"node {raylet.node.id[:8]} drains, {left}")

    def _acknowledge(self, now: float) -> None:
        for source, notice in self._notices.values():
            near = notice.deadline is not None and now > notice.deadline - _DEADLINE_IS_NEAR_S
            if notice.id and notice.id not in self._acknowledged and (self._raylet is None or near):
                self._acknowledged.add(notice.id)
                threading.Thread(target=self._tell, args=(source, notice), daemon=True).start()

    def _tell(self, source: NoticeSource, notice: Notice) -> None:
        try:
            source.acknowledge(notice)
        except MetadataError as error:
            self._say(f"{source.name}: event {notice.id} could not be acknowledged ({error}); it comes at its time")

    # ------------------------------------------------------------ processes
    def _ask(self, call: Callable[[], None], then: Callable[[PliantError | None], None]) -> None:
        """Calls in a thread; what comes of it is told on the main one."""

        def work() -> None:
            try:
                call()
            except PliantError as error:
                failure = error
                self._queue.put(lambda: then(failure))
            else:
                self._queue.put(lambda: then(None))

        threading.Thread(target=work, daemon=True).start()

    def _reap(self) -> None:
        """Reaps what others left to this process, as the first of a container has to.

        The agent's own children are waited for by who started them: whoever is still there at the next look is none.
        """
        own = self._raylet.pid if self._raylet is not None else None
        with suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if found.si_pid == own or found.si_pid != self._zombie:
                    self._zombie = found.si_pid
                    return
                os.waitpid(found.si_pid, 0)
        self._zombie = None

    @contextmanager
    def _signals(self) -> Iterator[None]:
        handlers = dict.fromkeys(_STOP, self._on_stop) | dict.fromkeys(_FORWARDED, self._on_other)
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_stop(self, number: int, frame: object) -> None:
        self._queue.put(lambda: self._told_to_stop(signal.Signals(number).name))

    def _on_other(self, number: int, frame: object) -> None:
        self._queue.put(lambda: self._raylet.forward(number) if self._raylet is not None else None)

    def _told_to_stop(self, name: str) -> None:
        if self._stop_at is not None:
            self._say(f"{name} again: at once")
            self._hurry = True
            return
        self._stop_at = time.time() + self._grace_s
        self._say(f"{name}: the node is drained, and stopped in {self._grace_s:.0f} s at the latest")


def address_of(command: Sequence[str]) -> str:
    """The host:port that ``ray start`` is to join; empty where it starts a head, or finds the address itself."""
    for word, following in zip(command, [*command[1:], ""], strict=True):
        value = word.partition("=")[2] if word.startswith("--address=") else following if word == "--address" else ""
        if value.rpartition(":")[2].isdecimal():
            return value
    return ""
