"""Finds pipelines by name, path or module, and loads their parts.

    pipelines/lm.py            attribute ``pipeline``: the class (imports torch)
    pipelines/lm_settings.py   attribute ``ModelSettings``: its model section (pydantic only); it may stand in lm.py
                               too, which has to be imported then to check settings, or be missing
    pipelines/lm.yaml          its configuration; may be missing

A name is looked up in ``pipelines/`` of the working directory, then in the one that lies beside Pliant's source root.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from pliant.config.suggest import closest
from pliant.errors import ConfigError, UserCodeError
from pliant.settings import run_config_for
from pliant.sources import own_sources
from pliant.train.settings import ModelGuards

if TYPE_CHECKING:
    from pliant.train.protocols import Pipeline

T = TypeVar("T")
FOLDER = "pipelines"
SPACES_FOLDER = "search_spaces"
DEFAULT_ATTRIBUTE = "pipeline"


@dataclass(frozen=True)
class PipelineRef:
    """A pipeline that was found, not yet loaded. Picklable.

    Attributes:
        reference: as the user wrote it.
        module: name under which its file is imported.
        file: its Python file.
        attribute: name of the class in it.
    """

    reference: str
    module: str
    file: Path
    attribute: str = DEFAULT_ATTRIBUTE

    @property
    def name(self) -> str:
        """Short name: the file's, without ending."""
        return self.file.stem

    @property
    def settings_file(self) -> Path:
        """Where its settings model is, if it has one of its own."""
        return self.file.with_name(f"{self.name}_settings.py")

    @property
    def config_file(self) -> Path:
        """Where its configuration is, if there is one."""
        return self.file.with_suffix(".yaml")

    def model_settings(self) -> type[ModelGuards]:
        """The model section's class; ``ModelGuards`` itself for a pipeline without settings.

        Imports the settings file alone where there is one, and the pipeline's own file where there is none.

        Raises:
            UserCodeError: the file cannot be imported, holds no ``ModelSettings``, or one with a default that it
                does not allow itself.
        """
        if self.settings_file.exists():
            file, module = self.settings_file, self._import(f"{self.module}_settings", self.settings_file)
        else:
            file, module = self.file, self._import(self.module, self.file)
            if not hasattr(module, "ModelSettings"):
                return ModelGuards
        found = _member(module, "ModelSettings", ModelGuards, file)
        _check_defaults(found, file)
        return found

    def load(self) -> type[Pipeline[Any]]:
        """The pipeline's class.

        Raises:
            UserCodeError: the file cannot be imported, or holds no such class.
        """
        from pliant.train.protocols import Pipeline

        self.model_settings()  # under its own name first, so that both files mean the same class
        return _member(self._import(self.module, self.file), self.attribute, Pipeline, self.file)

    @cached_property
    def code_digest(self) -> str:
        """blake2b, 32 hex digits, over names and contents of the pipeline's Python files."""
        digest = blake2b(digest_size=16)
        for name, file in self.sources().items():
            content = file.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    def sources(self) -> dict[str, Path]:
        """The Python files it consists of, by path relative to its folder: its own, its settings, and what they import
        from there."""
        return own_sources(self.file, self._root, self.settings_file)

    @property
    def _root(self) -> Path:
        """The folder that its imports start from."""
        return self.file.parents[self.module.count(".")]

    def _import(self, name: str, file: Path) -> ModuleType:
        loaded = sys.modules.get(name)
        if loaded is not None:
            origin = getattr(loaded, "__file__", None)
            if origin is not None and Path(origin).resolve() == file:
                return loaded
            if "." not in name and not hasattr(loaded, "__pliant_pipeline__"):
                raise ConfigError(
                    "pipeline.name-taken",
                    f"{name} is also the name of the module {origin}",
                    hint="rename the file",
                    location=str(file),
                )
        _make_importable(self._root)
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ConfigError("pipeline.file", "is not a Python file", location=str(file))
        module = importlib.util.module_from_spec(spec)
        vars(module)["__pliant_pipeline__"] = True
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[name]
            if not isinstance(error, Exception):
                raise
            message = f"cannot be imported: {type(error).__name__}: {error}"
            raise UserCodeError("pipeline.import", message, location=str(file)) from error
        return module


