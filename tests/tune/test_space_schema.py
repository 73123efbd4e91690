"""The JSON schema of space files: valid itself, content with what is shipped, and against what a sweep would refuse."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft7Validator

from pliant.config.yamlfile import parse_yaml
from pliant.registry import find_pipeline, known_spaces
from pliant.settings import RunConfig, run_config_for
from pliant.tune.spaceschema import space_schema
from tests.command import ROOT
from tests.tune.spaces import SPACE


def schema_of(pipeline: str) -> dict[str, Any]:
    return space_schema(run_config_for(find_pipeline(pipeline, cwd=ROOT).model_settings()))


def complaints(schema: dict[str, Any], text: str) -> list[str]:
    """Where a YAML text breaks a schema, as paths."""
    value = parse_yaml(text, "x.yaml").value
    return ["/".join(map(str, error.absolute_path)) for error in Draft7Validator(schema).iter_errors(value)]


def test_it_is_content_with_what_is_shipped() -> None:
    files = known_spaces(cwd=ROOT)
    assert len(files) == 6
    for file in files:
        schema = schema_of(file.stem.rpartition("_")[0])
        Draft7Validator.check_schema(schema)
        assert complaints(schema, file.read_text()) == []


def test_of_any_pipeline() -> None:
    schema = space_schema(RunConfig, open_model=True)
    Draft7Validator.check_schema(schema)
    assert complaints(schema, SPACE) == []
    assert complaints(schema, SPACE.replace("model.width:", "mdl.width:")) == ["space"]


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("model.width:", "model.widht:", "space"),
        ("model.width:", "seed:", "space"),
        ("model.width: {int: [16, 128]}", "schedule: {warmup: [1]}", "space/schedule"),
        ("[1e-4, 1e-2]", "[1e-4]", "space/optim.lr"),
        ("[1e-4, 1e-2]", "[0, 1e-2]", "space/optim.lr"),
        ("{int: [16, 128]}", "{int: [16, 128], wen: {}}", "space/model.width"),
        ("{int: [16, 128]}", "{float: [16, 128]}", "space/model.width"),
        ("{int: [16, 128]}", "{step: 3}", "space/model.width"),
        ("{int: [16, 128]}", "64", "space/model.width"),
        ("[32, 64]", "[]", "space/train.global_batch"),
        ("[32, 64]", "[32, 32]", "space/train.global_batch"),
        ("lr: sqrt", "lr: cube", "space/train.global_batch"),
        ("trials:", "trails:", "sweep"),
        ("{trials: 9}", "{scheduler: {kind: ahsa}}", "sweep/scheduler/kind"),
        ("sweep:", "sweeep:", ""),
    ],
)
def test_it_is_against(old: str, new: str, where: str) -> None:
    assert old in SPACE
    assert complaints(schema_of("digits"), SPACE.replace(old, new)) == [where]
