"""``pliant plan``, and the refusal of a run that would not fit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.command import ROOT
from tests.train.runs import PIPELINE, SETTINGS, prepare

DIGITS = str(ROOT / "pipelines" / "digits.py")
TOO_LITTLE = "elastic.resources_per_worker={CPU: 1, memory: 6e8}"
WIDE = "model.width=1024"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    from pliant.data.prepare import write_dataset
    from pliant.registry import find_pipeline

    ref = find_pipeline(DIGITS)
    folder = str(tmp_path_factory.mktemp("digits") / "set")
    write_dataset(ref.load()(ref.model_settings()()).prepare(), folder)
    return folder


def test_plan_by_worker_count(run: Run, digits: str, tmp_path: Path) -> None:
    done = run("plan", DIGITS, f"data.path={digits}", "elastic.max_workers=4", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rows"], found["lanes"], found["parameters"], found["steps"]) == (1500, 4, 71370, 282)
    assert [at["workers"] for at in found["by_workers"]] == [1, 2, 4]  # 3 are no faster than 2
    assert [at["micro_batches_per_step"] for at in found["by_workers"]] == [4, 2, 1]
    assert [at["relative_step_time"] for at in found["by_workers"]] == [1.0, 0.5, 0.25]
    assert found["shuffle"] == {"pool_row_groups": 15, "variance_ratio": 1.0}
    for at in found["by_workers"]:
        memory = at["host_memory"]
        assert memory["bytes"] == sum(memory["parts_bytes"].values()) < memory["room_bytes"]
        assert {"parameters", "optimizer", "activations", "data", "process"} <= set(memory["parts_bytes"])
        assert at["device_memory"] is None
    assert found["notes"] == []
    assert list(tmp_path.iterdir()) == [], "a plan writes nothing"


def test_plan_for_people(run: Run, digits: str, tmp_path: Path) -> None:
    done = run("plan", DIGITS, f"data.path={digits}", cwd=tmp_path)
    assert done.returncode == 0
    for words in ("rows 1,500 train, 297 validation", "parameters 71,370", "step time", "1 worker", "fullest in"):
        assert words in done.stdout


def test_what_a_plan_notes_and_refuses(run: Run, digits: str, tmp_path: Path) -> None:
    given = ("plan", DIGITS, f"data.path={digits}", "data.lanes=4", "elastic.max_workers=3")
    done = run(*given, cwd=tmp_path)
    assert "note: elastic.max_workers 3 is no faster than 2: one of them still has 2 of the 4 lanes" in done.stdout
    assert "no validation set" not in done.stdout
    alone = run(*given[:1], DIGITS, f"data.path={digits}/train", "eval.every_steps=5", cwd=tmp_path)
    assert "note: eval.every_steps is 5, but there is no validation set: nothing is evaluated" in alone.stdout
    refused = run(*given, "schedule.warmup=283", cwd=tmp_path)
    assert refused.returncode == 2
    assert "schedule.warmup is 283, above the run's whole length of 282 steps" in refused.stderr


def test_a_plan_needs_no_ray(tmp_path: Path, digits: str) -> None:
    from tests.command import python

    code = (
        "import sys; from pliant.cli.main import main; "
        f"code = main(['plan', {DIGITS!r}, 'data.path={digits}']); print('ray' in sys.modules, file=sys.stderr)"
    )
    assert python("-c", code, cwd=tmp_path).stderr.splitlines()[-1] == "False"


@pytest.mark.parametrize("command", ["plan", "train"])
def test_what_does_not_fit_is_refused_with_its_parts_and_what_helps(
    run: Run, digits: str, tmp_path: Path, command: str
) -> None:
    settings = [f"data.path={digits}", f"run.storage={tmp_path}/runs", WIDE, TOO_LITTLE]
    done = run(command, DIGITS, *settings, cwd=tmp_path)
    assert done.returncode == 3
    assert "error[plan.memory] a worker needs 1." in done.stderr
    assert "has 572.2 MiB (elastic.resources_per_worker.memory); fullest in backward" in done.stderr
    for part in ("parameters", "gradients", "optimizer", "activations", "checkpoint", "data", "allocator", "process"):
        assert f"\n  {part} " in done.stderr
    assert "- train.reduction=fast, in a new run" in done.stderr
    assert "- workers or machines with more memory" in done.stderr
    assert not (tmp_path / "runs").exists(), "refused before anything was begun"


def test_more_workers_are_advised_where_they_fit(run: Run, digits: str, tmp_path: Path) -> None:
    settings = [f"data.path={digits}", "model.width=3072", "elastic.max_workers=4", "optim.kind=adamw"]
    needs = [
        at["host_memory"]["bytes"]
        for at in json.loads(run("plan", DIGITS, *settings, "--json", cwd=tmp_path).stdout)["by_workers"]
    ]
    assert needs == sorted(needs, reverse=True)
    limit = f"elastic.resources_per_worker={{CPU: 1, memory: {(needs[0] + needs[1]) // 2}}}"
    done = run("plan", DIGITS, *settings, limit, cwd=tmp_path)
    assert done.returncode == 3
    assert "- elastic.min_workers=2: it fits from there" in done.stderr
    assert run("plan", DIGITS, *settings, limit, "elastic.min_workers=2", cwd=tmp_path).returncode == 0


def test_what_cannot_be_measured_is_not_refused_for_its_memory(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "blind.py"
    file.write_text(
        "from tests.train.pipelines.masked import Masked\n\n\n"
        "class Blind(Masked):\n"
        "    def loss(self, model, batch):\n"
        "        raise RuntimeError('not before training')\n\n\n"
        "pipeline = Blind\n"
    )
    dataset = prepare(str(tmp_path / "set"))
    settings = [*(text for text in SETTINGS if "optim" not in text), f"data.path={dataset}"]
    (tmp_path / "blind_settings.py").write_text("from tests.train.pipelines.masked_settings import ModelSettings\n")
    elsewhere = run("plan", str(file), *settings, "cluster.address=auto", cwd=tmp_path)
    assert elsewhere.returncode == 0, elsewhere.stderr  # what fails here may work there
    done = run("plan", str(file), *settings, cwd=tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: not before training" in done.stderr
    said = "activations not known and not counted: a micro-batch fails here (RuntimeError: not before training)"
    assert (done.stdout.count(said), elsewhere.stdout.count(said)) == (1, 1)
    assert "torch" in sys.modules
    assert run("plan", PIPELINE, *settings, cwd=tmp_path).stdout.count("not known") == 0
