"""Pipelines by name, path and module; what is wrong with one is said with its file."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.errors import ConfigError, PliantError, UserCodeError
from pliant.registry import find_pipeline, known_pipelines
from pliant.train.settings import ModelGuards

PIPELINE = """\
from {package}toy_settings import ModelSettings
from pliant.train.protocols import Pipeline

class Toy(Pipeline[ModelSettings]):
    settings_class = ModelSettings

pipeline = Toy
"""
SETTINGS = """\
from pliant.config.base import setting
from pliant.train.settings import ModelGuards

class ModelSettings(ModelGuards):
    width: int = setting(4, on_resume="frozen")
"""


@pytest.fixture(autouse=True)
def _imports_undone() -> Iterator[None]:
    """Each test imports into its own world."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - set(modules):
        if name.split(".")[0] in ("pipelines", "toy", "toy_settings", "toypackage", "textwrap2"):
            del sys.modules[name]
    sys.modules.update({name: module for name, module in modules.items() if name.startswith("pipelines")})
    sys.path[:] = path


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A folder ``pipelines`` with one pipeline in it."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "toy.py").write_text(PIPELINE.format(package="pipelines."))
    (folder / "toy_settings.py").write_text(SETTINGS)
    return folder


def refused(reference: str, cwd: Path) -> PliantError:
    with pytest.raises(PliantError) as caught:
        find_pipeline(reference, cwd=cwd).load()
    return caught.value


def test_by_name_in_the_working_directory(toy: Path) -> None:
    ref = find_pipeline("toy", cwd=toy.parent)
    assert (ref.name, ref.module, ref.file) == ("toy", "pipelines.toy", toy / "toy.py")
    assert (ref.settings_file, ref.config_file) == (toy / "toy_settings.py", toy / "toy.yaml")
    settings = ref.model_settings()
    assert settings.__name__ == "ModelSettings"
    assert settings().width == 4  # type: ignore[attr-defined]
    assert ref.load().settings_class is settings  # type: ignore[attr-defined]


def test_by_name_beside_the_source(tmp_path: Path) -> None:
    ref = find_pipeline("digits", cwd=tmp_path)
    assert ref.file == Path(__file__).parents[2] / "pipelines" / "digits.py"
    assert {"digits", "stdlib_lm"} <= set(known_pipelines(cwd=tmp_path))


def test_the_working_directory_comes_first(toy: Path) -> None:
    (toy / "digits.py").write_text((toy / "toy.py").read_text())
    assert find_pipeline("digits", cwd=toy.parent).file == toy / "digits.py"
    assert {"digits", "stdlib_lm", "toy"} <= set(known_pipelines(cwd=toy.parent))


def test_two_files_of_one_name_do_not_mix(toy: Path) -> None:
    shipped = find_pipeline("digits", cwd=toy.parent.parent)
    first = shipped.load()
    (toy / "digits.py").write_text((toy / "toy.py").read_text())
    assert find_pipeline("digits", cwd=toy.parent).load().__name__ == "Toy"
    assert shipped.load().__name__ == first.__name__ == "Digits"


def test_by_path_with_siblings_by_their_plain_names(tmp_path: Path) -> None:
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "toy.py").write_text(PIPELINE.format(package=""))
    (tmp_path / "exp" / "toy_settings.py").write_text(SETTINGS)
    ref = find_pipeline("exp/toy.py", cwd=tmp_path)
    assert ref.module == "toy"
    assert ref.load().settings_class is ref.model_settings()  # type: ignore[attr-defined]


def test_by_module_and_attribute(tmp_path: Path) -> None:
    package = tmp_path / "toypackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "toy.py").write_text(PIPELINE.format(package="toypackage."))
    (package / "toy_settings.py").write_text(SETTINGS)
    ref = find_pipeline("toypackage.toy:Toy", cwd=tmp_path)
    assert (ref.module, ref.attribute, ref.file) == ("toypackage.toy", "Toy", package / "toy.py")
    assert ref.load().settings_class is ref.model_settings()  # type: ignore[attr-defined]


def test_a_pipeline_without_settings_has_the_guards_alone(toy: Path) -> None:
    (toy / "toy_settings.py").unlink()
    (toy / "toy.py").write_text("from pliant.train.protocols import Pipeline\n\nclass pipeline(Pipeline):\n    pass\n")
    assert find_pipeline("toy", cwd=toy.parent).model_settings() is ModelGuards


def test_settings_may_stand_in_the_pipelines_own_file(toy: Path) -> None:
    (toy / "toy_settings.py").unlink()
    (toy / "toy.py").write_text(SETTINGS + PIPELINE.partition("\n")[2])
    ref = find_pipeline("toy", cwd=toy.parent)
    assert ref.model_settings()().width == 4  # type: ignore[attr-defined]
    assert ref.load().settings_class is ref.model_settings()  # type: ignore[attr-defined]
    (toy / "toy.py").write_text("ModelSettings = 5\n")
    sys.modules.pop(ref.module)
    assert refused("toy", toy.parent).message == "ModelSettings is 5; needed: a subclass of ModelGuards"


