"""A small settings tree for the tests: every kind of field that real settings have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pliant.config.base import Settings, setting
from pliant.units import Bytes, Seconds


class Inner(Settings):
    depth: int = setting(2, on_resume="free", ge=1, le=9)
    wait: Seconds = setting(1.0, on_resume="free", gt=0)


class Optim(Settings):
    lr: float = setting(1e-3, on_resume="curve", gt=0)
    betas: tuple[float, float] = setting((0.9, 0.999), on_resume="curve")
    kind: Literal["adamw", "sgd"] = setting("adamw", on_resume="frozen")
    inner: Inner = setting(Inner(), on_resume="free")


class Train(Settings):
    steps: int | None = setting(None, on_resume="curve", ge=1)
    epochs: float | None = setting(None, on_resume="curve", gt=0)
    batch: int = setting(on_resume="curve", ge=1)
    audit: bool = setting(False, on_resume="free")
    fill: Literal["error", "mask"] | float = setting("error", on_resume="frozen")

    @model_validator(mode="after")
    def _one_length(self) -> Train:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("exactly one of steps and epochs is needed")
        return self


class Tree(Settings):
    seed: int = setting(0, on_resume="frozen", ge=0)
    name: str = setting("x", on_resume="free", min_length=1)
    size: Bytes = setting(1024, on_resume="free", ge=1)
    columns: tuple[str, ...] | None = setting(None, on_resume="frozen")
    resources: dict[str, float] = setting({"CPU": 1.0}, on_resume="free")
    anything: Any = setting(None, on_resume="free")
    short: Annotated[str, Field(max_length=3)] = setting("abc", on_resume="free")
    optim: Optim = setting(Optim(), on_resume="curve")
    train: Train = setting(on_resume="curve")
    extra: Inner | None = setting(None, on_resume="free")
    pause: Seconds | None = setting(None, on_resume="free", gt=0)
    source: str | None = setting(None, on_resume="frozen", alias="from")
