"""Mistakes in a settings file: each through the command itself, with its whole message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.config.conftest import LM

MISTAKES = [
    (
        "a misspelt setting",
        ("lr: 3e-4", "lrr: 3e-4"),
        "error[config.unknown-key] lm.yaml:11:3  optim.lrr is not a setting\n"
        "  did you mean optim.lr (a number above 0, default 0.001)?\n",
    ),
    (
        "a setting in the wrong section",
        ("lr: 3e-4", "lr: 3e-4\n  epochs: 3"),
        "error[config.unknown-key] lm.yaml:12:3  optim.epochs is not a setting\n"
        "  epochs belongs under train: train.epochs (a number above 0 or null)?\n",
    ),
    (
        "a setting outside its section",
        ("optim:\n", "lr: 1e-3\noptim:\n"),
        "error[config.unknown-key] lm.yaml:10:1  lr is not a setting\n"
        "  lr belongs under optim: optim.lr (a number above 0, default 0.001)?\n",
    ),
    (
        "a top-level setting in a section",
        ("lr: 3e-4", "lr: 3e-4\n  seed: 1"),
        "error[config.unknown-key] lm.yaml:12:3  optim.seed is not a setting\n"
        "  seed belongs at the top level: seed (a whole number at least 0 and below"
        " 9223372036854775808, default 0)?\n",
    ),
    (
        "a hyphen for an underscore",
        ("global_batch", "global-batch"),
        "error[config.unknown-key] lm.yaml:7:3  train.global-batch is not a setting\n"
        "  did you mean train.global_batch (a whole number at least 1)?\n",
    ),
    (
        "capitals",
        ("micro_batch", "Micro_Batch"),
        "error[config.unknown-key] lm.yaml:8:3  train.Micro_Batch is not a setting\n"
        "  did you mean train.micro_batch (a whole number at least 1)?\n",
    ),
    (
        "a misspelt section",
        ("train:", "trian:"),
        "error[config.unknown-key] lm.yaml:6:1  trian is not a setting\n  did you mean train?\n",
    ),
    (
        "a dotted key",
        ("optim:\n", "optim.eps: 1e-6\noptim:\n"),
        "error[config.unknown-key] lm.yaml:10:1  optim.eps is not a setting\n"
        "  dotted keys are for overrides; in a file, write a section with the key below it\n",
    ),
    (
        "nothing like it",
        ("lr: 3e-4", "lr: 3e-4\n  zzz: 1"),
        "error[config.unknown-key] lm.yaml:12:3  optim.zzz is not a setting\n"
        "  optim has kind, lr, weight_decay, betas, eps, momentum, nesterov, allow_unverified\n",
    ),
    (
        "a misspelt setting of the model",
        ("width", "widht"),
        "error[config.unknown-key] lm.yaml:5:3  model.widht is not a setting\n"
        "  did you mean model.width (a whole number at least 1, default 64)?\n",
    ),
    (
        "a key twice",
        ("lr: 3e-4", "lr: 3e-4\n  lr: 1e-3"),
        "error[config.duplicate-key] lm.yaml:12:3  optim.lr stands here a second time; the first is"
        " at lm.yaml:11:3\n"
        "  keep one of them\n",
    ),
    (
        "a tab",
        ("  lr", "\tlr"),
        "error[config.yaml] lm.yaml:11:1  not YAML: found character '\\t' that cannot start any token\n"
        "  indent with spaces\n",
    ),
    (
        "indentation that does not fit",
        ("  lr: 3e-4", "  lr: 3e-4\n    eps: 1"),
        "error[config.yaml] lm.yaml:12:8  not YAML: mapping values are not allowed here\n",
    ),
    (
        "a bracket left open",
        ("lr: 3e-4", "betas: [0.9, 0.99"),
        "error[config.yaml] lm.yaml:12:9  not YAML: expected ',' or ']', but got ':'\n",
    ),
    (
        "a tag",
        ("lr: 3e-4", "lr: !!python/name:os.system 3"),
        "error[config.yaml] lm.yaml:11:7  not YAML: the tag !!python/name:os.system has no meaning"
        " here; write plain values\n",
    ),
    (
        "an alias of nothing",
        ("lr: 3e-4", "lr: *rate"),
        "error[config.yaml] lm.yaml:11:7  not YAML: found undefined alias 'rate'\n",
    ),
    (
        "a key that is a list",
        ("lr: 3e-4", "? [a, b]\n  : 1"),
        "error[config.yaml] lm.yaml:11:5  not YAML: a key must be plain text\n",
    ),
    (
        "two documents",
        ("optim:\n", "---\noptim:\n"),
        "error[config.yaml] lm.yaml:10:1  not YAML: expected a single document in the stream but"
        " found another document\n",
    ),
    (
        "a list instead of sections",
        (LM, "- data\n- train\n"),
        "error[config.yaml] lm.yaml:1:1  holds ['data', 'train']; needed: a mapping\n",
    ),
    (
        "a boolean for a number",
        ("steps: 100", "steps: true"),
        "error[config.value] lm.yaml:9:3  train.steps is true; allowed: a whole number at least 1 or null\n",
    ),
    (
        "text for a number",
        ("3e-4", "3e-4x"),
        "error[config.value] lm.yaml:11:3  optim.lr is '3e-4x'; allowed: a number above 0\n",
    ),
    (
        "a decimal comma",
        ("3e-4", "0,0003"),
        "error[config.value] lm.yaml:11:3  optim.lr is '0,0003'; allowed: a number above 0\n",
    ),
    (
        "a fraction for a whole number",
        ("steps: 100", "steps: 99.5"),
        "error[config.value] lm.yaml:9:3  train.steps is 99.5; allowed: a whole number at least 1 or null\n",
    ),
    (
        "a number below its bound",
        ("steps: 100", "steps: 0"),
        "error[config.value] lm.yaml:9:3  train.steps is 0; allowed: a whole number at least 1 or null\n",
    ),
    (
        "a number at an open bound",
        ("3e-4", "0.0"),
        "error[config.value] lm.yaml:11:3  optim.lr is 0.0; allowed: a number above 0\n",
    ),
    (
        "infinity",
        ("3e-4", ".inf"),
        "error[config.value] lm.yaml:11:3  optim.lr is inf; allowed: a finite number above 0\n",
    ),
    (
        "not a number",
        ("3e-4", ".nan"),
        "error[config.value] lm.yaml:11:3  optim.lr is nan; allowed: a finite number above 0\n",
    ),
    (
        "no for a number",
        ("3e-4", "no"),
        "error[config.value] lm.yaml:11:3  optim.lr is 'no'; allowed: a number above 0\n",
    ),
    (
        "null for what is needed",
        ("global_batch: 32", "global_batch: null"),
        "error[config.value] lm.yaml:7:3  train.global_batch is null; allowed: a whole number at least 1\n",
    ),
    (
        "a value that is none of those allowed",
        ("cosine", "cosin"),
        "error[config.value] lm.yaml:13:3  schedule.kind is 'cosin'; allowed: one of constant,"
        " linear, cosine, wsd\n"
        "  did you mean cosine?\n",
    ),
    (
        "a list of the wrong length",
        ("lr: 3e-4", "betas: [0.9]"),
        "error[config.value] lm.yaml:11:3  optim.betas is [0.9]; allowed: a list of 2: a number at"
        " least 0 and below 1, a number at least 0 and below 1\n",
    ),
    (
        "a list with a value out of bounds",
        ("lr: 3e-4", "betas: [0.9, 1.0]"),
        "error[config.value] lm.yaml:11:3  optim.betas is [0.9, 1.0]; allowed: a list of 2: a number"
        " at least 0 and below 1, a number at least 0 and below 1\n",
    ),
    (
        "a duration without a known unit",
        ("schedule:", "checkpoint:\n  max_interval: 10 minutes\nschedule:"),
        "error[config.value] lm.yaml:13:3  checkpoint.max_interval: '10 minutes' is not a duration;"
        " write a number with one of ms, s, min, h, d\n",
    ),
    (
        "a mapping with a wrong value",
        ("schedule:", "elastic:\n  resources_per_worker: {CPU: one}\nschedule:"),
        "error[config.value] lm.yaml:13:3  elastic.resources_per_worker is {CPU: 'one'}; allowed: a"
        " mapping, each value a number\n",
    ),
    (
        "a number for a section",
        ("optim:\n  lr: 3e-4\n", "optim: 5\n"),
        "error[config.value] lm.yaml:10:1  optim is 5; allowed: a section with kind, lr,"
        " weight_decay, betas, eps, momentum, nesterov, allow_unverified\n",
    ),
    (
        "a list for a section",
        ("optim:\n  lr: 3e-4\n", "optim:\n  - lr\n"),
        "error[config.value] lm.yaml:10:1  optim is ['lr']; allowed: a section with kind, lr,"
        " weight_decay, betas, eps, momentum, nesterov, allow_unverified\n",
    ),
    (
        "something that is missing",
        ("  micro_batch: 8\n", ""),
        "error[config.missing] lm.yaml:6:1  train.micro_batch is missing; needed: a whole number at least 1\n",
    ),
    (
        "a section that is missing",
        ("data:\n  path: d\n  lanes: 8\n", ""),
        "error[config.missing] lm.yaml  data.path is missing; needed: text\n",
    ),
]


@pytest.mark.parametrize(("edit", "message"), [(e, m) for _, e, m in MISTAKES], ids=[what for what, _, _ in MISTAKES])
def test_mistake(edit: tuple[str, str], message: str, lm: Path, run: Run) -> None:
    old, new = edit
    assert LM.count(old) == 1
    (lm / "lm.yaml").write_text(LM.replace(old, new))
    done = run("config", "check", "lm.yaml", cwd=lm)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_without_a_mistake_there_is_no_message(lm: Path, run: Run) -> None:
    done = run("config", "check", "lm.yaml", cwd=lm)
    # No mistake: the data may be on the cluster alone.
    assert (done.returncode, done.stderr) == (0, "note: there is nothing at data.path d on this host\n")


def test_there_are_enough() -> None:
    assert len(MISTAKES) >= 30
    assert len({message for _, _, message in MISTAKES}) >= 30


def test_several_at_once(lm: Path, run: Run) -> None:
    text = LM.replace("path: d", "pth: d").replace("steps: 100", "steps: 0\n  epochs: 2").replace("cosine", "wsd")
    (lm / "lm.yaml").write_text(text.replace("lr: 3e-4", "lr: 3e-4\n  momentum: 0.9\n  lr: 4") + "sed: 1\n")
    done = run("config", "check", "lm.yaml", "train.global_batch=36", "oops", cwd=lm)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error[config.invalid] 7 problems\n"
        "  lm.yaml:2:3  data.pth is not a setting\n"
        "    did you mean data.path (text)?\n"
        "  lm.yaml:9:3  train.steps is 0; allowed: a whole number at least 1 or null\n"
        "  lm.yaml:13:3  optim.momentum has no effect with optim.kind adamw\n"
        "    leave it at its default 0.0, or use optim.kind=sgd\n"
        "  lm.yaml:14:3  optim.lr stands here a second time; the first is at lm.yaml:12:3\n"
        "    keep one of them\n"
        "  lm.yaml:18:1  sed is not a setting\n"
        "    did you mean seed (a whole number at least 0 and below 9223372036854775808, default 0)?\n"
        "  override train.global_batch=36  train.global_batch is 36, not a multiple of data.lanes 8\n"
        "    the nearest that fit: 32 or 40\n"
        "  override oops  found 'oops'; an override is key=value, as in optim.lr=3e-4\n"
    )


@pytest.mark.parametrize("command", [["config", "show"], ["train"], ["prepare"]])
def test_a_file_that_is_no_text(command: list[str], lm: Path, run: Run) -> None:
    (lm / "lm.yaml").write_bytes(b"data: {path: \xff}\n")
    done = run(*command, "./lm.py", cwd=lm)
    assert (done.returncode, done.stderr) == (2, "error[config.file] lm.yaml  is not UTF-8 at byte 13\n")


@pytest.mark.parametrize("command", [["config", "show"], ["train", "--in-process"], ["prepare"]])
def test_every_command_that_loads_settings_says_the_same(command: list[str], lm: Path, run: Run) -> None:
    (lm / "lm.yaml").write_text(LM.replace("lr: 3e-4", "lrr: 3e-4"))
    done = run(*command, "./lm.py", cwd=lm)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error[config.unknown-key] lm.yaml:11:3  optim.lrr is not a setting\n"
        "  did you mean optim.lr (a number above 0, default 0.001)?\n"
    )
