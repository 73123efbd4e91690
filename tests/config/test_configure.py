"""From pipeline and overrides to a consistent configuration."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pliant.config.dump import config_to_yaml
from pliant.config.problems import ConfigErrors
from pliant.configure import derived_at_start, load_config, load_config_text, with_lanes
from pliant.errors import ConfigError
from pliant.registry import find_pipeline
from pliant.rules import RULES
from pliant.settings import RunConfig
from tests.command import python

BASE = {"data.path": "d", "train.global_batch": 32, "train.micro_batch": 8, "train.steps": 10}


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names mean the project's own pipelines, and files are not relative to the checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A pipeline that has neither settings nor a configuration file."""
    (tmp_path / "bare.py").write_text("")
    return "./bare.py"


def problems(pipeline: str, **changes: object) -> list[tuple[str, str, str]]:
    """(location, message, hint) of all problems."""
    overrides = BASE | {key.replace("__", "."): value for key, value in changes.items()}
    with pytest.raises(ConfigError) as caught:
        load_config(pipeline, overrides)
    error = caught.value
    return [(error.code, error.message, error.hint)]


def test_lanes_are_settled_and_say_why(bare: str) -> None:
    config, origins = load_config(bare, BASE | {"elastic.max_workers": 3})
    assert config.data.lanes == 4
    assert origins["data.lanes"] == (
        "derived: the smallest divisor of train.global_batch 32 that is at least elastic.max_workers 3"
    )
    assert with_lanes(config) is config


def test_what_a_start_would_derive_is_said_with_what_it_comes_from(bare: str) -> None:
    config, _ = load_config(
        bare, BASE | {"train.steps": None, "train.epochs": 2.5, "elastic.resources_per_worker.GPU": 1}
    )
    assert derived_at_start(config) == {
        "data.validation": "d/validation, where there is one",
        "data.columns": "those that the pipeline names, else all",
        "train.steps": "train.epochs 2.5 of the dataset's rows, in steps of train.global_batch 32",
        "train.threads": "1, the whole CPUs of elastic.resources_per_worker",
        "train.device": "cuda, where it works, by elastic.resources_per_worker",
        "schedule.total": "the run's own length",
        "eval.micro_batch": "8, as train.micro_batch",
        "checkpoint.every_steps": "when checkpoint.overhead allows one, and by checkpoint.max_interval",
        "tracking.uri": f"sqlite:///{Path.cwd()}/runs/mlflow.db, mlflow.db under run.storage",
        "tracking.experiment": "the pipeline's name",
    }
    samples = load_config(bare, BASE | {"schedule.unit": "samples", "data.validation": "v", "data.columns": ["a"]})
    assert derived_at_start(samples.config)["schedule.total"] == "320, the run's own length"
    settled = {
        "tracking.kind": "none",
        "train.device": "cpu",
        "train.threads": 1,
        "schedule.kind": "constant",
        "checkpoint.every_steps": 5,
    }
    assert set(derived_at_start(load_config(bare, BASE | settled).config)) == {
        "data.validation", "data.columns", "eval.micro_batch",
    }  # fmt: skip


def test_rules_are_asked_while_something_else_is_wrong(bare: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_config(bare, BASE | {"train.epochs": 2, "train.micro_batch": 0, "data.lanes": 5, "optim.momentum": 0.5})
    assert [(p.code, p.message) for p in caught.value.problems] == [
        ("config.global-batch", "train.global_batch is 32, not a multiple of data.lanes 5"),
        ("config.value", "train.micro_batch is 0; allowed: a whole number at least 1"),
        ("config.value", "train: exactly one of train.steps and train.epochs is needed, found both"),
        ("config.no-effect", "optim.momentum has no effect with optim.kind adamw"),
    ]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.problems[0].code) == (str(caught.value), "config.global-batch")


