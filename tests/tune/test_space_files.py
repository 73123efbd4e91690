"""Space files: those that are shipped, and what becomes of one when it is loaded."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pliant.config.dump import config_to_dict
from pliant.config.loader import load_settings
from pliant.config.yamlfile import Document, parse_yaml
from pliant.configure import LoadedConfig
from pliant.errors import ConfigError
from pliant.registry import find_space, known_spaces
from pliant.rules import RULES
from pliant.settings import RunConfig
from pliant.tune.spacefile import LoadedSweep, load_sweep, load_sweep_text
from pliant.tune.types import Params
from tests.command import ROOT
from tests.tune.spaces import SPACE, load

SHIPPED = {f"{name}_{kind}" for name in ("digits", "flights", "stdlib_lm") for kind in ("asha", "pbt")}


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def trial(sweep: LoadedSweep, params: Params, samples: int = 1_000_000) -> RunConfig:
    """The configuration of a trial at a point."""
    settings = sweep.space.settings(params, samples=samples, base=sweep.base)
    whole = Document(config_to_dict(sweep.base), {})
    loaded = load_settings(type(sweep.base), text=whole, source="base", overrides=settings, rules=RULES)
    return loaded.settings


def draws(sweep: LoadedSweep, count: int) -> list[Params]:
    chance = random.Random(1)
    return [sweep.space.draw(lambda name: chance.random()) for _ in range(count)]


def test_the_spaces_found_are_those_shipped() -> None:
    found = {file.stem for file in (ROOT / "search_spaces").glob("*.yaml")}
    assert found == SHIPPED == {file.stem for file in known_spaces(cwd=ROOT)}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_every_shipped_space_is_valid_and_all_its_points_are_configurations(name: str) -> None:
    pipeline, _, kind = name.rpartition("_")
    sweep = load_sweep(pipeline, name)
    assert parse_yaml(find_space(name).read_text(), name).value["pipeline"] == pipeline
    assert sweep.settings.scheduler.kind == kind
    assert {"schedule.peak", "train.global_batch"} <= sweep.space.by_name.keys()
    assert sweep.space.coupling == "sqrt"
    assert (sweep.metric, sweep.mode) == ("loss", "min")
    assert sweep.settings.trials == (27 if kind == "asha" else sweep.settings.scheduler.population)
    for params in draws(sweep, 20):
        config = trial(sweep, params)
        assert config.train.global_batch % (config.data.lanes or 0) == 0
        assert config.train.steps == -(-1_000_000 // config.train.global_batch)


def test_a_point_becomes_the_settings_of_a_trial(tmp_path: Path) -> None:
    space = """\
space:
  schedule:
    kind: [cosine, constant, wsd]
    peak: {log: [1e-4, 1e-2]}
    warmup_ratio: {float: [0, 0.5]}
    decay: {float: [0.1, 0.5]}
    final_ratio: {float: [0, 0.2]}
  train.global_batch: {choice: [32, 64, 256], lr: COUPLING}
  model.width: {int: [16, 64], step: 16}
  optim.kind: [adamw, sgd]
