"""Mistakes in what a space file says of several settings together: each one clear message, word for word."""

from __future__ import annotations

import pytest

from tests.tune.spaces import Refused, refused

__all__ = ["refused"]

MISTAKES = [
    (
        "a condition on what is not searched",
        ("{int: [16, 128]}", "{int: [16, 128], when: {model.depth: 2}}"),
        [],
        "error[space.condition] s.yaml:6:40  model.width depends on model.depth, which is not"
        " searched\n"
        "  those searched are optim.lr, train.global_batch, model.width",
    ),
    (
        "a misspelt condition",
        ("{int: [16, 128]}", "{int: [16, 128], when: {train.globl_batch: 32}}"),
        [],
        "error[space.condition] s.yaml:6:40  model.width depends on train.globl_batch, which is"
        " not searched\n"
        "  did you mean train.global_batch?",
    ),
    (
        "a condition on a value that is never taken",
        ("{int: [16, 128]}", "{int: [16, 128], when: {train.global_batch: [32, 128]}}"),
        [],
        "error[space.condition] s.yaml:6:40  model.width depends on train.global_batch 128, a"
        " value that it never takes\n"
        "  its values are 32, 64",
    ),
    (
        "a condition on a float",
        ("{int: [16, 128]}", "{int: [16, 128], when: {optim.lr: 1e-3}}"),
        [],
        "error[space.condition] s.yaml:6:40  model.width depends on optim.lr, which is no choice\n"
        "  conditions are on choices and whole numbers",
    ),
    (
        "a condition on itself",
        ("{int: [16, 128]}", "{int: [16, 128], when: {model.width: 16}}"),
        [],
        "error[space.condition] s.yaml:6:40  model.width depends on itself",
    ),
    (
        "a condition without values",
        ("{int: [16, 128]}", "{int: [16, 128], when: {train.global_batch: []}}"),
        [],
        "error[space.condition] s.yaml:6:40  model.width depends on no value of train.global_batch\n"
        "  list some of 32, 64",
    ),
    (
        "a condition that is no mapping",
        ("{int: [16, 128]}", "{int: [16, 128], when: train.global_batch}"),
        [],
        "error[space.condition] s.yaml:6:33  model.width has the condition 'train.global_batch'\n"
        "  as in when: {model.depth: [2, 3]}",
    ),
    (
        "conditions in a circle",
        (
            "model.width: {int: [16, 128]}",
            "model.width: {int: [16, 128], when: {model.depth: 2}}\n"
            "  model.depth: {choice: [1, 2], when: {model.width: 16}}",
        ),
        [],
        "error[space.condition] s.yaml:6:33  the conditions of model.width, model.depth depend"
        " on each other\n"
        "  take one of them out",
    ),
    (
        "a setting without effect",
        ("model.width: {int: [16, 128]}", "optim.momentum: {float: [0, 0.9]}"),
        [],
        "error[config.no-effect] s.yaml:6:3  optim.momentum has no effect with optim.kind adamw\n"
        "  it counts with optim.kind sgd: search that too",
    ),
    (
        "a setting without effect beside a searched one",
        ("model.width: {int: [16, 128]}", "schedule: {kind: [cosine, linear], decay: {float: [0.1, 0.5]}}"),
        [],
        "error[config.no-effect] s.yaml:6:38  schedule.decay has no effect: schedule.kind is one"
        " of 'cosine', 'linear'\n"
        "  it counts with schedule.kind wsd",
    ),
    (
        "a condition that goes against the setting's own",
        (
            "model.width: {int: [16, 128]}",
            "schedule:\n    kind: [cosine, wsd]\n    decay: {float: [0.1, 0.5], when: {schedule.kind: cosine}}",
        ),
        [],
        "error[space.condition] s.yaml:8:39  schedule.decay has no effect where its condition"
        " holds: it counts with schedule.kind wsd",
    ),
    (
        "a batch that is no multiple of the lanes",
        ("[32, 64]", "[32, 50]"),
        [],
        "error[config.global-batch] s.yaml:5:37  train.global_batch 50 is not a multiple of"
        " data.lanes 4\n"
        "  the nearest that fit: 48 or 52",
    ),
    (
        "a range of batches that is none",
        ("{choice: [32, 64], lr: sqrt}", "{int: [30, 64]}"),
        [],
        "error[config.global-batch] s.yaml:5:24  train.global_batch 30 is not a multiple of"
        " data.lanes 4\n"
        "  the nearest that fit: 28 or 32",
    ),
    (
        "a constraint that nothing satisfies",
        ("sweep: {trials: 9}", "constraints: [train.global_batch > 2 * 64]"),
        [],
        "error[space.constraints] s.yaml:2:15  nothing in the space satisfies the constraint"
        " 'train.global_batch > 2 * 64'\n"
        "  loosen it, or widen what it names",
    ),
    (
        "one that only a fixed setting keeps from it",
        ("sweep: {trials: 9}", "constraints: [model.width < train.micro_batch]"),
        [],
        "error[space.constraints] s.yaml:2:15  nothing in the space satisfies the constraint"
        " 'model.width < train.micro_batch', where train.micro_batch is 16\n"
        "  loosen it, or widen what it names",
    ),
    (
        "constraints that leave next to nothing",
        ("sweep: {trials: 9}", "constraints: [optim.lr < 1.01e-4]"),
        [],
        "error[space.constraints] s.yaml:2:15  the constraints leave 0.2% of the space; at least"
        " 2% are needed to draw from it\n"
        "  narrow the domains to what they allow",
    ),
    (
        "constraints that contradict each other",
        ("sweep: {trials: 9}", "constraints: [model.width < 60, model.width > 70]"),
        [],
        "error[space.constraints] s.yaml:2:15  the constraints leave nothing of the space; at"
        " least 2% are needed to draw from it\n"
        "  narrow the domains to what they allow",
    ),
    (
        "an assignment",
        ("sweep: {trials: 9}", "constraints: [train.global_batch = 32]"),
        [],
        "error[space.constraints] s.yaml:2:15  the constraint 'train.global_batch = 32' cannot"
        " be read: it is not an expression\n"
        "  allowed are names, numbers, texts, + - * / and comparisons, joined by and, or, not;"
        " equality is ==, as in train.global_batch >= 2 * train.micro_batch",
    ),
    (
        "a call",
        ("sweep: {trials: 9}", "constraints: ['max(model.width, 3) < 5']"),
        [],
        "error[space.constraints] s.yaml:2:15  the constraint 'max(model.width, 3) < 5' cannot"
        " be read: max(model.width, 3) is not allowed\n"
        "  allowed are names, numbers, texts, + - * / and comparisons, joined by and, or, not;"
        " equality is ==, as in train.global_batch >= 2 * train.micro_batch",
    ),
    (
        "a power",
        ("sweep: {trials: 9}", "constraints: [model.width ** 2 < 500]"),
        [],
        "error[space.constraints] s.yaml:2:15  the constraint 'model.width ** 2 < 500' cannot be"
        " read: model.width ** 2 is not allowed\n"
        "  allowed are names, numbers, texts, + - * / and comparisons, joined by and, or, not;"
        " equality is ==, as in train.global_batch >= 2 * train.micro_batch",
    ),
    (
        "an import",
        ("sweep: {trials: 9}", 'constraints: [\'__import__("os").system("true") == model.width\']'),
        [],
        'error[space.constraints] s.yaml:2:15  the constraint \'__import__("os").system("true")'
        ' == model.width\' cannot be read: __import__("os").system("true") is not allowed\n'
        "  allowed are names, numbers, texts, + - * / and comparisons, joined by and, or, not;"
        " equality is ==, as in train.global_batch >= 2 * train.micro_batch",
    ),
    (
        "no comparison",
        ("sweep: {trials: 9}", "constraints: [model.width + 2]"),
        [],
        "error[space.constraints] s.yaml:2:15  the constraint 'model.width + 2' cannot be read:"
        " it compares nothing\n"
        "  allowed are names, numbers, texts, + - * / and comparisons, joined by and, or, not;"
        " equality is ==, as in train.global_batch >= 2 * train.micro_batch",
    ),
    (
        "a misspelt name",
        ("sweep: {trials: 9}", "constraints: [model.widht < 64 + model.width]"),
        [],
        "error[space.constraints] s.yaml:2:15  the constraint 'model.widht < 64 + model.width'"
        " names model.widht, which has no value\n"
        "  did you mean model.width?",
    ),
    (
        "nothing that is searched",
        ("sweep: {trials: 9}", "constraints: [train.micro_batch < 64]"),
        [],
        "error[space.constraints] s.yaml:2:15  the constraint 'train.micro_batch < 64' names"
        " nothing that is searched\n"
        "  take it out",
    ),
    (
        "texts and numbers",
        ("sweep: {trials: 9}", "constraints: [model.width < wide, model.width < 'a']"),
        [],
        "error[space.constraints] s.yaml:2:15  the constraint 'model.width < wide' names wide,"
        " which has no value\n"
        "  texts stand in quotes: 'wide'",
    ),
    (
        "a constraint that is no text",
        ("sweep: {trials: 9}", "constraints: [3]"),
        [],
        "error[config.value] s.yaml:2:1  constraints is [3]; allowed: a list, each text",
    ),
    (
        "rules of the pipeline's own settings",
        ("model.width: {int: [16, 128]}", "optim.kind: [adamw, sgd, sdg]"),
        [],
        "error[space.point] s.yaml:3:1  a trial with optim.kind 'sdg' cannot be: optim: kind is"
        " 'sdg'; allowed: adamw, sgd or module:factory\n"
        "  narrow the space, or add a constraint",
    ),
]


@pytest.mark.parametrize(("change", "overrides", "message"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_the_message(change: tuple[str, str], overrides: list[str], message: str, refused: Refused) -> None:
    assert refused(change, overrides) == message
