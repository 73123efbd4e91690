"""``pliant init``: a folder with a pipeline that runs, to be made one's own."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from pliant.cli.common import JsonOption, emit
from pliant.cli.complete import complete_pipeline
from pliant.cli.spaces import outline
from pliant.errors import UsageError

OWN = "csv"
"""The starter that comes with the package: a pipeline over a CSV file. Others are pipelines that there are."""
_PIPELINE = "homes"
_README = "README.md"


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one to put the files into.")],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="csv|PIPELINE",
            help="csv: numbers and texts of a CSV file, with one to try. Or a pipeline that is copied: digits, a path.",
            autocompletion=complete_pipeline,
        ),
    ] = OWN,
    as_json: JsonOption = False,
) -> None:
    """Copy a starter that runs: pipeline, settings, search space and README. Existing files are never overwritten."""
    from pliant.registry import SPACES_FOLDER

    with as_file(files("pliant") / "starter") as starter:
        name, sources = _own(starter) if source == OWN else _of_pipeline(source)
        target = directory.expanduser()
        taken = [path for path in (*sources, _README) if (target / path).exists()]
        if taken:
            raise UsageError(
                "init.exists",
                f"would overwrite {', '.join(taken)}",
                hint="give another folder, or move these away",
                location=str(target),
            )
        for path, file in sources.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / path)
        spaces = [Path(path).stem for path in sources if path.startswith(f"{SPACES_FOLDER}/")]
        (target / _README).write_text(_readme(starter, name, spaces))
    commands = [f"cd {target}", f"pliant prepare {name}", f"pliant train {name} --name first --in-process"]
    commands += [f"pliant sweep {name} --space {space} --name search" for space in spaces[:1]]
    written = [*sources, _README]
    text = "\n".join([*(f"{target / path}" for path in written), "", "go on with:", *(f"  {c}" for c in commands)])
    emit({"directory": str(target), "files": written, "next": commands}, as_json=as_json, text=text)


def _readme(starter: Path, name: str, spaces: Sequence[str]) -> str:
    """The README, with the names of the pipeline and of its first search space."""
    lines = (starter / _README).read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if spaces or "SPACE" not in line)
    return text.replace("PIPELINE", name).replace("SPACE", spaces[0] if spaces else "")


def _own(starter: Path) -> tuple[str, dict[str, Path]]:
    found = sorted(path for path in starter.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return _PIPELINE, {p.relative_to(starter).as_posix(): p for p in found if p.name != _README}


def _of_pipeline(reference: str) -> tuple[str, dict[str, Path]]:
    """A pipeline's files and its search spaces, by where they shall be."""
    from pliant.registry import FOLDER, SPACES_FOLDER, find_pipeline, known_spaces

    ref = find_pipeline(reference)
    sources = {f"{FOLDER}/{name}": file for name, file in ref.sources().items()}
    if ref.config_file.exists():
        sources[f"{FOLDER}/{ref.config_file.name}"] = ref.config_file
    spaces = [file for file in known_spaces() if outline(file)["pipeline"] == ref.name]
    return ref.name, sources | {f"{SPACES_FOLDER}/{file.name}": file for file in spaces}
