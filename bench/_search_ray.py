"""Ray Tune's own ASHA on a virtual clock: its scheduler object as it is, without a cluster."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from itertools import count, takewhile
from types import SimpleNamespace

from _search_curves import ETA, FIRST_RUNG, DataSet, Seen


def search_ray(data: DataSet, order: Sequence[str], *, slots: int) -> list[Seen]:
    """A search for the best learner, tried in this order."""
    from ray.tune.schedulers import AsyncHyperBandScheduler
    from ray.tune.schedulers.trial_scheduler import TrialScheduler

    first = max(1, round(data.rows / FIRST_RUNG))
    scheduler = AsyncHyperBandScheduler(
        "rows", "accuracy", "max", max_t=data.rows, grace_period=first, reduction_factor=ETA
    )
    rungs = [*takewhile(lambda rows: rows < data.rows, (first * ETA**k for k in count())), data.rows]
    waiting, running, history = deque(order), [], []
    seconds, rows, begun = 0.0, 0, count()

    def work(learner: str, rung: int) -> None:
        begin = rungs[rung - 1] if rung else 0
        spent = data.at(learner, rungs[rung])[1] - (data.at(learner, begin)[1] if begin else 0.0)
        heapq.heappush(running, (seconds + spent, next(begun), learner, rung))

    while waiting or running:
        while waiting and len(running) < slots:
            learner = waiting.popleft()
            scheduler.on_trial_add(None, SimpleNamespace(trial_id=learner))
            work(learner, 0)
        seconds, _, learner, rung = heapq.heappop(running)
        rows += rungs[rung] - (rungs[rung - 1] if rung else 0)
        accuracy = data.accuracy(learner, rungs[rung])
        history.append(Seen(seconds, rows, learner, rungs[rung], accuracy))
        result = {"rows": rungs[rung], "accuracy": accuracy}
        if scheduler.on_trial_result(None, SimpleNamespace(trial_id=learner), result) == TrialScheduler.CONTINUE:
            work(learner, rung + 1)
    return history