def find_pipeline(reference: str, *, cwd: Path | None = None) -> PipelineRef:
    """Finds a pipeline.

    Args:
        reference: a name (``digits``), a path (``exp/lm.py``), or ``module:attribute``.
        cwd: directory that names and paths start from; default: the working directory.

    Raises:
        ConfigError: ``pipeline.unknown``, with the closest names and the list, or ``pipeline.file``.
    """
    here = (cwd or Path.cwd()).resolve()
    if ":" in reference:
        return _in_module(reference, here)
    if reference.endswith(".py") or "/" in reference:
        file = (here / Path(reference).expanduser()).resolve()
        if file.suffix != ".py" or not file.is_file():
            raise ConfigError(
                "pipeline.file",
                "is not a Python file",
                hint="give the path of the pipeline's .py file",
                location=str(file),
            )
        return _at(reference, file)
    for folder in _folders(here):
        if (folder / f"{reference}.py").is_file():
            return _at(reference, folder / f"{reference}.py")
    known = known_pipelines(cwd=here)
    near = [f"./{reference}.py"] if (here / f"{reference}.py").is_file() else closest(reference, known)
    raise ConfigError(
        "pipeline.unknown",
        f"there is no pipeline {reference}; known: {', '.join(known) or 'none'}",
        hint=f"did you mean {' or '.join(near)}?" if near else f"looked in {', '.join(map(str, _folders(here)))}",
    )


def known_pipelines(*, cwd: Path | None = None) -> list[str]:
    """Names of all pipelines that a name can mean, sorted."""
    files = {f for folder in _folders((cwd or Path.cwd()).resolve()) for f in folder.glob("*.py")}
    return sorted({f.stem for f in files if not f.stem.endswith("_settings") and not f.stem.startswith("_")})


def known_spaces(*, cwd: Path | None = None) -> list[Path]:
    """The YAML files of all search spaces that a name can mean, by name."""
    folders = _folders((cwd or Path.cwd()).resolve(), SPACES_FOLDER)
    found = {file.stem: file for folder in reversed(folders) for file in folder.glob("*.yaml")}
    return [found[name] for name in sorted(found)]


def find_space(reference: str, *, cwd: Path | None = None) -> Path:
    """Finds a search space's file.

    Args:
        reference: a name in ``search_spaces/``, or the path of a YAML file.
        cwd: directory that names and paths start from; default: the working directory.

    Raises:
        ConfigError: ``space.unknown``, with the closest names and the list.
    """
    here = (cwd or Path.cwd()).resolve()
    if reference.endswith((".yaml", ".yml")) or "/" in reference:
        file = (here / Path(reference).expanduser()).resolve()
        if not file.is_file():
            hint = "give the path of a YAML file, or a name that pliant ls shows"
            raise ConfigError("space.unknown", "there is no such file", hint=hint, location=str(file))
        return file
    known = {file.stem: file for file in known_spaces(cwd=here)}
    if reference not in known:
        near = [f"./{reference}.yaml"] if (here / f"{reference}.yaml").is_file() else closest(reference, known)
        raise ConfigError(
            "space.unknown",
            f"there is no search space {reference}; known: {', '.join(known) or 'none'}",
            hint=f"did you mean {' or '.join(near)}?" if near else f"they lie in {SPACES_FOLDER}/",
        )
    return known[reference]


def _folders(here: Path, name: str = FOLDER) -> list[Path]:
    beside_source = Path(__file__).resolve().parents[2]
    return [root / name for root in dict.fromkeys((here, beside_source)) if (root / name).is_dir()]


def _at(reference: str, file: Path) -> PipelineRef:
    """A file in a folder ``pipelines`` is imported as part of it, any other one by its own name."""
    module = f"{FOLDER}.{file.stem}" if file.parent.name == FOLDER else file.stem
    return PipelineRef(reference, module, file)


def _in_module(reference: str, here: Path) -> PipelineRef:
    module, _, attribute = reference.partition(":")
    _make_importable(here)
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.has_location or not attribute.isidentifier():
        raise ConfigError(
            "pipeline.unknown",
            f"{reference} is no pipeline: no module {module} with a source file",
            hint="write module:attribute, as in my.models.lm:LM",
        )
    return PipelineRef(reference, module, Path(spec.origin).resolve(), attribute)


def _make_importable(root: Path) -> None:
    """Appends a folder to the import path: last, so that nothing in it hides an installed module."""
    if str(root) not in sys.path:
        sys.path.append(str(root))


def _check_defaults(settings: type[ModelGuards], file: Path) -> None:
    try:
        run_config_for(settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, ("ModelSettings", *first["loc"])))
        message = f"the defaults of {where} are not valid: {first['msg']}, found {first['input']!r}"
        raise UserCodeError("pipeline.defaults", message, location=str(file)) from None


def _member(module: ModuleType, attribute: str, kind: type[T], file: Path) -> type[T]:
    found = getattr(module, attribute, None)
    if not (isinstance(found, type) and issubclass(found, kind)):
        what = "is missing" if found is None else f"is {found!r}"
        raise UserCodeError(
            "pipeline.class", f"{attribute} {what}; needed: a subclass of {kind.__name__}", location=str(file)
        )
    return found
