"""``pliant data``: looks at datasets, rewrites them, checks them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pliant.cli.common import JsonOption, OverridesArgument, emit, say, table

if TYPE_CHECKING:
    from pliant.data.manifest import Manifest

app = typer.Typer(help="Look at, rewrite and check datasets.", no_args_is_help=True)

PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="A directory or URI with Parquet shards.")]


@app.command()
def inspect(path: PathArgument, overrides: OverridesArgument = None, as_json: JsonOption = False) -> None:
    """Show layout, columns, memory and shuffle quality of a dataset, for a run with these settings.

    Settings that count: train.global_batch (256 where it is not given), data.lanes, data.window, data.read.look_ahead,
    elastic.min_workers and elastic.max_workers.
    """
    from pliant.config.loader import load_settings
    from pliant.configure import with_lanes
    from pliant.data.inspect import inspect_dataset
    from pliant.settings import RunConfig

    text = f"data: {{path: {json.dumps(path)}}}\ntrain: {{global_batch: 256, micro_batch: 256, steps: 1}}\n"
    loaded = load_settings(RunConfig, text=text, source="command line", overrides=overrides or ())
    config = with_lanes(loaded.settings)
    found = inspect_dataset(
        path,
        lanes=config.data.lanes,
        window=config.data.window,
        look_ahead=config.data.read.look_ahead,
        global_batch=config.train.global_batch,
        workers=config.elastic.min_workers,
    )
    texts = "\n".join(inspection.to_text() for inspection in found.values())
    emit({"splits": {name: asdict(inspection) for name, inspection in found.items()}}, as_json=as_json, text=texts)


@app.command()
def repack(
    source: PathArgument,
    out: Annotated[str, typer.Argument(metavar="OUT", help="Where to write; elsewhere than the source.")],
    seed: Annotated[int, typer.Option("--seed", help="Of the shuffle.")] = 0,
    row_group_rows: Annotated[
        int | None, typer.Option("--row-group-rows", min=1, help="Default: about 1 MiB each.", show_default=False)
    ] = None,
    memory: Annotated[str, typer.Option("--memory", help="What may be shuffled at once.")] = "256MiB",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another dataset that lies there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Rewrite a dataset into small checksummed row groups, its rows shuffled over the whole."""
    from pliant.data.repack import repack as run
    from pliant.errors import UsageError
    from pliant.units import parse_bytes

    try:
        limit = parse_bytes(memory)
    except ValueError as error:
        raise UsageError("usage.memory", f"--memory: {error}") from None
    say(f"rewriting {source} to {out}")
    written = run(source, out, seed=seed, row_group_rows=row_group_rows, memory=limit, overwrite=overwrite)
    show_manifests({"source": source}, written, as_json=as_json)


@app.command()
def verify(path: PathArgument, as_json: JsonOption = False) -> None:
    """Read every page of a dataset and hold it to its checksums and its manifest; exit 4 on damage."""
    from pliant.data.verify import verify_dataset
    from pliant.units import format_bytes

    found = verify_dataset(path)
    rows = [
        (name or "(all)", v.rows, v.files, format_bytes(v.bytes), "agrees" if v.recorded else "none")
        for name, v in found.items()
    ]
    text = table(("split", "rows", "files", "size", "manifest"), rows)
    emit({"splits": {name: asdict(v) for name, v in found.items()}}, as_json=as_json, text=text)
    for v in found.values():
        if v.unchecked:
            say(f"{v.uri}: {len(v.unchecked)} files have no page checksums; a changed value in them would not show")


def show_manifests(head: dict[str, Any], manifests: dict[str, Manifest], *, as_json: bool) -> None:
    """Writes what was written: a line per split, or ``head`` with the splits as JSON."""
    from pliant.units import format_bytes

    sizes = {name: sum(file.size for file in manifest.files) for name, manifest in manifests.items()}
    splits = {
        name: {"path": m.root, "rows": m.rows, "files": len(m.files), "bytes": sizes[name], "digest": m.digest}
        for name, m in manifests.items()
    }
    rows = [(name or "(all)", m.rows, len(m.files), format_bytes(sizes[name]), m.root) for name, m in manifests.items()]
    text = table(("split", "rows", "files", "size", "where"), rows)
    emit({**head, "splits": splits}, as_json=as_json, text=text)
