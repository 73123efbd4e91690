"""The JSON schema of settings: valid itself, and of the same opinion about single values as the loader of a run."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft7Validator
from pydantic import BaseModel

from pliant.config.jsonschema import json_schema
from pliant.config.loader import load_settings
from pliant.config.schema import leaves
from pliant.config.yamlfile import parse_yaml
from pliant.errors import ConfigError
from pliant.registry import find_pipeline, known_pipelines
from pliant.settings import RunConfig, run_config_for
from tests.command import ROOT
from tests.config.models import Tree

BASE = "train: {batch: 8, steps: 1}\n"


def complaints(schema: dict[str, Any], text: str) -> list[str]:
    """Where a YAML text breaks a schema, as paths."""
    value = parse_yaml(text, "x.yaml").value
    return [".".join(map(str, error.absolute_path)) for error in Draft7Validator(schema).iter_errors(value)]


def accepts(model: type[BaseModel], text: str) -> bool:
    """Whether a run would take it."""
    try:
        load_settings(model, text=text, source="x.yaml")
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("model", [Tree, RunConfig])
def test_it_is_a_schema_with_every_setting_and_what_it_means(model: type[BaseModel]) -> None:
    schema = json_schema(model)
    Draft7Validator.check_schema(schema)
    for leaf in leaves(model):
        node = schema
        for key in leaf.keys:
            node = node["properties"][key]
        assert node["on_resume"] == leaf.on_resume
        assert node["description"].endswith(leaf.resume)
        assert leaf.describe() in node["description"]
        assert leaf.effect in node["description"]


@pytest.mark.parametrize(
    "text",
    [
        "seed: 0", "seed: -1", "seed: 1.5", "seed: 1e2", "seed: true", "seed: x",
        "name: no", "name: ''", "name: 5", "short: abc", "short: abcd",
        "size: 64MiB", "size: 64 MiB", "size: 0", "size: 64Mib", "size: [1]",
        "columns: [a, b]", "columns: a", "columns: null", "columns: [1]",
        "resources: {CPU: 1, GPU: 0.5}", "resources: {CPU: x}", "resources: 5", "resources: null",
        "optim: {lr: 2e-5}", "optim: {lr: 1.e-4}", "optim: {lr: 0}", "optim: {lr: 1e-4, lrr: 1}",
        "optim: {betas: [0.8, 0.9]}", "optim: {betas: [0.8]}", "optim: {betas: [0.8, 0.9, 1]}",
        "optim: {betas: [a, b]}",
        "optim: {kind: sgd}", "optim: {kind: adam}", "optim:", "optim: 5",
        "optim: {inner: {depth: 9}}", "optim: {inner: {depth: 10}}", "optim: {inner: {wait: 10min}}",
        "optim: {inner: {wait: 10parsecs}}", "optim: {inner: {wait: .5h}}", "optim: {inner: {wait: 1e3ms}}",
        "extra: {depth: 1}", "extra: null", "extra: {deep: 1}", "from: here", "source: here", "sed: 1",
        "anything: {a: [1]}", "pause: 2s", "pause: null", "pause: 2x", "pause: 0",
    ],
)  # fmt: skip
def test_it_agrees_with_the_loader(text: str) -> None:
    assert (complaints(json_schema(Tree), BASE + text) == []) == accepts(Tree, BASE + text)


def test_what_is_missing_is_missing() -> None:
    assert complaints(json_schema(Tree), "seed: 1") == [""]
    assert complaints(json_schema(Tree), "train: {steps: 1}") == ["train"]


def test_the_shipped_files_are_valid_and_mistakes_in_them_are_found() -> None:
    names = known_pipelines(cwd=ROOT)
    assert len(names) >= 2
    for name in names:
        ref = find_pipeline(name, cwd=ROOT)
        schema = json_schema(run_config_for(ref.model_settings()))
        text = ref.config_file.read_text(encoding="utf-8")
        assert complaints(schema, text) == []
        assert complaints(schema, text.replace("global_batch:", "globl_batch:")) == ["train", "train"]
        assert complaints(schema, text.replace("model:\n", "model:\n  wdith: 3\n")) == ["model"]


def test_without_a_pipeline_the_model_section_is_open() -> None:
    text = (ROOT / "pipelines" / "digits.yaml").read_text(encoding="utf-8")
    assert complaints(json_schema(RunConfig), text) == ["model"]
    assert complaints(json_schema(RunConfig, open_sections=("model",)), text) == []
