"""What stands between the decisions and those who carry them out: what is known beforehand, what reaches into the
workers, and how a group or a run is ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pliant.elastic.budget import Cause
from pliant.elastic.policy import Limits
from pliant.elastic.settings import ElasticSettings
from pliant.errors import PliantError


@dataclass(frozen=True)
class Control:
    """What the decisions need to know; travels to the controller's process.

    Attributes:
        resources: what one worker asks for.
        steps: last step of the run.
        tell: leaves notes for the driver.
        stop_asked: whether somebody wants the run to stop.
        committed_step: step of the run's newest committed checkpoint, None where there is none.
        patience_s: longest that a worker may wait for storage.
        warm_up: imports what a worker needs.
        reserved: a placement group with a bundle for each worker, for a single group: whatever ends it, who reserved
            its place decides what comes next. None: groups are placed, and come back, as is decided here.
    """

    elastic: ElasticSettings
    resources: Mapping[str, float]
    lanes: int
    steps: int
    tell: Callable[[list[dict[str, Any]]], object]
    stop_asked: Callable[[], bool]
    committed_step: Callable[[], int | None]
    patience_s: float
    warm_up: Callable[[], None]
    reserved: Any = None

    @property
    def limits(self) -> Limits:
        own = self.elastic
        most = min(own.max_workers, self.lanes)
        return Limits(self.lanes, min(own.min_workers, most), most, own.settle, own.resize_interval)


class Hand(ABC):
    """Reaches into the workers of the group that runs."""

    @abstractmethod
    def ask(self, function: Callable[..., Any], *args: Any, timeout_s: float) -> dict[int, Any]:
        """Calls a function in every worker's process; answers by rank, of those that gave one in time."""

    @abstractmethod
    def ask_later(self, rank: int, function: Callable[..., Any]) -> Any:
        """Begins a call in one worker."""

    @abstractmethod
    def answer(self, call: Any) -> tuple[bool, Any]:
        """Whether it has ended, and its answer; None where it failed."""

    @abstractmethod
    def keep_spares(self, wanted: Mapping[str, int]) -> bool:
        """Has so many processes stand by on each node; whether all of them are ready."""

    @abstractmethod
    def silent_since(self) -> dict[int, float]:
        """Ranks that owe an answer, and since when (monotonic seconds)."""


class EndGroup(Exception):
    """The group has to be ended from outside."""

    def __init__(self, cause: Literal["preemption", "infrastructure"], text: str) -> None:
        super().__init__(text)
        self.cause, self.text = cause, text


class StopAsked(Exception):
    """The run is to stop, and no group runs that could do so."""


class LostGroupError(PliantError):
    """A group in a reserved place has ended before its work was done."""

    def __init__(self, cause: Cause, text: str) -> None:
        super().__init__("elastic.lost-group", text)
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return (LostGroupError, (self.cause, self.message))
