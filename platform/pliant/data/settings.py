"""Settings of the data stream: where the rows are, how they are ordered and read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AllowInfNan

from pliant.config.base import Settings, rule, setting, where
from pliant.units import Seconds

NullPolicy = Literal["error", "mask"] | Annotated[float, AllowInfNan(True)] | str
"""``error`` refuses nulls, ``mask`` writes 0 and adds a boolean column ``NAME__valid``, any other value fills them."""


class ReadSettings(Settings):
    """How storage is read and what happens when it answers badly."""

    retries: int = setting(6, on_resume="free", ge=0)
    """Attempts after the first for a read that failed with a passing fault (503, SlowDown, 429, time-out, reset)."""
    backoff: Seconds = setting(0.2, on_resume="free", gt=0)
    """Wait before the first retry; doubles with each further one, with jitter."""
    threads: int = setting(2, on_resume="free", ge=1)
    """Decoding threads, per worker, of the local reader and of evaluation."""
    tasks: int = setting(4, on_resume="free", ge=1, only_with=where("data.reader", "ray"))
    """Read tasks of the Ray Data reader under way at once, per worker: each is on its way about half of the time."""
    look_ahead: int = setting(1, on_resume="free", ge=0)
    """Windows per lane that are read ahead of the one in use. Counts in the memory bound."""
    task_cpus: float = setting(0.25, on_resume="free", gt=0, only_with=where("data.reader", "ray"))
    """CPUs that one read task of the Ray Data reader asks for."""


class DataSettings(Settings):
    """The dataset and the order of its rows."""

    path: str = setting(on_resume="free")
    """Dataset: a directory or URI with Parquet shards, or with ``train/`` and ``validation/`` below it. It may move:
    what a run is bound to is the manifest's digest."""
    validation: str | None = setting(None, on_resume="free")
    """Validation dataset; default ``PATH/validation`` where it exists."""
    reader: Literal["local", "ray"] = setting("ray", on_resume="free")
    """``ray`` streams through Ray Data, ``local`` through threads in the worker: the same rows in the same order."""
    lanes: int | None = setting(None, on_resume="frozen", ge=1)
    """Virtual shards L; default: the smallest divisor of ``train.global_batch`` that is ≥ ``elastic.max_workers``."""
    window: int = setting(4, on_resume="frozen", ge=1)
    """Row groups of a lane that are shuffled together."""
    tail: Literal["carry", "pad", "drop"] = setting("carry", on_resume="frozen")
    """What happens at an epoch's end: a batch spans epochs, is padded with weight 0, or is dropped."""
    columns: tuple[str, ...] | None = setting(None, on_resume="frozen")
    """Columns to read; default: those that the pipeline names, else all."""
    nulls: dict[str, NullPolicy] = setting({}, on_resume="frozen")
    """Per column, what to do with nulls; a numeric column with nulls and no policy is refused. ``mask`` puts 0 (of
    texts, the empty one) in their place and adds a boolean column ``COLUMN__valid``, false there; any other value than
    ``error`` is put in their place itself."""
    prefetch_batches: int = setting(2, on_resume="free", ge=0)
    """Batches collated ahead of the step."""
    read: ReadSettings = setting(ReadSettings(), on_resume="free")

    @rule("columns")
    def _columns_not_empty(self) -> None:
        if self.columns is not None and not self.columns:
            raise ValueError("columns names no column; leave it out to read all")
