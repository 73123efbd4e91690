"""Which settings hold for which step, and how many steps that makes: against steps taken one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.configure import load_config, load_config_text
from pliant.data.plan import Tail, batch_shares, steps_in
from pliant.errors import ConfigError
from pliant.settings import RunConfig
from pliant.train.phases import Course, largest_batch, plan_course
from pliant.train.schedule import lr_factor

LANES = 4


def _config(length: dict[str, Any], tail: Tail, phases: list[tuple[int, dict[str, Any]]], **schedule: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"path": "nowhere", "lanes": LANES, "tail": tail},
            "train": {"global_batch": 32, "micro_batch": 4, **length},
            "schedule": schedule,
            "phases": [{"from_samples": samples, "settings": settings} for samples, settings in phases],
        }
    )


def _walk(course: Course, rows: int, tail: Tail) -> list[tuple[int, int, int, int]]:
    """(samples, epoch, position before, batch) of each step, and of what would be the next one."""
    samples, epoch, position, steps = 0, 0, 0, []
    for _ in range(course.steps + 1):
        batch = course.batch(samples)
        steps.append((samples, epoch, position, batch))
        _, epoch, position, taken = batch_shares(
            rows=rows, lanes=LANES, global_batch=batch, epoch=epoch, position=position, tail=tail
        )
        samples += taken
    return steps


batches = st.integers(1, 12).map(lambda lanes: lanes * LANES)
phase_lists = st.lists(st.tuples(st.integers(1, 900), batches), max_size=4, unique_by=lambda phase: phase[0]).map(
    sorted
)
tails: st.SearchStrategy[Tail] = st.sampled_from(["carry", "pad", "drop"])


@given(rows=st.integers(50, 300), tail=tails, phases=phase_lists, epochs=st.floats(0.5, 4))
def test_epochs_lead_to_a_place_whatever_the_batches(
    rows: int, tail: Tail, phases: list[tuple[int, int]], epochs: float
) -> None:
    config = _config({"epochs": epochs}, tail, [(n, {"train.global_batch": batch}) for n, batch in phases])
    course = plan_course(config, rows)
    steps = _walk(course, rows, tail)
    for samples, _, _, batch in steps[:-1]:
        held = [b for start, b in phases if start <= samples and start not in course.unreached]
        assert batch == (held[-1] if held else 32)
    for phase in course.phases:
        assert steps[phase.step][0] == phase.samples
    assert all(a.step < b.step for a, b in pairwise(course.phases))
    assert all(start > steps[-2][0] for start in course.unreached)
    end = divmod(round(rows * epochs), rows)
    if tail == "drop":
        _, epoch, position, batch = steps[-1]
        _, *after, _ = batch_shares(
            rows=rows, lanes=LANES, global_batch=batch, epoch=epoch, position=position, tail=tail
        )
        assert tuple(after) > end or course.steps == 1
    else:
        before, after_last = steps[-2][1:3], steps[-1][1:3]
        assert before < end <= after_last


@given(rows=st.integers(50, 300), tail=tails, phases=phase_lists, length=st.integers(1, 40))
def test_steps_are_counted_whatever_their_batch(
    rows: int, tail: Tail, phases: list[tuple[int, int]], length: int
) -> None:
    config = _config({"steps": length}, tail, [(n, {"train.global_batch": batch}) for n, batch in phases])
    course = plan_course(config, rows)
    assert course.steps == length
    steps = _walk(course, rows, tail)
    for samples, _, _, batch in steps[:-1]:
        held = [b for start, b in phases if start <= samples]
        assert batch == (held[-1] if held else 32)
    assert largest_batch(config) >= max(batch for *_, batch in steps[:-1])


@given(rows=st.integers(50, 300), tail=tails, epochs=st.floats(0.5, 4), unit=st.sampled_from(["steps", "samples"]))
def test_without_phases_nothing_is_new(rows: int, tail: Tail, epochs: float, unit: str) -> None:
    course = plan_course(_config({"epochs": epochs}, tail, [], unit=unit), rows)
    steps = steps_in(rows, 32, tail, epochs)
    assert course.steps == steps
    (phase,) = course.phases
    assert (phase.total, phase.shift) == (steps if unit == "steps" else 32 * steps, 0)
    assert plan_course(_config({"epochs": epochs}, tail, []), rows, total_steps=2).phases[0].total == 2


def _rates(config: RunConfig, rows: int) -> dict[int, float]:
    """The rate's share of the peak by the samples before each step."""
    course, rates = plan_course(config, rows), {}
    for step, (samples, _, _, batch) in enumerate(_walk(course, rows, "carry")[:-1]):
        phase = course.at(samples)
        before = step + phase.shift if phase.schedule.unit == "steps" else samples
        grown = 1 if phase.schedule.unit == "steps" else batch
        rates[samples] = lr_factor(phase.schedule, before=before, after=before + grown, total=phase.total)
    return rates


