"""Every shipped pipeline has a configuration that is valid key by key."""

from __future__ import annotations

import pytest

from pliant.config.loader import DEFAULT
from pliant.config.schema import leaves
from pliant.config.yamlfile import parse_yaml
from pliant.configure import load_config
from pliant.registry import find_pipeline
from pliant.settings import run_config_for
from pliant.train.settings import ModelGuards
from tests.command import ROOT

SHIPPED = {"digits", "flights", "stdlib_lm"}


def test_the_configurations_found_are_those_shipped() -> None:
    found = {file.stem for file in (ROOT / "pipelines").glob("*.yaml")}
    code = {file.stem for file in (ROOT / "pipelines").glob("*.py") if not file.stem.endswith("_settings")}
    assert found == code == SHIPPED


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_every_key_is_a_setting_and_counts(name: str) -> None:
    ref = find_pipeline(name, cwd=ROOT)
    document = parse_yaml(ref.config_file.read_text(encoding="utf-8"), name)
    settings = {leaf.keys for leaf in leaves(run_config_for(ref.model_settings()))}
    given = {path for path in document.places if path in settings}
    _, origins = load_config(ref)
    from_file = {key for key, origin in origins.items() if ref.config_file.name in origin}
    assert from_file == {".".join(map(str, path)) for path in given}
    assert len(given) >= 5
    assert origins["checkpoint.overhead"] == DEFAULT


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_each_pipeline_has_its_class_and_its_own_settings(name: str) -> None:
    ref = find_pipeline(name, cwd=ROOT)
    settings = ref.model_settings()
    assert issubclass(settings, ModelGuards)
    assert settings is not ModelGuards
    pipeline = ref.load()
    assert pipeline.main_metric in pipeline.metrics
    assert pipeline(load_config(ref).config.model).settings == load_config(ref).config.model
