"""``pliant config show`` and ``check``: the settings a run would have, and where each of them comes from."""

from __future__ import annotations

import typer

from pliant.cli.common import JsonOption, OverridesArgument, PipelineArgument, emit

app = typer.Typer(help="Show and check settings.", no_args_is_help=True)


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
