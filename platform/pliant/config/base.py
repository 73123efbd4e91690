"""Base of all settings models: strict, immutable, and explicit about what a resume may change.

Each package keeps its models in its own ``settings.py``, which imports this file and pydantic only.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticUndefined

OnResume = Literal["free", "curve", "frozen"]
"""What a resume may do with a setting: change it freely; change it, with the curve, as a recorded event; not at all."""


class Settings(BaseModel):
    """A settings section: unknown keys are refused, values are frozen, defaults are validated."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)


def setting(default: Any = PydanticUndefined, *, on_resume: OnResume, **constraints: Any) -> Any:
    """Declares one setting; its description is the docstring under it, with unit and scope.

    Args:
        default: the only place where the default stands; leave out for a required setting.
        on_resume: what a resume may do with it.
        **constraints: pydantic's own (``ge``, ``gt``, ``le``, ``min_length`` …).
    """
    return Field(default, json_schema_extra={"on_resume": on_resume}, **constraints)
