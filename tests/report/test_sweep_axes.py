"""Axes of a sweep's figures, from a recorded space and the points of its trials."""

from __future__ import annotations

import pytest

from pliant.report.sweep_axes import Axis, Scale, dimensions_of, scale_of
from pliant.report.sweep_figures import by_scale

CONTENT = {
    "space": {
        "schedule": {
            "kind": ["cosine", "wsd"],
            "peak": {"log": [3e-4, 3e-2]},
            "decay": {"float": [0.1, 0.6], "when": {"schedule.kind": ["wsd"]}},
        },
        "train.global_batch": {"choice": [128, 32, 64], "lr": "sqrt"},
        "model.width": {"int": [16, 128], "log": True},
        "model.bias": [True, False],
        "optim.odd": {"of another": "version"},
    }
}


def test_axes_are_those_of_the_space() -> None:
    points = [{"schedule.kind": "wsd", "optim.odd": 3.0, "optim.new": "a"}, {"optim.odd": 5, "optim.new": "b"}]
    found = {d.name: Axis(d) for d in dimensions_of(CONTENT, points)}
    assert list(found) == [
        *("schedule.kind", "schedule.peak", "schedule.decay", "train.global_batch", "model.width", "model.bias"),
        *("optim.odd", "optim.new"),
    ]
    assert found["schedule.peak"].place(3e-3) == pytest.approx(0.5)
    assert found["schedule.decay"].place(0.35) == pytest.approx(0.5)
    assert found["model.width"].place(16) == 0
    assert [t.text for t in found["train.global_batch"].ticks()] == ["32", "64", "128"]
    assert [t.text for t in found["model.bias"].ticks()] == ["true", "false"]
    assert [found["optim.odd"].place(v) for v in (3.0, 4, 5)] == [0, 0.5, 1]
    assert [t.text for t in found["optim.new"].ticks()] == ["a", "b"]


def test_without_a_record_axes_are_those_of_the_points() -> None:
    (dimension,) = dimensions_of(None, [{"optim.lr": 0.01}])
    axis = Axis(dimension)
    assert axis.place(0.01) == 0.5
    assert [t.text for t in axis.ticks()] == ["0.01"]
    assert dimensions_of({"space": None}, []) == ()


def test_what_lies_beyond_a_scale_is_at_its_end() -> None:
    assert [Scale(1.0, 100.0, log=True).place(v) for v in (0.1, 10.0, 1e6)] == pytest.approx([0, 0.5, 1])
    assert scale_of([]) is None
    same = scale_of([2.0, 2.0])
    assert same is not None
    assert same.place(2.0) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("values", "mode", "names", "shown"),
    [
        ([0.5, 0.9], "max", ["linear"], "linear"),
        ([0.1, 0.5], "min", ["linear", "log"], "linear"),
        ([0.01, 5.0], "min", ["linear", "log"], "log"),
        ([-1.0, 5.0], "min", ["linear"], "linear"),
        ([], "min", ["linear"], "linear"),
    ],
)
def test_a_logarithmic_axis_is_there_where_it_shows_more(
    values: list[float], mode: str, names: list[str], shown: str
) -> None:
    drawings, first = by_scale(values, "min" if mode == "min" else "max", lambda y: [])
    assert ([d.name for d in drawings], first) == (names, shown)
