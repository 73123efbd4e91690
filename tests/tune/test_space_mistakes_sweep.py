"""Mistakes in what a space file says of the sweep and of its trials: each one clear message, word for word."""

from __future__ import annotations

import pytest

from tests.tune.spaces import DIMENSIONS, SPACE, Refused, refused

__all__ = ["refused"]

MISTAKES = [
    (
        "a metric that there is not",
        ("{trials: 9}", "{metric: acuracy}"),
        [],
        "error[space.metric] s.yaml:2:9  sweep.metric is 'acuracy'; the pipeline's metrics are"
        " loss, accuracy\n"
        "  did you mean accuracy?",
    ),
    (
        "a grid with floats",
        ("{trials: 9}", "{searcher: {kind: grid}}"),
        [],
        "error[space.grid] s.yaml:2:20  a grid has no floats, and the space has optim.lr\n"
        "  list choices for them, or use sweep.searcher.kind=random",
    ),
    (
        "too large a grid",
        ("{log: [1e-4, 1e-2]}", "[1e-4, 1e-3, 3e-3, 1e-2, 3e-2]"),
        ["sweep.searcher.kind=grid"],
        "error[space.grid] override sweep.searcher.kind=grid  the grid has more than 1000"
        " points; at most 1000 are tried one by one\n"
        "  use sweep.searcher.kind=random",
    ),
    (
        "a far too large grid",
        ("{log: [1e-4, 1e-2]}", "[1e-4, 1e-2]\n  train.micro_batch: {int: [1, 10000]}"),
        ["sweep.searcher.kind=grid"],
        "error[space.grid] override sweep.searcher.kind=grid  the grid has 4,520,000 points; at"
        " most 1000 are tried one by one\n"
        "  use sweep.searcher.kind=random",
    ),
    (
        "fewer trials than the grid has points",
        (
            DIMENSIONS,
            "  model.depth: [1, 2, 3]\n",
        ),
        ["sweep.searcher.kind=grid", "sweep.trials=2"],
        "error[space.grid] override sweep.trials=2  sweep.trials is 2, and the grid has 3 points\n"
        "  leave it out to try all of them, or list fewer choices",
    ),
    (
        "a population under a model",
        ("{trials: 9}", "{scheduler: {kind: pbt}, searcher: {kind: tpe}}"),
        [],
        "error[config.value] s.yaml:2:9  sweep: pbt draws its population at random; sweep.searcher.kind is 'tpe'",
    ),
    (
        "fewer trials than the population",
        ("{trials: 9}", "{trials: 4, scheduler: {kind: pbt}}"),
        [],
        "error[space.population] s.yaml:2:9  sweep.trials is 4, below sweep.scheduler.population 8\n"
        "  leave it out: it is then the population",
    ),
    (
        "fewer slots than an asynchronous population",
        ("{trials: 9}", "{slots: 4, scheduler: {kind: pbt, sync: false}}"),
        [],
        "error[space.population] s.yaml:2:9  sweep.slots is 4, below sweep.scheduler.population"
        " 8: the others would never begin\n"
        "  use sweep.slots=8, a smaller population, or sweep.scheduler.sync=true",
    ),
    (
        "a population that cannot change",
        (
            DIMENSIONS,
            "  model.width: {int: [16, 128]}\n",
        ),
        ["sweep.scheduler.kind=pbt", "sweep.trials=8"],
        "error[space.population] override sweep.scheduler.kind=pbt  pbt changes settings in the"
        " middle of a run, and none of those searched can change there: model.width\n"
        "  search the learning rate, the schedule or train.global_batch too",
    ),
    (
        "choices alone under a model over numbers",
        (
            DIMENSIONS,
            "  train.global_batch: [32, 64]\n",
        ),
        ["sweep.scheduler.kind=pb2", "sweep.trials=8"],
        "error[space.population] override sweep.scheduler.kind=pb2  pb2 fits a model over"
        " numbers, and those that can change in the middle of a run are choices:"
        " train.global_batch\n"
        "  search a range, or use sweep.scheduler.kind=pbt",
    ),
    (
        "another pipeline",
        ("pipeline: digits", "pipeline: flights"),
        [],
        "error[space.pipeline] s.yaml:1:1  the space is for the pipeline flights, not for digits\n"
        "  use --space with one for digits, or leave pipeline out of the file",
    ),
    (
        "no space",
        (
            SPACE,
            "",
        ),
        [],
        "error[config.missing] s.yaml  space is missing; needed: a mapping, each value anything of length at least 1",
    ),
    (
        "an empty space",
        (
            SPACE,
            "space: {}",
        ),
        [],
        "error[config.value] s.yaml:1:1  space is {}; allowed: a mapping, each value anything of length at least 1",
    ),
    (
        "a misspelt section of the file",
        ("sweep:", "sweeep:"),
        [],
        "error[config.unknown-key] s.yaml:2:1  sweeep is not a setting\n  did you mean sweep?",
    ),
    (
        "a misspelt setting of the sweep",
        ("trials:", "trails:"),
        [],
        "error[config.unknown-key] s.yaml:2:9  sweep.trails is not a setting\n"
        "  did you mean sweep.trials (a whole number at least 1, default 20)?",
    ),
    (
        "a misspelt fixed setting",
        ("{trials: 9}", "{trials: 9}\nsettings: {train.epoch: 3}"),
        [],
        "error[config.unknown-key] s.yaml:3:12  train.epoch is not a setting\n"
        "  did you mean train.epochs (a number above 0 or null)?",
    ),
    (
        "a fixed setting of the wrong type",
        ("{trials: 9}", "{trials: 9}\nsettings: {train.epochs: many}"),
        [],
        "error[config.value] s.yaml:3:12  train.epochs is 'many'; allowed: a number above 0 or null",
    ),
    (
        "a setting that is fixed and searched",
        ("{trials: 9}", "{trials: 9}\nsettings: {model.width: 32}"),
        [],
        "error[config.no-effect] s.yaml:3:12  model.width has no effect: the space searches it\n"
        "  leave one of them out",
    ),
    (
        "an override of what is searched",
        ("{trials: 9}", "{trials: 9}"),
        ["optim.lr=1e-3"],
        "error[config.no-effect] override optim.lr=1e-3  optim.lr has no effect: the space"
        " searches it\n"
        "  leave one of them out",
    ),
    (
        "a phase that sets what is searched",
        ("{trials: 9}", "{trials: 9}\nsettings: {phases: [{from_samples: 640, settings: {optim.lr: 1e-3}}]}"),
        [],
        "error[config.no-effect] s.yaml:3:12  phases[0] sets optim.lr, and the space searches optim.lr\n"
        "  leave one of them out",
    ),
    (
        "a phase that counts in steps",
        ("{trials: 9}", "{trials: 9}\nsettings: {phases: [{from_samples: 640, settings: {schedule.warmup: 30}}]}"),
        [],
        "error[config.schedule] s.yaml:3:12  phases[0] gives schedule.warmup in steps, and trials of a sweep count"
        " samples\n"
        "  use schedule.unit=samples",
    ),
    (
        "a misspelt override of the sweep",
        ("{trials: 9}", "{trials: 9}"),
        ["sweep.slot=2"],
        "error[config.unknown-key] override sweep.slot=2  sweep.slot is not a setting\n"
        "  did you mean sweep.slots (a whole number at least 1 or null)?",
    ),
    (
        "a misspelt section in an override",
        ("{trials: 9}", "{trials: 9}"),
        ["swep.slots=2"],
        "error[config.unknown-key] override swep.slots=2  swep is not a setting\n  did you mean sweep?",
    ),
    (
        "a misspelt override of the trials",
        ("{trials: 9}", "{trials: 9}"),
        ["train.epoch=2"],
        "error[config.unknown-key] override train.epoch=2  train.epoch is not a setting\n"
        "  did you mean train.epochs (a number above 0 or null)?",
    ),
    (
        "no YAML",
        ("{trials: 9}", "{trials: 9"),
        [],
        "error[config.yaml] s.yaml:3:6  not YAML: expected ',' or '}', but got ':'",
    ),
    (
        "a key twice",
        ("model.width: {int: [16, 128]}", "model.width: {int: [16, 128]}\n  model.width: {int: [16, 128]}"),
        [],
        "error[config.duplicate-key] s.yaml:7:3  space.model.width stands here a second time;"
        " the first is at s.yaml:6:3\n"
        "  keep one of them",
    ),
    (
        "a list instead of a mapping",
        (
            SPACE,
            "- a",
        ),
        [],
        "error[config.yaml] s.yaml:1:1  holds ['a']; needed: a mapping",
    ),
]


@pytest.mark.parametrize(("change", "overrides", "message"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_the_message(change: tuple[str, str], overrides: list[str], message: str, refused: Refused) -> None:
    assert refused(change, overrides) == message
