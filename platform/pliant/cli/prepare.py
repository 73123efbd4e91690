"""``pliant prepare``: writes a pipeline's dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pliant.cli.common import JsonOption, OverridesArgument, PipelineArgument, say
from pliant.cli.data import show_manifests

if TYPE_CHECKING:
    from pliant.train.protocols import Split

T = TypeVar("T")


def prepare(
    pipeline: PipelineArgument,
    overrides: OverridesArgument = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another dataset that lies there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a pipeline's dataset to data.path: checksummed Parquet shards and a manifest for each split.

    A second call compares instead of writing, and fails if the dataset would be another one.
    """
    from pliant.configure import load_config
    from pliant.data.prepare import write_dataset
    from pliant.errors import UsageError
    from pliant.registry import find_pipeline
    from pliant.train.protocols import UnpreparedPipeline
    from pliant.train.usercode import build_pipeline

    ref = find_pipeline(pipeline)
    config, _ = load_config(ref, overrides or ())
    path = config.data.path
    built = build_pipeline(ref, config.model)
    say(f"preparing {ref.name} in {path}")
    try:
        manifests = write_dataset(_splits(built.prepare, str(ref.file)), path, overwrite=overwrite)
    except UnpreparedPipeline:
        hint = "put its shards there yourself, or give it a method prepare"
        message = f"{ref.name} does not prepare data: its dataset must lie at data.path {path}"
        raise UsageError("pipeline.no-prepare", message, hint=hint, location=str(ref.file)) from None
    show_manifests({"pipeline": ref.name}, manifests, as_json=as_json)
    say(f"train on it with: pliant train {pipeline}")


def _splits(prepare: Callable[[], Iterable[Split]], location: str) -> Iterator[Split]:
    """Says when each split begins, and blames the pipeline for what it and its iterators raise."""
    from pliant.errors import UserCodeError
    from pliant.train.protocols import Split

    for split in _blamed(prepare, location):
        if not isinstance(split, Split):
            message = f"prepare must yield Split; found {type(split).__name__}"
            raise UserCodeError("pipeline.prepare", message, location=location)
        say(f"  {split.name} …")
        yield replace(split, batches=_blamed(partial(iter, split.batches), location))


def _blamed(items: Callable[[], Iterable[T]], location: str) -> Iterator[T]:
    from pliant.errors import PliantError, UserCodeError
    from pliant.train.protocols import UnpreparedPipeline

    def made() -> Iterator[T]:
        yield from items()  # inside, so that what the call itself raises is blamed as well

    iterator = made()
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        except (PliantError, UnpreparedPipeline):
            raise
        except Exception as error:
            message = f"prepare raised {type(error).__name__}: {error}"
            raise UserCodeError("pipeline.prepare", message, location=location) from error
        yield item
