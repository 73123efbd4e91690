"""``pliant config``: the settings a run would have, where each comes from, and what it means."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pliant.cli.common import JsonOption, OverridesArgument, emit, say, write_result
from pliant.cli.complete import complete_key
from pliant.cli.subject import HELP, SubjectArgument, load_pair, load_subject

if TYPE_CHECKING:
    from pliant.config.diff import Difference

app = typer.Typer(help="Show, check, explain and compare settings.", no_args_is_help=True)

PipelineOption = Annotated[str | None, typer.Option("--pipeline", help="Whose model section is meant.")]


@app.command()
def show(subject: SubjectArgument, overrides: OverridesArgument = None, as_json: JsonOption = False) -> None:
    """Print all settings as YAML, each with its origin, and what a start would derive from them."""
    from pliant.config.dump import config_digest, config_to_dict, config_to_yaml
    from pliant.configure import derived_at_start

    (config, origins), _ = load_subject(subject, overrides or ())
    derived = derived_at_start(config)
    result = {
        "config": config_to_dict(config),
        "origins": origins,
        "derived": derived,
        "digest": config_digest(config),
    }
    comments = {k: f"{o}; derived at start: {derived[k]}" if k in derived else o for k, o in origins.items()}
    emit(result, as_json=as_json, text=config_to_yaml(config, comments).rstrip())


@app.command()
def check(subject: SubjectArgument, overrides: OverridesArgument = None, as_json: JsonOption = False) -> None:
    """Check the settings; exit 2 and list every problem if there is one."""
    from pliant.config.loader import DEFAULT

    (config, origins), _ = load_subject(subject, overrides or ())
    for key, path in (("data.path", config.data.path), ("data.validation", config.data.validation)):
        if path and "://" not in path and not Path(path).expanduser().exists():
            say(f"note: there is nothing at {key} {path} on this host")
    chosen = sum(origin != DEFAULT for origin in origins.values())
    text = f"{subject}: {len(origins)} settings are valid, {chosen} of them not left to their defaults"
    emit({"pipeline": subject, "settings": len(origins), "chosen": chosen}, as_json=as_json, text=text)


@app.command()
def explain(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="A setting or a section, as in optim.lr or optim.", autocompletion=complete_key
        ),
    ],
    pipeline: PipelineOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a setting means, what it may be, its default, and what a resume may do with it."""
    from pliant.config.schema import Leaf, leaves, sections
    from pliant.config.suggest import closest_key
    from pliant.errors import UsageError
    from pliant.registry import find_pipeline
    from pliant.settings import RunConfig, run_config_for
    from pliant.tune.settings import SpaceFile

    schema = run_config_for(find_pipeline(pipeline).model_settings()) if pipeline else RunConfig
    settings = [*leaves(schema), *(leaf for leaf in leaves(SpaceFile) if leaf.keys[0] == "sweep")]
    keys = tuple(key.split("."))
    meant = [leaf for leaf in settings if leaf.keys[: len(keys)] == keys]
    meant = meant or [leaf for leaf in settings if leaf.is_mapping and keys[: len(leaf.keys)] == leaf.keys]
    if not meant:
        _, words = closest_key(keys, [*(leaf.keys for leaf in settings), *sections(schema), ("sweep",)])
        hint = f"{words}?" if words else "pliant config show PIPELINE lists all settings"
        raise UsageError("config.unknown-key", f"{key} is not a setting", hint=hint)

    def entry(leaf: Leaf) -> dict[str, Any]:
        about = leaf.field.description or ""
        only_with = [str(condition) for condition in leaf.only_with]
        return {
            "key": leaf.dotted,
            "about": about,
            "allowed": leaf.describe(),
            "only_with": only_with,
            "on_resume": leaf.on_resume,
        }

    def words_of(leaf: Leaf) -> str:
        lines = [leaf.field.description or "", leaf.describe(), leaf.effect, leaf.resume]
        return "\n  ".join([leaf.dotted, *filter(None, lines)])

    emit([entry(leaf) for leaf in meant], as_json=as_json, text="\n".join(map(words_of, meant)))


@app.command()
def schema(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="Whose model section is known; default: any is allowed.")
    ] = None,
    space: Annotated[bool, typer.Option("--space", help="That of search spaces instead.")] = False,
) -> None:
    """Print the JSON schema of settings files, for completion and checks in an editor."""
    from pliant.config.jsonschema import json_schema
    from pliant.registry import find_pipeline
    from pliant.settings import RunConfig, run_config_for

    model = RunConfig if pipeline is None else run_config_for(find_pipeline(pipeline).model_settings())
    if space:
        from pliant.tune.spaceschema import space_schema

        result = space_schema(model, open_model=pipeline is None)
    else:
        result = json_schema(model, open_sections=("model",) if pipeline is None else ())
    write_result(json.dumps(result, indent=1, ensure_ascii=False))


@app.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=HELP)],
    b: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    overrides: OverridesArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two configurations, defaults included, setting by setting, with both origins.

    Overrides say where runs are looked for: run.storage=….
    """
    from pliant.config.diff import diff_settings

    first, second = load_pair(a, b, overrides or ())
    found = diff_settings(first.config, second.config, first.origins, second.origins)
    result = {"a": a, "b": b, "differences": [asdict(difference) for difference in found]}
    text = "\n".join(_difference_text(a, b, difference) for difference in found) or "no setting differs"
    emit(result, as_json=as_json, text=text)


def _difference_text(a: str, b: str, difference: Difference) -> str:
    from pliant.config.dump import value_text

    width = max(len(a), len(b))
    lines = [difference.key]
    for name, side in ((a, difference.a), (b, difference.b)):
        shown = f"{value_text(side.value)}  # {side.origin}" if side.origin is not None else "has no such setting"
        lines.append(f"  {name:<{width}}  {shown}")
    return "\n".join(lines)
