"""The process of a sweep's legs, and what it shares with the sweep's driver; with Ray Tune's class for that.

Leg.step: the next report, or the end ─► driver        bulletin: progress to the driver, wishes to the legs
Leg.reply ◄─ what becomes of it                         questions: reports of a trial of several workers
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray.tune import Trainable

from pliant.elastic.nodes import drains
from pliant.observe.board import STOP, Note
from pliant.settings import RunConfig
from pliant.train.reports import Ask
from pliant.train.work import WorkSpec
from pliant.train.worker import in_thread, run_workers
from pliant.tune.trial import Exchange, LegSpec, Outcome, run_leg

EVENT = "pliant"
"""Under this key ``step`` returns a ``Reached``, or the leg's ``Outcome``."""
_NOTICES_S = 0.5
_QUESTIONS_S = 0.5


@dataclass(frozen=True)
class Reached:
    """What a leg reports: samples, values of its evaluation by metric, and worker-seconds since its last report."""

    samples: int
    values: Mapping[str, float]
    worker_seconds: float


class Bulletin:
    """An actor that has the driver's wishes for the legs. What they tell of their progress stands in their records."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all = 0
        self._wishes: dict[str, int] = {}

    def wishes(self, key: str) -> int:
        """Those for a leg so far."""
        with self._lock:
            return self._all | self._wishes.get(key, 0)

    def request(self, wish: int, key: str | None = None) -> None:
        """Wishes something of a leg, or of all of them."""
        with self._lock:
            if key is None:
                self._all |= wish
            else:
                self._wishes[key] = self._wishes.get(key, 0) | wish


class RemoteBulletin:
    """The bulletin as the driver and the legs hold it."""

    def __init__(self) -> None:
        here = ray.get_runtime_context().get_node_id()
        self._actor = ray.remote(
            num_cpus=0, label_selector={"ray.io/node-id": here}, max_concurrency=16
        )(Bulletin).remote()  # fmt: skip

    def wishes(self, key: str) -> int:
        return int(ray.get(self._actor.wishes.remote(key)))

    def request(self, wish: int, key: str | None = None) -> None:
        ray.get(self._actor.request.remote(wish, key))


class Questions:
    """An actor between the first worker of a trial's group and the process of its leg: reports, and their answers."""

    def __init__(self) -> None:
        self._reports: queue.Queue[tuple[int, Mapping[str, float], float]] = queue.Queue()
        self._answers: queue.Queue[bool] = queue.Queue()

    def ask(self, samples: int, values: Mapping[str, float], worker_seconds: float) -> bool:
        """Makes a report and waits for the answer."""
        self._reports.put((samples, values, worker_seconds))
        return self._answers.get()

    def next(self) -> tuple[int, Mapping[str, float], float] | None:
        """The next report; None when there is none for a while."""
        try:
            return self._reports.get(timeout=_QUESTIONS_S)
        except queue.Empty:
            return None

    def answer(self, goes_on: bool) -> None:
        """Answers the last report."""
        self._answers.put(goes_on)


@dataclass(frozen=True)
class RemoteQuestions:
    """The questions as the worker and the leg hold them."""

    actor: Any

    def ask(self, samples: int, values: Mapping[str, float], worker_seconds: float) -> bool:
        return bool(ray.get(self.actor.ask.remote(samples, dict(values), worker_seconds)))


@dataclass(frozen=True)
class LegBoard:
    """The bulletin as a leg's workers see it."""

    bulletin: RemoteBulletin
    key: str

    def exchange(self, notes: list[Note]) -> int:
        return self.bulletin.wishes(self.key)


class Leg(Trainable):
    """The process of legs, one after the other. ``step`` returns at the leg's next report, or at its end."""

    def setup(self, config: dict[str, Any]) -> None:
        self._thread: threading.Thread | None = None
        self._events: queue.Queue[Reached | Outcome] = queue.Queue()
        self._answers: queue.Queue[bool] = queue.Queue()
        self._goes_on = True

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._leave()
        self.setup(new_config)
        return True

    def reply(self, goes_on: bool) -> None:
        """What becomes of the leg after the report that ``step`` has returned."""
        self._goes_on = goes_on

    def step(self) -> dict[str, Any]:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pliant-leg", daemon=True)
            self._thread.start()
        else:
            self._answers.put(self._goes_on)
        event = self._events.get()
        if isinstance(event, Outcome):
            self._thread.join()
            return {EVENT: event, "done": True}
        return {EVENT: event}

    def cleanup(self) -> None:
        self._leave()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None

    def _run(self) -> None:
        spec: LegSpec = self.config["leg"]
        bulletin: RemoteBulletin = self.config["bulletin"]
        board = LegBoard(bulletin, self.config["key"])
        if spec.workers > 1:
            self._events.put(run_leg(spec, self._ask, board.exchange, partial(self._group, spec, board)))
            return
        with _Notices(board.exchange) as notices:
            outcome = run_leg(spec, self._ask, notices.exchange)
        if outcome.cause == "stopped" and notices.come:
            outcome = Outcome("lost", "preemption", "its machine goes away")
        self._events.put(outcome)

    def _group(self, spec: LegSpec, board: LegBoard, config: RunConfig, job: WorkSpec, ask: Ask) -> None:
        """Runs the workers in the bundles of the leg's own placement group, which has one for each of them."""
        elastic = config.elastic.model_copy(
            update={"min_workers": spec.workers, "max_workers": spec.workers, "spares": False}
        )
        reading = config.data.model_copy(update={"reader": "local"})
        config = config.model_copy(update={"elastic": elastic, "data": reading})
        actor = ray.remote(num_cpus=0, max_concurrency=4)(Questions).remote()
        questions = RemoteQuestions(actor)
        thread, box = in_thread(
            run_workers, config, job, lanes=config.data.lanes, board=board, ask=questions.ask,
            reserved=ray.util.get_current_placement_group(),
        )  # fmt: skip
        try:
            while thread.is_alive():
                if (report := ray.get(actor.next.remote())) is not None:
                    ray.get(actor.answer.remote(ask(*report)))
        finally:
            ray.kill(actor)
        if (error := box.get("error")) is not None:
            raise error

    def _ask(self, samples: int, values: Mapping[str, float], worker_seconds: float) -> bool:
        self._events.put(Reached(samples, dict(values), worker_seconds))
        return self._answers.get()

    def _leave(self) -> None:
        """Ends a leg whose end nobody has waited for: the driver has given up on it."""
        if self._thread is not None and self._thread.is_alive():
            self._answers.put(False)
            self._thread.join(5.0)


class _Notices:
    """Has the leg leave with a checkpoint when its machine goes away.

    Args:
        exchange: hands over notes and returns wishes.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._ended = threading.Event()
        self.come = False
        self._thread = threading.Thread(target=self._watch, name="pliant-notices", daemon=True)

    def __enter__(self) -> _Notices:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def exchange(self, notes: list[Note]) -> int:
        """Notes and wishes, those of the machine among them."""
        return (STOP if self.come else 0) | self._exchange(notes)

    def _watch(self) -> None:
        here = ray.get_runtime_context().get_node_id()
        while not self._ended.wait(_NOTICES_S):
            with suppress(Exception):  # the control service does not answer just now
                self.come = self.come or drains(here)
