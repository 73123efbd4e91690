"""Which settings a search space may name, and what each of them takes. Pure.

Searched is what decides how well something is learnt: ``model``, ``optim``, the schedule, the batch. What decides which
rows are read, how long a trial is, where it runs and what is kept of it is the same for all trials.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from pliant.config.base import Condition
from pliant.config.schema import allowed, leaves, takes_booleans
from pliant.settings import RunConfig
from pliant.tune.domains import Value
from pliant.tune.point import BATCH, LR, MICRO_BATCH, PEAK, WARMUP_RATIO

SCHEDULE = "schedule"
SCHEDULE_KEYS = ("kind", "peak", "warmup_ratio", "decay", "final_ratio")
"""What a space says of the schedule, all of it below ``schedule``."""
_TRAIN = (BATCH, MICRO_BATCH, "train.clip_norm", "train.precision")
_GUARDS = ("model.allow_rank_local", "optim.allow_unverified")
_REASONS = {
    "seed": "trials differ by their settings, not by luck",
    "phases": "trials have no course of their own: population based training finds one",
    "data": "all trials read the same rows in the same order",
    "init": "all trials start from the same parameters",
    "run": "it says where runs lie",
    "tracking": "it says where runs are recorded",
    "checkpoint": "what is kept does not change what is learnt",
    "eval": "all trials are measured alike",
    "elastic": "workers do not change what is learnt",
    "cluster": "machines do not change what is learnt",
    "train.steps": "how long a trial trains is the scheduler's decision",
    "train.epochs": "how long a trial trains is the scheduler's decision",
    "train": "it does not change what is learnt",
}


class _NoSetting(BaseModel):
    """What a space speaks of that is no setting by itself."""

    warmup_ratio: float = Field(ge=0, le=1)


@dataclass(frozen=True)
class Searchable:
    """A setting that may be searched.

    Attributes:
        name: of the dimension.
        field: pydantic's description of what it takes.
        kind: ``number``, ``whole`` number, ``choice`` (texts, booleans); None for lists and mappings.
        mutable: whether it may change in the middle of a run.
        only_with: what other settings must be for it to have an effect.
    """

    name: str
    field: FieldInfo
    kind: Literal["number", "whole", "choice"] | None
    mutable: bool
    only_with: tuple[Condition, ...] = ()

    @property
    def allowed(self) -> str:
        """What it takes, in words; null is nothing that can be searched."""
        return allowed(self.field).removesuffix(" or null")

    def accept(self, value: Any) -> Value | None:
        """The value as the setting has it; None where it takes no such value."""
        if isinstance(value, bool) and not takes_booleans(self.field.annotation):
            return None
        if self.kind in ("number", "whole") and not isinstance(value, (int, float)):
            return None
        kind: Any = Annotated[self.field.annotation, self.field]
        try:
            taken = TypeAdapter(kind, config={"allow_inf_nan": False}).validate_python(value)
        except ValidationError:
            return None
        return taken if isinstance(taken, (bool, int, float, str)) else None


def searchables(schema: type[RunConfig]) -> dict[str, Searchable]:
    """All settings of a configuration that may be searched, by the name of their dimension."""
    known = {leaf.dotted: leaf for leaf in leaves(schema)}
    found: dict[str, Searchable] = {}
    for name, leaf in known.items():
        if why_not(name) is None:
            mutable = leaf.on_resume != "frozen" and name != MICRO_BATCH and not name.startswith("model.")
            found[name] = Searchable(name, leaf.field, _kind(leaf.field.annotation), mutable, leaf.only_with)
    found[PEAK] = Searchable(PEAK, known[LR].field, "number", True)
    found[WARMUP_RATIO] = Searchable(WARMUP_RATIO, _NoSetting.model_fields["warmup_ratio"], "number", True)
    return found


def why_not(key: str) -> str | None:
    """Why a setting cannot be searched; None for one that can."""
    section, _, name = key.partition(".")
    if key in _GUARDS:
        return "it gives up a promise, for all trials or for none"
    if section == SCHEDULE:
        return None if name in SCHEDULE_KEYS else "the schedule is searched as a whole"
    if section in ("model", "optim") or key in _TRAIN:
        return None
    return _REASONS.get(key, _REASONS.get(section, "it does not change what is learnt"))


def _kind(annotation: Any) -> Literal["number", "whole", "choice"] | None:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin in (Union, UnionType):
        kinds = {_kind(option) for option in arguments if option is not type(None)}
        return kinds.pop() if len(kinds) == 1 else "choice" if None not in kinds else None
    if annotation in (float, int):
        return "number" if annotation is float else "whole"
    return "choice" if annotation in (str, bool) or origin is Literal else None