"""
    point = {"schedule.peak": 1e-3, "schedule.warmup_ratio": 0.1, "train.global_batch": 256, "model.width": 48}
    point |= {"optim.kind": "adamw"}
    rates = {}
    for coupling in ("none", "linear", "sqrt"):
        sweep = load(space.replace("COUPLING", coupling), tmp_path, "optim.betas=[0.9, 0.99]")
        rates[coupling] = trial(sweep, {**point, "schedule.kind": "constant"}).optim.lr
    assert rates == {"none": 1e-3, "linear": 4e-3, "sqrt": 2e-3}  # against 64, the pipeline's own
    assert [d.name for d in sweep.space.dimensions if d.when] == ["schedule.decay", "schedule.final_ratio"]
    assert not sweep.space.by_name["model.width"].mutable
    wsd = {**point, "schedule.kind": "wsd", "schedule.decay": 0.3, "schedule.final_ratio": 0.1}
    assert trial(sweep, wsd).optim.betas == (0.9, 0.99)
    assert trial(sweep, {**wsd, "optim.kind": "sgd"}).optim.betas == (0.9, 0.999)  # of no effect there: the default
    config = trial(sweep, wsd, samples=6400)
    schedule, train = config.schedule, config.train
    assert (schedule.unit, schedule.warmup, schedule.total) == ("samples", 640, 6400)
    assert (schedule.decay, schedule.final_ratio, config.model.model_dump()["width"]) == (0.3, 0.1, 48)
    assert (train.steps, train.epochs, train.global_batch) == (25, None, 256)
    constant = trial(sweep, {**point, "schedule.kind": "constant", "schedule.warmup_ratio": 0.0})
    assert (constant.schedule.unit, constant.schedule.warmup, constant.schedule.total) == ("samples", 1, None)


def test_a_schedule_in_steps_is_counted_in_samples(tmp_path: Path) -> None:
    sweep = load(SPACE, tmp_path, "schedule.total=300")
    assert sweep.base.schedule.model_dump() | {"kind": "cosine"} == {
        "kind": "cosine",
        "unit": "samples",
        "warmup": 20 * 64,
        "total": 300 * 64,
        "decay": 0.2,
        "final_ratio": 0.0,
    }
    assert sweep.origins["schedule.warmup"] == "sweep: trials count samples, whatever their batch; was 20 at 64"
    fixed = {"optim.lr": 1e-3, "model.width": 16}
    for batch in (32, 64):
        schedule = trial(sweep, {**fixed, "train.global_batch": batch}).schedule
        assert (schedule.warmup, schedule.total) == (1280, 19200)


def test_lanes_that_are_left_open_divide_every_batch(tmp_path: Path) -> None:
    def lanes(space: str, *overrides: str) -> tuple[int | None, str]:
        sweep = load(space, tmp_path, "data.lanes=null", *overrides)
        for params in draws(sweep, 50):
            trial(sweep, params)
        return sweep.base.data.lanes, sweep.origins["data.lanes"]

    found, origin = lanes(SPACE.replace("[32, 64]", "[48, 96, 128]"), "elastic.max_workers=3")
    assert found == 4
    assert origin == (
        "derived: the smallest divisor of every train.global_batch of the space (all of them multiples of 16)"
        " that is at least elastic.max_workers 3"
    )
    assert lanes(SPACE.replace("choice: [32, 64]", "int: [32, 64]"), "elastic.max_workers=8")[0] == 8
    assert lanes(SPACE.replace("choice: [32, 64]", "int: [40, 120], step: 20"))[0] == 2
    with pytest.raises(ConfigError, match="their greatest common divisor is 1") as caught:
        lanes(SPACE.replace("[32, 64]", "[32, 33]"))
    assert caught.value.code == "config.lanes"
    assert caught.value.hint.endswith("or elastic.max_workers=1")


def test_a_range_of_batches_goes_in_multiples_of_the_lanes(tmp_path: Path) -> None:
    sweep = load(SPACE.replace("choice: [32, 64]", "int: [32, 64], log: true"), tmp_path)
    assert sweep.space.by_name["train.global_batch"].values == tuple(range(32, 65, 4))


def test_fixed_settings_lie_between_the_file_and_the_command_line(tmp_path: Path) -> None:
    space = SPACE + "settings: {train.epochs: 3, model: {depth: 3}, optim.weight_decay: 0.5}\n"
    sweep = load(space, tmp_path, "train.epochs=5", "sweep.slots=2", "sweep.scheduler={kind: asha, eta: 4}")
    assert (sweep.base.train.epochs, sweep.base.model.model_dump()["depth"]) == (5, 3)
    assert sweep.origins["train.epochs"] == "override train.epochs=5"
    assert sweep.origins["model.depth"].endswith("s.yaml:7:37")
    assert sweep.origins["optim.weight_decay"].endswith("s.yaml:7:48")
    assert (sweep.settings.slots, sweep.settings.trials, sweep.settings.scheduler.eta) == (2, 9, 4)
    assert sweep.sweep_origins["sweep.slots"] == "override sweep.slots=2"
    assert sweep.sweep_origins["sweep.trials"].endswith("s.yaml:2:9")
    assert sweep.sweep_origins["sweep.seed"] == "default"
    from_python = load_sweep("digits", str(tmp_path / "s.yaml"), {"sweep.trials": 7, "optim.eps": 1e-6})
    assert (from_python.settings.trials, from_python.base.optim.eps) == (7, 1e-6)


def test_the_trials_of_a_grid_and_of_a_population_are_derived(tmp_path: Path) -> None:
    space = "space: {model.depth: [1, 2, 3], model.width: {int: [16, 64], step: 16}}\n"
    grid = load(space, tmp_path, "sweep.searcher.kind=grid")
    assert grid.settings.trials == len(list(grid.space.grid())) == 12
    assert grid.sweep_origins["sweep.trials"] == "derived: the 12 points of the grid"
    population = load("space: {optim.lr: {log: [1e-4, 1e-2]}}\n", tmp_path, "sweep.scheduler.kind=pbt")
    assert population.settings.trials == 8
    assert population.sweep_origins["sweep.trials"] == "derived: the 8 members of the population"


def test_what_a_sweep_has_recorded_gives_the_same_sweep(tmp_path: Path) -> None:
    text = SPACE.replace("pipeline: digits\n", "") + "constraints: [train.global_batch >= 2 * train.micro_batch]\n"
    first = load(text, tmp_path, "data.lanes=null", "elastic.max_workers=4", "train.epochs=3")
    recorded = LoadedConfig(first.base, dict(first.origins))
    again = load_sweep_text(first.ref, text, source="recorded", recorded=recorded)
    assert (again.base, again.space, again.origins) == (first.base, first.space, first.origins)
    narrower = text.replace("[32, 64]", "[64]").replace("1e-2", "5e-3")
    changed = load_sweep_text(first.ref, narrower, ["sweep.trials=30"], source="narrower", recorded=recorded)
    assert changed.base.data.lanes == first.base.data.lanes == 4
    assert first.space.contains_space(changed.space)
    assert changed.settings.trials == 30


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = """\
pipeline: flights
sweep: {trails: 9}
settings: {train.epoch: 3}
space:
  optim.lr: {log: [0, 1e-2]}
  model.widht: [16, 32]
  schedule: {kind: []}
