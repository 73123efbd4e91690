"""The training state that is not a tensor: small, typed, versioned, the same on all ranks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pliant.data.plan import DataState
from pliant.errors import DamageError

STATE_VERSION = 2


@dataclass(frozen=True)
class TrainState:
    """Progress after ``step`` completed steps.

    Attributes:
        step: optimizer updates so far (skipped ones, on overflow, count).
        tokens: tokens seen so far.
        data: position in the stream.
        loss_scale: scale and steps since the last overflow, for float16.
        best: best value so far of the pipeline's main metric, None before the first evaluation.
        evaluated: step of the last evaluation, 0 before the first.
        metric: value of the main metric in that evaluation; None where it was not finite.
    """

    step: int
    tokens: int
    data: DataState
    loss_scale: tuple[float, int] = (65536.0, 0)
    best: float | None = None
    evaluated: int = 0
    metric: float | None = None
    version: int = field(default=STATE_VERSION)

    @property
    def measured(self) -> float | None:
        """The main metric of an evaluation after this very step."""
        return self.metric if self.evaluated == self.step else None

    def advance(self, **changes: Any) -> TrainState:
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "data": self.data.to_dict(), "loss_scale": list(self.loss_scale)}

    @staticmethod
    def from_dict(record: dict[str, Any]) -> TrainState:
        """Raises DamageError where the record is of another version or shape."""
        known = set(TrainState.__dataclass_fields__)
        if record.get("version") != STATE_VERSION or set(record) != known:
            raise DamageError(
                "checkpoint.state",
                f"training state has version {record.get('version')!r} and fields {sorted(record)};"
                f" this Pliant reads version {STATE_VERSION} with {sorted(known)}",
            )
        scale, good_steps = record["loss_scale"]
        return TrainState(
            **{
                **record,
                "data": DataState.from_dict(record["data"]),
                "loss_scale": (float(scale), int(good_steps)),
            }
        )