def test_no_rule_is_asked_about_what_is_wrong_itself(bare: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(bare, BASE | {"data.lanes": "x", "elastic.max_workers": 99})
    assert caught.value.message == "data.lanes is 'x'; allowed: a whole number at least 1 or null"


def test_a_misspelt_section_is_one_problem(bare: str) -> None:
    Path("bare.yaml").write_text("data: {path: d}\ntrian: {global_batch: 8, micro_batch: 8, steps: 5}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(bare)
    assert str(caught.value) == "error[config.unknown-key] bare.yaml:2:1  trian is not a setting\n  did you mean train?"


def test_the_default_is_never_without_effect(bare: str) -> None:
    config, _ = load_config(bare, BASE | {"optim.kind": "sgd", "optim.betas": [0.9, 0.999], "schedule.decay": 0.2})
    assert config.optim.kind == "sgd"


def test_given_lanes_stay(bare: str) -> None:
    config, origins = load_config(bare, BASE | {"data.lanes": 16})
    assert config.data.lanes == 16
    assert origins["data.lanes"] == "override data.lanes=16"


def test_a_recorded_configuration_loads_again_with_overrides(bare: str) -> None:
    config, origins = load_config(bare, BASE | {"elastic.max_workers": 3})
    again = load_config_text(find_pipeline(bare), config_to_yaml(config), source="run r")
    assert again.config == config
    assert again.origins["data.lanes"].startswith("run r:")
    text, recorded = config_to_yaml(config), {**origins, "optim.momentum": "default"}
    kept = load_config_text(find_pipeline(bare), text, ["optim.lr=1"], source="run r", recorded=recorded)
    assert kept.origins == {**origins, "optim.lr": "override optim.lr=1"}
    with pytest.raises(ConfigError, match=r"elastic\.max_workers is 5, above data\.lanes 4"):
        load_config_text(find_pipeline(bare), config_to_yaml(config), ["elastic.max_workers=5"], source="run r")


def test_a_missing_file_is_named(bare: str) -> None:
    with pytest.raises(ConfigError, match=r"bare\.yaml \(no such file\)  data\.path is missing"):
        load_config(bare)


def test_places_are_relative_to_the_working_directory(bare: str) -> None:
    Path("bare.yaml").write_text("sed: 1\ndata: {path: x}\ntrain: {global_batch: 2, micro_batch: 1, steps: 1}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(bare)
    assert caught.value.location == "bare.yaml:1:1"


@pytest.mark.parametrize(
    ("changes", "code", "message", "hint"),
    [
        (
            {"data__lanes": 12},
            "config.global-batch",
            "train.global_batch is 32, not a multiple of data.lanes 12",
            "the nearest that fit: 24 or 36",
        ),
        (
            {"data__lanes": 64},
            "config.global-batch",
            "train.global_batch is 32, not a multiple of data.lanes 64",
            "the nearest that fit: 64",
        ),
        (
            {"elastic__max_workers": 33},
            "config.lanes",
            "elastic.max_workers is 33, above train.global_batch 32: a worker would get no row",
            "use elastic.max_workers=32 or less, or a larger train.global_batch",
        ),
        (
            {"elastic__max_workers": 9, "data__lanes": 8},
            "config.lanes",
            "elastic.max_workers is 9, above data.lanes 8: each worker needs a lane of its own",
            "use elastic.max_workers=8 or less; a new run may have more lanes",
        ),
        (
            {"elastic__resources_per_worker": {"CPU": 0}},
            "config.resources",
            "elastic.resources_per_worker.CPU is 0; allowed: a number above 0",
            "leave it out to ask for none",
        ),
        (
            {"optim__momentum": 0.9},
            "config.no-effect",
            "optim.momentum has no effect with optim.kind adamw",
            "leave it at its default 0.0, or use optim.kind=sgd",
        ),
        (
            {"optim__kind": "sgd", "optim__nesterov": True},
            "config.value",
            "optim: nesterov needs momentum, and momentum is 0; set it, or leave nesterov out",
            "",
        ),
        (
            {"schedule__unit": "tokens"},
            "config.schedule",
            "schedule.unit is tokens, but how many tokens a run has is known only from schedule.total",
            "set schedule.total",
        ),
        (
            {"schedule__warmup": 11},
            "config.schedule",
            "schedule.warmup is 11, above the schedule's whole length of 10 steps",
            "shorten it",
        ),
        (
            {"schedule__warmup": 321, "schedule__unit": "samples"},
            "config.schedule",
            "schedule.warmup is 321, above the schedule's whole length of 320 samples",
            "shorten it",
        ),
        (
            {"checkpoint__min_interval": "11min"},
            "config.value",
            "checkpoint: min_interval 660 s is above max_interval 600 s; lower the one or raise the other",
            "",
        ),
    ],
)
def test_rules_between_sections(bare: str, changes: dict[str, object], code: str, message: str, hint: str) -> None:
    assert problems(bare, **changes) == [(code, message, hint)]


def test_broken_rules_are_all_listed_with_the_place_to_look_at(bare: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(bare, BASE | {"data.lanes": 12, "optim.momentum": 0.9})
    text = str(caught.value)
    assert text.startswith(
        "error[config.invalid] 2 problems\n  override train.global_batch=32  train.global_batch is 32"
    )
    assert "\n  override optim.momentum=0.9  optim.momentum has no effect" in text


def test_what_fits_has_no_problem() -> None:
    config = RunConfig.model_validate(
        {
            "data": {"path": "d", "lanes": 8},
            "train": {"global_batch": 32, "micro_batch": 3, "epochs": 2},
            "optim": {"kind": "sgd", "momentum": 0.9, "nesterov": True},
            "schedule": {"unit": "tokens", "total": 1000, "warmup": 1000},
            "elastic": {"max_workers": 8},
        }
    )
    assert [problem for check in RULES for problem in check(config)] == []


def test_configuration_needs_nothing_heavy() -> None:
    code = (
        "import sys; from pliant import load_config; load_config('digits'); "
        "print([m for m in ('torch', 'ray', 'pyarrow', 'pandas', 'obstore') if m in sys.modules])"
    )
    done = python("-c", code)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
