"""What a tracker has to offer. All calls may raise anything; repeating one that failed is harmless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

NOTHING: Mapping[str, str] = MappingProxyType({})
Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True)
class Point:
    """One value of a metric. The same point, sent twice, counts once.

    Attributes:
        time_ms: milliseconds since 1970, written with the value and never changed.
    """

    key: str
    value: float
    step: int
    time_ms: int


@dataclass(frozen=True)
class Card:
    """What a run is created with.

    Attributes:
        run_id: Pliant's own identity of the run, by which it is found again.
        start_ms: milliseconds since 1970.
        parent: id in the tracker of the run that it belongs to.
        tags: that it has from the start.
    """

    run_id: str
    name: str
    experiment: str
    start_ms: int
    parent: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Counterpart:
    """What a tracker has of a run, values of metrics aside.

    Attributes:
        run_id: in the tracker.
        deleted: somebody has removed it.
        metrics: names of those that have values.
    """

    run_id: str
    status: str
    deleted: bool
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: frozenset[str]


@dataclass(frozen=True)
class DatasetCard:
    """One dataset that a run reads.

    Attributes:
        context: ``training`` or ``validation``.
        digest: of its manifest, 32 hex digits.
        schema: columns and their types.
        profile: numbers of rows, files, bytes.
    """

    context: str
    name: str
    digest: str
    uri: str
    schema: Mapping[str, str]
    profile: Mapping[str, int]


@dataclass(frozen=True)
class TrainedModel:
    """A model as it is logged.

    Attributes:
        module: torch.nn.Module on the CPU, in evaluation mode.
        inputs: NumPy array, or arrays by the names of its forward's arguments; None where it is not known.
        outputs: what forward made of them; None where it is no array.
        code: folders and files to put beside it, as they are imported.
        metadata: checkpoint and digests it comes from.
    """

    module: Any
    inputs: Any
    outputs: Any
    code: Sequence[Path]
    step: int
    metadata: Mapping[str, str]


class Tracker(Protocol):
    """One run in a tracking store."""

    def find(self, card: Card) -> str | None:
        """Id of the run that was made for this card; None when there is none."""
        ...

    def create(self, card: Card) -> str:
        """Makes a run; returns its id."""
        ...

    def drop(self, run_id: str) -> None:
        """Removes a run that was made twice."""
        ...

    def attach(self, run_id: str) -> None:
        """All further calls are about this run."""
        ...

    def look(self) -> Counterpart:
        """The run as it is now."""
        ...

    def children(self) -> list[Counterpart]:
        """The runs that belong to it, those that somebody has removed left out."""
        ...

    def of(self, run_id: str) -> Tracker:
        """The same store; its calls are about another run."""
        ...

    def set_status(self, status: Status, time_ms: int) -> None: ...
    def history(self, key: str) -> dict[tuple[int, int], float]:
        """Of a metric: value by step and time in ms."""
        ...

    def send(
        self,
        points: Sequence[Point],
        params: Mapping[str, str] = NOTHING,
        tags: Mapping[str, str] = NOTHING,
    ) -> None:
        """In one call: at most 1,000 points, 100 parameters and 100 tags, 1,000 in all."""
        ...

    def add_params(self, params: Mapping[str, str]) -> None: ...
    def set_tags(self, tags: Mapping[str, str]) -> None: ...
    def add_datasets(self, datasets: Sequence[DatasetCard]) -> None: ...
    def artifacts(self, folder: str) -> set[str]:
        """Paths of the artifacts in a folder."""
        ...

    def add_artifact(self, path: str, data: bytes) -> None: ...
    def add_model(self, model: TrainedModel) -> None: ...
    def register(self, name: str, alias: str, tags: Mapping[str, str]) -> int:
        """Makes the newest model that was added a version of a registered model, once; returns the version.

        Args:
            alias: that it gets unless a newer version has it.
            tags: of the version, with those of the model.
        """
        ...
