"""Base of all settings models: strict, immutable, and explicit about what each setting goes with.

Each package keeps its models in its own ``settings.py``, which imports this file and pydantic only. A setting declares
what a resume may do with it, and with which other settings it has an effect at all; a section declares its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticUndefined

OnResume = Literal["free", "curve", "frozen"]
"""What a resume may do with a setting: change it freely; change it, with the curve, as a recorded event; not at all."""
F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound="Settings")


@dataclass(frozen=True)
class Condition:
    """What another setting must be.

    Attributes:
        key: the other setting's dotted key.
        values: of which it must be one, or with ``negated`` none.
    """

    key: str
    values: tuple[Any, ...]
    negated: bool = False

    def holds(self, value: Any) -> bool:
        """Whether a value of the other setting meets it."""
        return (value in self.values) != self.negated

    def __str__(self) -> str:
        values = " or ".join("null" if v is None else str(v) for v in self.values)
        return f"{self.key} other than {values}" if self.negated else f"{self.key} {values}"


def where(key: str, *values: Any) -> Condition:
    """The setting ``key`` is one of these values."""
    return Condition(key, values)


def unless(key: str, *values: Any) -> Condition:
    """The setting ``key`` is none of these values."""
    return Condition(key, values, negated=True)


def setting(
    default: Any = PydanticUndefined,
    *,
    on_resume: OnResume,
    only_with: Condition | Sequence[Condition] = (),
    **constraints: Any,
) -> Any:
    """Declares one setting; its description is the docstring under it, with unit and scope.

    Args:
        default: the only place where the default stands; leave out for a required setting.
        on_resume: what a resume may do with it.
        only_with: what other settings must be for this one to have an effect, all of it. Where it has none, a value
            other than the default is an error.
        **constraints: pydantic's own (``ge``, ``gt``, ``le``, ``min_length`` …).
    """
    conditions = (only_with,) if isinstance(only_with, Condition) else tuple(only_with)
    extra: dict[str, Any] = {"on_resume": on_resume}
    if conditions:
        extra["only_with"] = [asdict(condition) for condition in conditions]
    return Field(default, json_schema_extra=extra, **constraints)


def rule(*reads: str) -> Callable[[F], F]:
    """Marks a rule between settings.

    A method of a section raises ValueError where its settings do not fit together; ``reads`` are their names in it.
    A function over a whole configuration yields ``Problem``; ``reads`` are dotted keys. A rule is asked only where
    all that it reads is valid, so that it can be asked while something else is not.
    """

    def mark(function: F) -> F:
        vars(function)["reads"] = reads
        return function

    return mark


def rules_of(section: type[BaseModel]) -> Iterator[Callable[[Any], None]]:
    """The rules that a section declares and inherits."""
    for base in reversed(section.__mro__):
        yield from (member for member in vars(base).values() if callable(member) and hasattr(member, "reads"))


class Settings(BaseModel):
    """A settings section: unknown keys are refused, values are finite and frozen, defaults are validated."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @model_validator(mode="after")
    def _keep_rules(self: S, info: ValidationInfo) -> S:
        if not (info.context or {}).get(RULES_APART):
            for check in rules_of(type(self)):
                check(self)
        return self


RULES_APART = "rules apart"
"""Validation context of the loader, which asks the rules itself: so it can say all that is wrong at once."""