def test_defaults_that_the_model_does_not_allow_itself(toy: Path) -> None:
    (toy / "toy_settings.py").write_text(SETTINGS.replace("4,", "0,").replace('"frozen"', '"frozen", ge=1'))
    error = refused("toy", toy.parent)
    assert (error.code, error.location) == ("pipeline.defaults", str(toy / "toy_settings.py"))
    assert error.message == (
        "the defaults of ModelSettings.width are not valid: Input should be greater than or equal to 1, found 0"
    )


def test_the_files_are_those_that_it_imports_from_its_folder(toy: Path) -> None:
    (toy / "toy.py").write_text("import os\nimport pipelines.direct\nfrom pipelines import named, toy_settings\n")
    (toy / "direct.py").write_text("def later():\n    from .inner.deep import x\n    from . import (also)\n")
    (toy / "named.py").write_text("import pipelines.toy\nnot python\n")
    (toy / "also.py").write_text("from .. import outside\n")
    (toy / "inner").mkdir()
    for name in ("inner/__init__.py", "inner/deep.py", "unused.py", "../outside.py"):
        (toy / name).write_text("")
    sources = find_pipeline("toy", cwd=toy.parent).sources()
    assert list(sources) == [
        "also.py", "direct.py", "inner/__init__.py", "inner/deep.py", "named.py", "toy.py", "toy_settings.py",
    ]  # fmt: skip
    assert sources["inner/deep.py"] == toy / "inner" / "deep.py"


def test_a_reference_is_picklable_and_loads_elsewhere(toy: Path) -> None:
    ref = pickle.loads(pickle.dumps(find_pipeline("toy", cwd=toy.parent)))
    assert ref.load().__name__ == "Toy"


def test_the_code_digest_is_that_of_both_files(toy: Path) -> None:
    def digest() -> str:
        return find_pipeline("toy", cwd=toy.parent).code_digest

    first = digest()
    assert first == digest()
    assert len(first) == 32
    (toy / "toy_settings.py").write_text(SETTINGS + "\n")
    assert digest() != first


def test_unknown_names_get_the_closest_and_the_list(toy: Path) -> None:
    error = refused("toi", toy.parent)
    assert isinstance(error, ConfigError)
    assert (error.code, error.exit_code) == ("pipeline.unknown", 2)
    assert error.message == f"there is no pipeline toi; known: {', '.join(known_pipelines(cwd=toy.parent))}"
    assert error.hint == "did you mean toy?"


def test_a_file_of_that_name_in_the_working_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    assert refused("mine", tmp_path).hint == "did you mean ./mine.py?"


def test_a_name_like_no_other_says_where_was_looked(toy: Path) -> None:
    assert refused("qqqqqq", toy.parent).hint.startswith(f"looked in {toy}, ")


def test_a_path_that_is_no_python_file(toy: Path) -> None:
    for path in ("pipelines/none.py", "pipelines/", "./pipelines"):
        error = refused(path, toy.parent)
        assert error.code == "pipeline.file"
        assert error.hint == "give the path of the pipeline's .py file"


@pytest.mark.parametrize("reference", ["no.such.module:X", "toypackage:", ":X", "sys:X", "json:not-a-name"])
def test_a_module_that_is_not_there(tmp_path: Path, reference: str) -> None:
    error = refused(reference, tmp_path)
    assert error.code == "pipeline.unknown"
    assert error.hint == "write module:attribute, as in my.models.lm:LM"


def test_a_file_that_cannot_be_imported_is_the_users_error(toy: Path) -> None:
    (toy / "toy.py").write_text("1 / 0\n")
    error = refused("toy", toy.parent)
    assert isinstance(error, UserCodeError)
    assert error.exit_code == 1
    assert error.message == "cannot be imported: ZeroDivisionError: division by zero"
    assert error.location == str(toy / "toy.py")
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "pipelines.toy" not in sys.modules


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "pipeline is missing; needed: a subclass of Pipeline"),
        ("pipeline = 5", "pipeline is 5; needed: a subclass of Pipeline"),
        ("pipeline = dict", "pipeline is <class 'dict'>; needed: a subclass of Pipeline"),
    ],
)
def test_a_file_without_a_pipeline(toy: Path, text: str, message: str) -> None:
    (toy / "toy.py").write_text(text)
    assert refused("toy", toy.parent).message == message


def test_a_settings_file_without_its_class(toy: Path) -> None:
    (toy / "toy_settings.py").write_text("")
    error = refused("toy", toy.parent)
    assert error.message == "ModelSettings is missing; needed: a subclass of ModelGuards"
    assert error.location == str(toy / "toy_settings.py")


def test_a_file_named_like_another_module(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("")
    error = refused("./json.py", tmp_path)
    assert error.code == "pipeline.name-taken"
    assert error.message.startswith("json is also the name of the module ")
    assert error.hint == "rename the file"
