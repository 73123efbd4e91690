"""A pipeline's files are part of a run: what has changed in them is shown, and needs to be accepted."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.cli.main import main
from pliant.errors import EXIT_USAGE, ConfigError, DamageError, UsageError
from pliant.registry import find_pipeline
from pliant.storage.layout import attempt_key
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.train.launch import Launch, new_run, resumed_run
from pliant.train.recorded import (
    CODE_OBJECT,
    CONFIG_OBJECT,
    Code,
    explain_code,
    pipeline_identity,
    record_start,
    recorded_code,
    recorded_pipeline,
)
from tests.train.runs import SETTINGS, Run

SOURCE = Path(__file__).parent / "pipelines"


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Path]:
    """A pipeline of three files, of which one is a module that it imports."""
    modules, path = set(sys.modules), list(sys.path)
    for name in ("masked.py", "masked_settings.py"):
        shutil.copy(SOURCE / name, tmp_path / name)
    (tmp_path / "masked.py").write_text(
        (SOURCE / "masked.py").read_text().replace("import os\n", "import os, helper\n")
    )
    (tmp_path / "helper.py").write_text("FACTOR = 1\n")
    yield tmp_path / "masked.py"
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in ("masked", "masked_settings", "helper"):
            del sys.modules[name]


@pytest.fixture
def run(pipeline: Path, dataset: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of it that a driver has started."""
    monkeypatch.chdir(pipeline.parent)
    settings = [*SETTINGS, f"data.path={dataset}", f"run.storage={pipeline.parent / 'runs'}"]
    launch = new_run(str(pipeline), settings, name="run", in_process=True)
    record_start(launch.record.claim_driver(), launch.config, launch.origins, launch.code)
    return Run(launch.record.store, "run")


def resume(run: Run, *, accept_code: bool = False) -> Launch:
    return resumed_run(run.store, [], take_over=True, in_process=True, accept_code=accept_code)


def resume_with(run: Run, *overrides: str) -> Launch:
    return resumed_run(run.store, list(overrides), take_over=True, in_process=True)


def test_what_is_recorded_are_digests_and_texts(run: Run, pipeline: Path) -> None:
    code = recorded_code(run.record)
    assert sorted(code.files) == ["helper.py", "masked.py", "masked_settings.py"]
    assert code.files["helper.py"].text == "FACTOR = 1\n"
    assert len(code.files["masked.py"].digest) == 32
    assert resume(run).code_changes == ()
    assert explain_code(run.store) == ["the pipeline's code is what the run was started with"]


def test_a_change_is_refused_with_the_difference(run: Run, pipeline: Path) -> None:
    (pipeline.parent / "helper.py").write_text("FACTOR = 2\n\n")
    with pytest.raises(UsageError) as caught:
        resume(run)
    error = caught.value
    assert (error.code, error.exit_code, error.location) == ("resume.code-changed", EXIT_USAGE, str(pipeline))
    assert error.message == (
        "the pipeline's code is not what the run was started with (helper.py +2 −1):\n"
        "  --- helper.py (recorded)\n"
        "  +++ helper.py (now)\n"
        "  @@ -1 +1,2 @@\n"
        "  -FACTOR = 1\n"
        "  +FACTOR = 2\n"
        "  +"
    )
    assert error.hint == "put it back, or go on with the new code: --accept-code; the change is recorded"
    assert explain_code(run.store) == [
        "the pipeline's code has changed (helper.py +2 −1): a resume would need --accept-code"
    ]


def test_new_files_and_files_that_are_gone_are_changes(run: Run, pipeline: Path) -> None:
    (pipeline.parent / "helper.py").unlink()
    pipeline.write_text(pipeline.read_text().replace("import os, helper", "import os, other"))
    (pipeline.parent / "other.py").write_text("x = 1\n" * 300)
    with pytest.raises(UsageError) as caught:
        resume(run)
    assert "(helper.py is gone, masked.py +1 −1, other.py is new)" in caught.value.message
    assert caught.value.message.endswith("  +x = 1\n  … 118 more lines")


