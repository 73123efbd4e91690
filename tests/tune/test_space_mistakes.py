"""Mistakes in what a space file says of one setting: each one clear message, word for word."""

from __future__ import annotations

import pytest

from tests.tune.spaces import Refused, refused

__all__ = ["refused"]

MISTAKES = [
    (
        "reversed bounds",
        ("[1e-4, 1e-2]", "[1e-2, 1e-4]"),
        [],
        "error[space.domain] s.yaml:4:14  optim.lr goes from 0.01 down to 0.0001\n  write [0.0001, 0.01]",
    ),
    (
        "the same bound twice",
        ("[1e-4, 1e-2]", "[1e-2, 1e-2]"),
        [],
        "error[space.domain] s.yaml:4:14  optim.lr goes from 0.01 to the same number\n  list the one choice: [0.01]",
    ),
    (
        "the logarithm of 0",
        ("[1e-4, 1e-2]", "[0, 1e-2]"),
        [],
        "error[space.domain] s.yaml:4:14  optim.lr is searched by its logarithm, from 0 on\n"
        "  start a little above 0, or leave log out",
    ),
    (
        "one bound",
        ("[1e-4, 1e-2]", "[1e-2]"),
        [],
        "error[space.domain] s.yaml:4:14  optim.lr has the bounds [0.01]; needed: two numbers, [low, high]",
    ),
    (
        "a bound that is text",
        ("[1e-4, 1e-2]", "[1e-4, big]"),
        [],
        "error[space.domain] s.yaml:4:14  optim.lr has the bounds [0.0001, 'big']; needed: two numbers, [low, high]",
    ),
    (
        "an infinite bound",
        ("[1e-4, 1e-2]", "[1e-4, .inf]"),
        [],
        "error[space.domain] s.yaml:4:14  optim.lr has the bounds [0.0001, inf]; needed: two finite numbers",
    ),
    (
        "a fraction in a range of whole numbers",
        ("{int: [16, 128]}", "{int: [16, 99.5]}"),
        [],
        "error[space.domain] s.yaml:6:17  model.width has the bounds [16, 99.5]; needed: two"
        " whole numbers, [low, high]",
    ),
    (
        "a domain that reaches beyond the setting's bounds",
        ("model.width: {int: [16, 128]}", "model.dropout: {float: [0, 1]}"),
        [],
        "error[space.domain] s.yaml:6:19  model.dropout reaches 1; allowed: a number at least 0 and below 1",
    ),
    (
        "a step that does not reach the end",
        ("{int: [16, 128]}", "{int: [16, 128], step: 100}"),
        [],
        "error[space.domain] s.yaml:6:17  model.width does not reach 128 from 16 in steps of 100\n  write [16, 116]",
    ),
    (
        "a step of 0",
        ("{int: [16, 128]}", "{int: [16, 128], step: 0}"),
        [],
        "error[space.domain] s.yaml:6:33  model.width has step: 0; allowed: a whole number at least 1",
    ),
    (
        "no choices",
        ("[32, 64]", "[]"),
        [],
        "error[space.domain] s.yaml:5:24  train.global_batch has no choices\n  list at least one",
    ),
    (
        "choices that are no list",
        ("[32, 64]", "32"),
        [],
        "error[space.domain] s.yaml:5:24  train.global_batch has the choices 32; needed: a list",
    ),
    (
        "the same choice twice",
        ("[32, 64]", "[32, 64, 32]"),
        [],
        "error[space.domain] s.yaml:5:41  train.global_batch has the choice 32 twice\n  keep one of them",
    ),
    (
        "the same choice in two spellings",
        ("model.width: {int: [16, 128]}", "model.dropout: [0, 0.1, 0.0]"),
        [],
        "error[space.domain] s.yaml:6:27  model.dropout has the choice 0.0 twice\n  keep one of them",
    ),
    (
        "a choice of the wrong type",
        ("[32, 64]", "[32, big]"),
        [],
        "error[space.domain] s.yaml:5:37  train.global_batch has the choice 'big'; allowed: a whole number at least 1",
    ),
    (
        "a boolean for a number",
        ("[32, 64]", "[32, true]"),
        [],
        "error[space.domain] s.yaml:5:37  train.global_batch has the choice true; allowed: a whole number at least 1",
    ),
    (
        "a choice beyond the setting's bounds",
        ("[32, 64]", "[32, 0]"),
        [],
        "error[space.domain] s.yaml:5:37  train.global_batch has the choice 0; allowed: a whole number at least 1",
    ),
    (
        "a misspelt choice",
        ("model.width: {int: [16, 128]}", "schedule: {kind: [cosine, liner]}"),
        [],
        "error[space.domain] s.yaml:6:29  schedule.kind has the choice 'liner'; allowed: one of"
        " constant, linear, cosine, wsd\n"
        "  did you mean linear?",
    ),
    (
        "null among the choices",
        ("model.width: {int: [16, 128]}", "train.clip_norm: [null, 1.0]"),
        [],
        "error[space.domain] s.yaml:6:21  train.clip_norm has the choice null; allowed: a number above 0",
    ),
    (
        "a domain in a choice",
        ("{int: [16, 128]}", "[32, {int: [64, 128]}]"),
        [],
        "error[space.domain] s.yaml:6:21  model.width has a domain among its choices: {int: [64,"
        " 128]}\n"
        "  make it a dimension of its own that counts when the other has a certain value: when: {…}",
    ),
    (
        "floats for whole numbers",
        ("{int: [16, 128]}", "{float: [16, 128]}"),
        [],
        "error[space.domain] s.yaml:6:17  model.width takes a whole number at least 1, not float\n"
        "  write {int: [16, 128]}",
    ),
    (
        "a log for whole numbers",
        ("{int: [16, 128]}", "{log: [16, 128]}"),
        [],
        "error[space.domain] s.yaml:6:17  model.width takes a whole number at least 1, not log\n"
        "  write {int: [16, 128], log: true}",
    ),
    (
        "whole numbers for floats",
        ("{log: [1e-4, 1e-2]}", "{int: [1, 2]}"),
        [],
        "error[space.domain] s.yaml:4:14  optim.lr takes a number above 0, not int\n  write {float: [1, 2]}",
    ),
    (
        "a range for texts",
        ("model.width: {int: [16, 128]}", "schedule: {kind: {float: [0, 1]}}"),
        [],
        "error[space.domain] s.yaml:6:21  schedule.kind takes one of constant, linear, cosine,"
        " wsd, not float\n"
        "  list its choices",
    ),
    (
        "a fixed value",
        ("{int: [16, 128]}", "64"),
        [],
        "error[space.domain] s.yaml:6:3  model.width is 64, which is no domain\n"
        "  a fixed value goes under settings: model.width: 64",
    ),
    (
        "nothing",
        ("{int: [16, 128]}", ""),
        [],
        "error[space.domain] s.yaml:6:3  model.width is null, which is no domain\n"
        "  a domain is [a, b, c], {float: [low, high]}, {log: [low, high]}, {int: [low, high]}"
        " or {choice: [a, b, c]}",
    ),
    (
        "two domains",
        ("{int: [16, 128]}", "{int: [16, 128], choice: [16]}"),
        [],
        "error[space.domain] s.yaml:6:33  model.width says both int and choice\n"
        "  a dimension has one domain; keep one of them",
    ),
    (
        "a misspelt domain",
        ("{int: [16, 128]}", "{chioce: [16, 128]}"),
        [],
        "error[space.domain] s.yaml:6:3  model.width says neither float, log, int nor choice\n  did you mean choice?",
    ),
    (
        "a grid for one setting, under a model",
        ("model.width: {int: [16, 128]}", "model.width: {grid: [16, 128]}"),
        ["sweep.searcher.kind=tpe"],
        "error[space.domain] s.yaml:6:17  model.width asks for a grid, which is a searcher for"
        " the whole space\n"
        "  list its choices, and use sweep.searcher.kind=grid for all dimensions",
    ),
    (
        "a misspelt option",
        ("{int: [16, 128]}", "{int: [16, 128], wen: {optim.lr: 1}}"),
        [],
        "error[space.domain] s.yaml:6:33  model.width has no option wen\n  did you mean when?",
    ),
    (
        "an option of another domain",
        ("[32, 64]", "[32, 64], step: 32"),
        [],
        "error[space.domain] s.yaml:5:42  train.global_batch has no option step\n"
        "  beside choice there may be lr, mutate, when",
    ),
    (
        "a mutation of what cannot change",
        ("{int: [16, 128]}", "{int: [16, 128], mutate: true}"),
        [],
        "error[space.domain] s.yaml:6:33  model.width cannot change in the middle of a run\n  leave mutate out",
    ),
    (
        "a misspelt coupling",
        ("lr: sqrt", "lr: sqr"),
        [],
        "error[space.domain] s.yaml:5:42  train.global_batch has lr: 'sqr'; allowed: one of"
        " none, linear, sqrt\n"
        "  did you mean sqrt?",
    ),
    (
        "a coupling elsewhere",
        ("[1e-4, 1e-2]", "[1e-4, 1e-2], lr: sqrt"),
        [],
        "error[space.domain] s.yaml:4:33  optim.lr has no option lr\n"
        "  how the learning rate follows the batch is said at train.global_batch",
    ),
    (
        "a misspelt setting",
        ("optim.lr:", "optim.lrr:"),
        [],
        "error[config.unknown-key] s.yaml:4:3  optim.lrr is not a setting\n  did you mean optim.lr (a number above 0)?",
    ),
    (
        "a setting in the wrong section",
        ("model.width:", "optim.width:"),
        [],
        "error[config.unknown-key] s.yaml:6:3  optim.width is not a setting\n"
        "  width belongs under model: model.width (a whole number at least 1)?",
    ),
    (
        "a section",
        ("model.width:", "model:"),
        [],
        "error[config.unknown-key] s.yaml:6:3  model is a section\n"
        "  write whole keys: model.width, model.depth, model.dropout",
    ),
    (
        "the warm-up as it is set",
        ("model.width: {int: [16, 128]}", "schedule: {warmup: [1, 2]}"),
        [],
        "error[config.unknown-key] s.yaml:6:14  schedule.warmup is not searched: a space speaks"
        " of the schedule's shape\n"
        "  did you mean schedule.warmup_ratio?",
    ),
    (
        "nothing of the schedule",
        ("model.width: {int: [16, 128]}", "schedule: {zzz: [1, 2]}"),
        [],
        "error[config.unknown-key] s.yaml:6:14  schedule.zzz is nothing that a space knows\n"
        "  schedule has kind, peak, warmup_ratio, decay, final_ratio",
    ),
    (
        "the schedule by one word",
        ("model.width: {int: [16, 128]}", "schedule: cosine"),
        [],
        "error[space.domain] s.yaml:6:3  schedule is 'cosine'; needed: a mapping with some of"
        " kind, peak, warmup_ratio, decay, final_ratio",
    ),
    (
        "the learning rate twice",
        ("model.width: {int: [16, 128]}", "schedule: {peak: {log: [1e-4, 1e-2]}}"),
        [],
        "error[space.domain] s.yaml:4:3  optim.lr is searched twice: schedule.peak is the same\n  keep one of them",
    ),
    (
        "the seed",
        ("model.width:", "seed:"),
        [],
        "error[space.key] s.yaml:6:3  seed cannot be searched: trials differ by their settings,"
        " not by luck\n"
        "  leave it out of the space",
    ),
    (
        "where runs lie",
        ("model.width:", "run.storage:"),
        [],
        "error[space.key] s.yaml:6:3  run.storage cannot be searched: it says where runs lie\n"
        "  leave it out of the space",
    ),
    (
        "where they are recorded",
        ("model.width:", "tracking.uri:"),
        [],
        "error[space.key] s.yaml:6:3  tracking.uri cannot be searched: it says where runs are"
        " recorded\n"
        "  leave it out of the space",
    ),
    (
        "how many workers",
        ("model.width:", "elastic.max_workers:"),
        [],
        "error[space.key] s.yaml:6:3  elastic.max_workers cannot be searched: workers do not"
        " change what is learnt\n"
        "  leave it out of the space",
    ),
    (
        "where the cluster is",
        ("model.width:", "cluster.address:"),
        [],
        "error[space.key] s.yaml:6:3  cluster.address cannot be searched: machines do not change"
        " what is learnt\n"
        "  leave it out of the space",
    ),
    (
        "the dataset",
        ("model.width:", "data.path:"),
        [],
        "error[space.key] s.yaml:6:3  data.path cannot be searched: all trials read the same"
        " rows in the same order\n"
        "  leave it out of the space",
    ),
    (
        "the length",
        ("model.width:", "train.epochs:"),
        [],
        "error[space.key] s.yaml:6:3  train.epochs cannot be searched: how long a trial trains"
        " is the scheduler's decision\n"
        "  leave it out of the space",
    ),
    (
        "a switch that gives up a promise",
        ("model.width:", "model.allow_rank_local:"),
        [],
        "error[space.key] s.yaml:6:3  model.allow_rank_local cannot be searched: it gives up a"
        " promise, for all trials or for none\n"
        "  leave it out of the space",
    ),
    (
        "what changes nothing",
        ("model.width:", "train.audit:"),
        [],
        "error[space.key] s.yaml:6:3  train.audit cannot be searched: it does not change what is"
        " learnt\n"
        "  leave it out of the space",
    ),
    (
        "a list",
        ("model.width: {int: [16, 128]}", "optim.betas: {float: [0, 1]}"),
        [],
        "error[space.key] s.yaml:6:3  optim.betas takes a list of 2: a number at least 0 and"
        " below 1, a number at least 0 and below 1\n"
        "  numbers, texts and booleans can be searched",
    ),
    (
        "a log that is no boolean",
        ("{int: [16, 128]}", "{int: [16, 128], log: 10}"),
        [],
        "error[space.domain] s.yaml:6:33  model.width has log: 10; allowed: true or false",
    ),
    (
        "a section in a file's way",
        ("model.width: {int: [16, 128]}", "optim: {lr: {log: [1e-4, 1e-2]}}"),
        [],
        "error[config.unknown-key] s.yaml:6:3  optim is a section\n  write whole keys: optim.lr",
    ),
    (
        "nothing like it",
        ("model.width:", "zzz:"),
        [],
        "error[config.unknown-key] s.yaml:6:3  zzz is not a setting\n"
        "  a space may name settings of model and optim, schedule, train.global_batch,"
        " train.micro_batch, train.precision, train.clip_norm",
    ),
    (
        "what is kept",
        ("model.width:", "checkpoint.overhead:"),
        [],
        "error[space.key] s.yaml:6:3  checkpoint.overhead cannot be searched: what is kept does"
        " not change what is learnt\n"
        "  leave it out of the space",
    ),
]


@pytest.mark.parametrize(("change", "overrides", "message"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_the_message(change: tuple[str, str], overrides: list[str], message: str, refused: Refused) -> None:
    assert refused(change, overrides) == message
