"""Mistakes in overrides and in how settings go together: each through the command itself, with its whole message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

TOGETHER = [
    (
        "storage of no known kind",
        ["run.storage=s4://bucket/runs"],
        "error[config.value] override run.storage=s4://bucket/runs  run: storage is 's4://bucket/runs'; allowed:"
        " a local path, s3://, gs://, az://\n",
    ),
    (
        "neither of two",
        ["train.steps=null"],
        "error[config.value] override train.steps=null  train: exactly one of train.steps and"
        " train.epochs is needed, found neither\n",
    ),
    (
        "both of two",
        ["train.epochs=2"],
        "error[config.value] override train.epochs=2  train: exactly one of train.steps and"
        " train.epochs is needed, found both\n",
    ),
    (
        "a range upside down",
        ["elastic.min_workers=3"],
        "error[config.value] override elastic.min_workers=3  elastic: min_workers 3 is above max_workers 2\n",
    ),
    (
        "a batch that lanes do not divide",
        ["train.global_batch=36"],
        "error[config.global-batch] override train.global_batch=36  train.global_batch is 36, not a"
        " multiple of data.lanes 8\n"
        "  the nearest that fit: 32 or 40\n",
    ),
    (
        "more workers than lanes",
        ["elastic.max_workers=9"],
        "error[config.lanes] override elastic.max_workers=9  elastic.max_workers is 9, above"
        " data.lanes 8: each worker needs a lane of its own\n"
        "  use elastic.max_workers=8 or less; a new run may have more lanes\n",
    ),
    (
        "more workers than rows",
        ["data.lanes=null", "elastic.max_workers=33"],
        "error[config.lanes] override elastic.max_workers=33  elastic.max_workers is 33, above"
        " train.global_batch 32: a worker would get no row\n"
        "  use elastic.max_workers=32 or less, or a larger train.global_batch\n",
    ),
    (
        "resources of nothing",
        ["elastic.resources_per_worker={CPU: 0}"],
        "error[config.resources] override elastic.resources_per_worker={CPU: 0} "
        " elastic.resources_per_worker.CPU is 0; allowed: a number above 0\n"
        "  leave it out to ask for none\n",
    ),
    (
        "a GPU that nothing uses",
        ["elastic.resources_per_worker.GPU=1", "train.device=cpu"],
        "error[config.no-effect] override elastic.resources_per_worker.GPU=1  "
        "elastic.resources_per_worker.GPU has no effect with train.device cpu: it would be held and left idle\n"
        "  leave it out, or use train.device=auto\n",
    ),
    (
        "nothing to read",
        ["data.columns=[]"],
        "error[config.value] override data.columns=[]  data: columns names no column; leave it out to read all\n",
    ),
    (
        "an optimizer that is none",
        ["optim.kind=adam"],
        "error[config.value] override optim.kind=adam  optim: kind is 'adam'; allowed: adamw, sgd or module:factory\n",
    ),
    (
        "an optimizer that is not verified",
        ["optim.kind=torch.optim:Adagrad"],
        "error[optim.unverified] override optim.kind=torch.optim:Adagrad  optimizer"
        " 'torch.optim:Adagrad' is not known to give the same update at every worker count; under"
        " train.reduction=exact the verified ones are adamw, sgd\n"
        "  use one of them, or set optim.allow_unverified=true and give up bit-identical resumes\n",
    ),
    (
        "nesterov without momentum",
        ["optim.kind=sgd", "optim.nesterov=true"],
        "error[config.value] override optim.nesterov=true  optim: nesterov needs momentum, and"
        " momentum is 0; set it, or leave nesterov out\n",
    ),
    (
        "a warm-up longer than the run",
        ["schedule.warmup=200"],
        "error[config.schedule] override schedule.warmup=200  schedule.warmup is 200, above the"
        " schedule's whole length of 100 steps\n"
        "  shorten it\n",
    ),
    (
        "tokens without their number",
        ["schedule.unit=tokens"],
        "error[config.schedule] override schedule.unit=tokens  schedule.unit is tokens, but how many"
        " tokens a run has is known only from schedule.total\n"
        "  set schedule.total\n",
    ),
    (
        "intervals upside down",
        ["checkpoint.min_interval=20min"],
        "error[config.value] override checkpoint.min_interval=20min  checkpoint: min_interval 1200 s"
        " is above max_interval 600 s; lower the one or raise the other\n",
    ),
    (
        "a rule of the model",
        ["model.heads=7"],
        "error[config.value] override model.heads=7  model: width 64 must be a multiple of heads 7\n",
    ),
    (
        "momentum without effect",
        ["optim.momentum=0.9"],
        "error[config.no-effect] override optim.momentum=0.9  optim.momentum has no effect with"
        " optim.kind adamw\n"
        "  leave it at its default 0.0, or use optim.kind=sgd\n",
    ),
    (
        "betas without effect",
        ["optim.kind=sgd", "optim.betas=[0.8, 0.9]"],
        "error[config.no-effect] override optim.betas=[0.8, 0.9]  optim.betas has no effect with"
        " optim.kind sgd\n"
        "  leave it at its default [0.9, 0.999], or use optim.kind=adamw\n",
    ),
    (
        "decay without effect",
        ["schedule.decay=0.5"],
        "error[config.no-effect] override schedule.decay=0.5  schedule.decay has no effect with"
        " schedule.kind cosine\n"
        "  leave it at its default 0.2, or use schedule.kind=wsd\n",
    ),
    (
        "final ratio without effect",
        ["schedule.kind=constant", "schedule.final_ratio=0.1"],
        "error[config.no-effect] override schedule.final_ratio=0.1  schedule.final_ratio has no"
        " effect with schedule.kind constant\n"
        "  leave it at its default 0.0, or use another schedule.kind\n",
    ),
    (
        "a unit without effect",
        ["schedule.kind=constant", "schedule.warmup=0", "schedule.unit=samples"],
        "error[config.no-effect] override schedule.unit=samples  schedule.unit has no effect with"
        " schedule.kind constant and no schedule.warmup\n"
        "  leave it at its default 'steps', or set schedule.warmup\n",
    ),
    (
        "an interval without effect",
        ["checkpoint.every_steps=50", "checkpoint.max_interval=5min"],
        "error[config.no-effect] override checkpoint.max_interval=5min  checkpoint.max_interval has"
        " no effect with checkpoint.every_steps 50\n"
        "  leave it at its default 600.0, or use checkpoint.every_steps=null\n",
    ),
    (
        "CPUs of a reader that is not used",
        ["data.reader=local", "data.read.task_cpus=1"],
        "error[config.no-effect] override data.read.task_cpus=1  data.read.task_cpus has no effect"
        " with data.reader local\n"
        "  leave it at its default 0.25, or use data.reader=ray\n",
    ),
    (
        "a permission without effect",
        ["optim.allow_unverified=true"],
        "error[config.no-effect] override optim.allow_unverified=true  optim.allow_unverified has no"
        " effect with optim.kind adamw\n"
        "  leave it at its default false, or use another optim.kind\n",
    ),
    (
        "a guard without effect",
        ["train.reduction=fast", "model.allow_rank_local=true"],
        "error[config.no-effect] override model.allow_rank_local=true  model.allow_rank_local has no"
        " effect with train.reduction fast\n"
        "  leave it at its default false, or use train.reduction=exact\n",
    ),
    (
        "deliveries to nobody",
        ["tracking.kind=none", "tracking.every=30s"],
        "error[config.no-effect] override tracking.every=30s  tracking.every has no effect with"
        " tracking.kind none\n"
        "  leave it at its default 15.0, or use tracking.kind=mlflow\n",
    ),
]
OVERRIDES = [
    (
        "a word alone",
        ["audit"],
        "error[config.override] override audit  found 'audit'; an override is key=value, as in optim.lr=3e-4\n",
    ),
    (
        "no key",
        ["=5"],
        "error[config.override] override =5  found '=5'; an override is key=value, as in optim.lr=3e-4\n",
    ),
    (
        "a gap in the key",
        ["optim..lr=1"],
        "error[config.override] override optim..lr=1  found 'optim..lr=1'; an override is key=value,"
        " as in optim.lr=3e-4\n",
    ),
    (
        "no value",
        ["optim.lr="],
        "error[config.override] override optim.lr=  optim.lr has no value\n  nothing is null, empty text is '\"\"'\n",
    ),
    (
        "the same key twice",
        ["optim.lr=1", "optim.lr=2"],
        "error[config.duplicate-key] override optim.lr=2  optim.lr is given twice; the first is"
        " optim.lr=1\n"
        "  keep one of them\n",
    ),
    (
        "a key below a setting",
        ["train.steps.x=1"],
        "error[config.override] override train.steps.x=1  train.steps is a setting, not a section;"
        " it has no x\n"
        "  write train.steps=…\n",
    ),
    (
        "a section set to a number",
        ["optim=5"],
        "error[config.value] override optim=5  optim is 5; allowed: a section with kind, lr,"
        " weight_decay, betas, eps, momentum, nesterov, allow_unverified\n",
    ),
    (
        "a section set to null",
        ["train=null"],
        "error[config.value] override train=null  train is null; allowed: a section with"
        " global_batch, micro_batch, steps, epochs, reduction, precision, activation_checkpointing,"
        " clip_norm, threads, device, audit, log_every\n"
        "  sections merge and are never replaced; name the settings to change\n",
    ),
    (
        "a bracket left open",
        ["optim.betas=[0.9"],
        "error[config.yaml] override optim.betas=[0.9 at character 17  not YAML: expected ',' or"
        " ']', but got '<stream end>'\n"
        "  quote it: optim.betas='\"…\"'\n",
    ),
    (
        "a misspelt setting inside a value",
        ["optim={lr: 1e-3, kindd: sgd}"],
        "error[config.unknown-key] override optim={lr: 1e-3, kindd: sgd} at character 18 "
        " optim.kindd is not a setting\n"
        "  did you mean optim.kind (text, default 'adamw')?\n",
    ),
    (
        "a wrong value inside a value",
        ["optim={lr: 1e-3, eps: 0}"],
        "error[config.value] override optim={lr: 1e-3, eps: 0} at character 18  optim.eps is 0;"
        " allowed: a number above 0\n",
    ),
    (
        "a key twice inside a value",
        ["optim={lr: 1e-3, lr: 2e-3}"],
        "error[config.duplicate-key] override optim={lr: 1e-3, lr: 2e-3} at character 18  optim.lr"
        " stands here a second time; the first is at override optim={lr: 1e-3, lr: 2e-3} at character 8\n"
        "  keep one of them\n",
    ),
    (
        "a hyphen",
        ["train.micro-batch=4"],
        "error[config.unknown-key] override train.micro-batch=4  train.micro-batch is not a setting\n"
        "  did you mean train.micro_batch (a whole number at least 1)?\n",
    ),
    (
        "two words for one",
        ["schedule.warmup=1 0"],
        "error[config.value] override schedule.warmup=1 0  schedule.warmup is '1 0'; allowed: a"
        " whole number at least 0\n",
    ),
    (
        "a percentage",
        ["schedule.final_ratio=10%"],
        "error[config.value] override schedule.final_ratio=10%  schedule.final_ratio is '10%';"
        " allowed: a number at least 0 and at most 1\n",
    ),
]
MISTAKES = [*TOGETHER, *OVERRIDES]


@pytest.mark.parametrize(("given", "message"), [(g, m) for _, g, m in MISTAKES], ids=[what for what, _, _ in MISTAKES])
def test_mistake(given: list[str], message: str, lm: Path, run: Run) -> None:
    done = run("config", "check", "lm.yaml", *given, cwd=lm)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_there_are_enough() -> None:
    assert len(MISTAKES) >= 35
    assert len({message for _, _, message in MISTAKES}) == len(MISTAKES)