def test_an_accepted_change_is_what_the_next_resume_compares_with(run: Run, pipeline: Path) -> None:
    (pipeline.parent / "helper.py").write_text("FACTOR = 2\n")
    launch = resume(run, accept_code=True)
    assert [str(change) for change in launch.code_changes] == ["helper.py +1 −1"]
    record_start(launch.record.claim_driver(), launch.config, launch.origins, launch.code)
    assert resume(run).code_changes == ()


def test_a_start_that_recorded_no_code_is_a_change_of_all(run: Run, pipeline: Path) -> None:
    (Path(run.store.uri) / attempt_key(1, CODE_OBJECT)).unlink()
    with pytest.raises(UsageError, match=r"\(helper\.py is new, masked\.py is new, masked_settings\.py is new\)"):
        resume(run)


def test_damaged_code_is_named(run: Run) -> None:
    place = f"{run.store.uri}/x"
    for data in (b"{}", b'{"files": 5}', b'{"files": {"a": {}}}'):
        with pytest.raises(DamageError) as caught:
            Code.from_bytes(data, place)
        assert caught.value.location == place


def test_a_pipeline_by_module_and_attribute_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "net.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    ref = find_pipeline("package.net:Net")
    record = RunRecord.create(Store(f"{tmp_path}/run", StorageSettings()), pipeline_identity(ref))
    found = recorded_pipeline(record)
    assert (found.module, found.file, found.attribute) == ("package.net", tmp_path / "package" / "net.py", "Net")


def test_settings_that_are_no_text_are_damage(run: Run) -> None:
    (Path(run.store.uri) / attempt_key(1, CONFIG_OBJECT)).write_bytes(b"\xff")
    with pytest.raises(DamageError, match="it is not UTF-8"):
        resume(run)


def test_storage_that_says_where_the_run_is_is_no_change(run: Run) -> None:
    assert resume_with(run, "run.storage=runs").changes == resume(run).changes
    with pytest.raises(ConfigError, match=r"run\.storage is frozen"):
        resume_with(run, "run.storage=elsewhere")


def test_a_pipeline_that_is_gone_is_named(run: Run, pipeline: Path) -> None:
    pipeline.unlink()
    with pytest.raises(UsageError) as caught:
        resume(run)
    assert (caught.value.code, caught.value.location) == ("resume.no-pipeline", str(pipeline))
    assert explain_code(run.store) == [f"the pipeline cannot be read: {pipeline} the run's pipeline is not there"]


def test_the_commands(run: Run, pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["train.steps=2", "tracking.kind=none", "schedule.warmup=0", "elastic.max_workers=2"]
    given = ["resume", "run", "--take-over", "--in-process", *settings]
    (pipeline.parent / "helper.py").write_text("FACTOR = 2\n")
    assert main(given) == EXIT_USAGE
    assert "\n  -FACTOR = 1\n  +FACTOR = 2\n" in capsys.readouterr().err
    assert main([*given, "--accept-code"]) == 0
    assert "changed code, accepted: helper.py +1 −1" in capsys.readouterr().err
    assert [event["text"] for event in run.events("code")] == ["changed code was accepted: helper.py +1 −1"]
    changed = [event["text"] for event in run.events("setting")]
    assert changed == [
        "changed train.steps: 21 → 2", "changed schedule.warmup: 3 → 0", "changed elastic.max_workers: 4 → 2",
    ]  # fmt: skip
    assert main(["resume", "run", "--explain"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "nothing is left to train: the checkpoint is at step 2 of 2",
        "the pipeline's code is what the run was started with",
    ]
    assert main(["resume", "run", "--explain", "train.steps=4", "elastic.max_workers=1"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:-1] == [
        "it would change train.steps: 2 → 4, and with it the curve",
        "it would change elastic.max_workers: 2 → 1",
    ]
    assert main(["resume", "run", "--explain", "seed=9"]) == EXIT_USAGE
