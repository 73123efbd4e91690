"""``pliant config``: the settings a run would have, where each comes from, and what it means."""

from __future__ import annotations

from typing import Annotated

import typer

from pliant.cli.common import JsonOption, OverridesArgument, PipelineArgument, emit

app = typer.Typer(help="Show, check and explain settings.", no_args_is_help=True)

_ON_RESUME = {
    "free": "a resume may change it",
    "curve": "a resume may change it, and the curve with it; the change is recorded",
    "frozen": "frozen for the life of a run",
}


@app.command()
def show(pipeline: PipelineArgument, overrides: OverridesArgument = None, as_json: JsonOption = False) -> None:
    """Print all settings as YAML, each with its origin."""
    from pliant.config.dump import config_digest, config_to_dict, config_to_yaml
    from pliant.configure import load_config

    config, origins = load_config(pipeline, overrides or ())
    result = {"config": config_to_dict(config), "origins": origins, "digest": config_digest(config)}
    emit(result, as_json=as_json, text=config_to_yaml(config, origins).rstrip())


@app.command()
def check(pipeline: PipelineArgument, overrides: OverridesArgument = None, as_json: JsonOption = False) -> None:
    """Check the settings; exit 2 and list every problem if there is one."""
    from pliant.config.loader import DEFAULT
    from pliant.configure import load_config

    _, origins = load_config(pipeline, overrides or ())
    chosen = sum(origin != DEFAULT for origin in origins.values())
    text = f"{pipeline}: {len(origins)} settings are valid, {chosen} of them not left to their defaults"
    emit({"pipeline": pipeline, "settings": len(origins), "chosen": chosen}, as_json=as_json, text=text)


@app.command()
def explain(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A setting or a section, as in optim.lr or optim.")],
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Whose model section is meant.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a setting means, what it may be, its default, and what a resume may do with it."""
    from pliant.config.schema import Leaf, leaves, sections
    from pliant.config.suggest import closest_key
    from pliant.errors import UsageError
    from pliant.registry import find_pipeline
    from pliant.settings import RunConfig, run_config_for

    schema = run_config_for(find_pipeline(pipeline).model_settings()) if pipeline else RunConfig
    settings = list(leaves(schema))
    keys = tuple(key.split("."))
    meant = [leaf for leaf in settings if leaf.keys[: len(keys)] == keys]
    if not meant:
        _, words = closest_key(keys, [*(leaf.keys for leaf in settings), *sections(schema)])
        hint = f"{words}?" if words else "pliant config show PIPELINE lists all settings"
        raise UsageError("config.unknown-key", f"{key} is not a setting", hint=hint)

    def entry(leaf: Leaf) -> dict[str, str]:
        about = leaf.field.description or ""
        return {"key": leaf.dotted, "about": about, "allowed": leaf.describe(), "on_resume": leaf.on_resume}

    entries = [entry(leaf) for leaf in meant]
    lines = [f"{e['key']}\n  {e['about']}\n  {e['allowed']}\n  {_ON_RESUME[e['on_resume']]}" for e in entries]
    emit(entries, as_json=as_json, text="\n".join(lines))