@pytest.mark.parametrize("unit", ["steps", "samples"])
def test_the_rate_at_some_sample_is_that_of_the_phase_alone(unit: str) -> None:
    rows = 320
    doubled = _rates(_config({"epochs": 4}, "carry", [(640, {"train.global_batch": 64})], unit=unit), rows)
    small = _rates(_config({"epochs": 4}, "carry", [], unit=unit), rows)
    assert list(doubled) == [*range(0, 640, 32), *range(640, 1280, 64)]
    assert doubled == {samples: small[samples] for samples in doubled}


def test_phases_change_the_schedule_and_what_is_never_reached_is_said() -> None:
    phases = [(100, {"optim.lr": 0.5}), (200, {"schedule.kind": "constant", "train.clip_norm": None}), (9999, {})]
    course = plan_course(_config({"steps": 20}, "carry", phases), 100)
    assert [(p.samples, p.optim.lr, p.schedule.kind, p.train.clip_norm) for p in course.phases] == [
        (0, 1e-3, "cosine", 1.0), (128, 0.5, "cosine", 1.0), (224, 0.5, "constant", None),
    ]  # fmt: skip
    assert course.unreached == (9999,)


FILE = """\
data: {path: somewhere, lanes: 4}
train: {global_batch: 32, micro_batch: 4, steps: 20}
phases:
  - from_samples: 300
    settings:
      optim.lr: 0.01
  - from_samples: 600
    settings: {optim.weight_decay: 0.1}
"""
MISTAKES = {
    "another key": (("optim.lr: 0.01", "optim.rl: 0.01"), "f.yaml:6:7  phases[0].settings: optim.rl is not a setting"),
    "a value": (("optim.lr: 0.01", "optim.lr: -1"), "f.yaml:6:7  phases[0]: optim.lr is -1; allowed: a number above 0"),
    "a batch": (
        ("optim.lr: 0.01", "train.global_batch: 30"),
        "f.yaml:6:7  phases[0]: train.global_batch is 30, not a multiple of data.lanes 4",
    ),
    "frozen": (
        ("{optim.weight_decay: 0.1}", "{optim.kind: sgd}"),
        "f.yaml:8:16  phases[1] cannot change optim.kind: it holds for the whole run",
    ),
    "the length": (
        ("{optim.weight_decay: 0.1}", "{train.steps: 30}"),
        "f.yaml:8:16  phases[1] cannot change train.steps: the length is one of the whole run",
    ),
    "the micro-batch": (
        ("{optim.weight_decay: 0.1}", "{train.micro_batch: 2}"),
        "f.yaml:8:16  phases[1] cannot change train.micro_batch: it is a condition of exact results",
    ),
    "without effect": (
        ("{optim.weight_decay: 0.1}", "{schedule.decay: 0.3}"),
        "f.yaml:8:16  phases[1]: schedule.decay has no effect with schedule.kind cosine",
    ),
    "order": (("600", "300"), "f.yaml:7:5  phases[1].from_samples is 300, not above 300 of the phase before it"),
    "no beginning": (("from_samples: 300\n    s", "s"), "f.yaml:4:5  phases[0].from_samples is missing"),
    "not a number": (("600", "true"), "f.yaml:7:5  phases[1].from_samples is true; allowed: a whole number at least 1"),
    "a stranger": (("from_samples: 600", "from: 600"), "f.yaml:7:5  phases[1].from is not a setting"),
}


@pytest.mark.parametrize(("change", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_named_where_they_stand(change: tuple[str, str], message: str) -> None:
    assert change[0] in FILE
    with pytest.raises(ConfigError) as raised:
        load_config_text(None, FILE.replace(*change), source="f.yaml")
    assert message in str(raised.value)


def test_phases_are_written_out_and_read_again() -> None:
    from pliant.config.dump import config_to_yaml

    config = load_config_text(None, FILE, source="f.yaml").config
    assert [phase.from_samples for phase in config.phases] == [300, 600]
    assert load_config_text(None, config_to_yaml(config), source="again").config == config
    override = "phases=[{from_samples: 64, settings: {optim.lr: 0.5, train.global_batch: 64}}]"
    (phase,) = load_config("digits", [override]).config.phases
    assert phase.settings == {"optim.lr": 0.5, "train.global_batch": 64}