constraints: [1 <]
"""
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path, "sweep.slots=0", "train.microbatch=3")
    lines = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert lines[0] == "error[config.invalid] 9 problems"
    places = [line.split("  ")[1] for line in lines[1:] if line[2] != " "]
    assert places == ["s.yaml:1:1", "s.yaml:2:9", "s.yaml:3:12", "s.yaml:5:14", "s.yaml:6:3", "s.yaml:7:14",
                      "s.yaml:8:15", "override sweep.slots=0", "override train.microbatch=3"]  # fmt: skip


def test_rules_of_a_pipelines_own_settings_are_asked_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("space: {model.width: {int: [64, 128]}, model.heads: [2, 4]}\n")
    with pytest.raises(ConfigError) as caught:
        load_sweep("stdlib_lm", str(tmp_path / "s.yaml"))
    assert caught.value.code == "space.point"
    assert "must be a multiple of 2 × heads" in caught.value.message
    (tmp_path / "s.yaml").write_text("space: {model.width: {int: [64, 128], step: 8}, model.heads: [2, 4]}\n")
    assert load_sweep("stdlib_lm", str(tmp_path / "s.yaml")).settings.trials == 20


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "digit_asha",
            "error[space.unknown] there is no search space digit_asha; known: KNOWN\n  did you mean digits_asha",
        ),
        ("zzz", "error[space.unknown] there is no search space zzz; known: KNOWN\n  they lie in search_spaces/"),
        ("no/such.yaml", f"error[space.unknown] {ROOT}/no/such.yaml  there is no such file\n  give the path of a YAML"),
    ],
)
def test_a_space_that_there_is_not(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_sweep("digits", name)
    assert str(caught.value).startswith(message.replace("KNOWN", ", ".join(sorted(SHIPPED))))


def test_a_space_of_this_folder_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(SPACE)
    with pytest.raises(ConfigError, match=r"did you mean \./mine\.yaml\?"):
        find_space("mine")
    values: dict[str, Any] = {"x": find_space("mine.yaml")}
    assert values == {"x": tmp_path / "mine.yaml"}
