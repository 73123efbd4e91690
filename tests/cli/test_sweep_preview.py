"""``pliant sweep --dry-run``: what a sweep will come to. Nothing starts, nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.report.records import WrittenRun
from tests.train.runs import PIPELINE, prepare
from tests.tune.recording import RecordedSweep, story

SPACE = """sweep: {trials: 9, scheduler: {kind: KIND, FIRST: 1}}
settings: {train.epochs: 9, train.global_batch: 29, train.micro_batch: 29, data.reader: local}
space: {optim.lr: {log: [1e-4, 1e-2]}}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """203 rows to train, in a place of their own."""
    return prepare(str(tmp_path_factory.mktemp("preview") / "data"))


def previewed(run: Run, folder: Path, data: str, *more: str, kind: str = "halving", code: int = 0) -> list[str]:
    first = "every_epochs" if kind == "pbt" else "first_epochs"
    population = ", population: 9" if kind == "pbt" else ""
    space = SPACE.replace("KIND", kind).replace("FIRST: 1", f"{first}: 1{population}")
    (folder / "space.yaml").write_text(space)
    shown = run("sweep", PIPELINE, "--space", "space.yaml", "--dry-run", f"data.path={data}", *more, cwd=folder)
    assert shown.returncode == code, shown.stderr
    assert not (folder / "runs" / "masked").exists()
    return (shown.stderr if code else shown.stdout).splitlines()


def test_trials_and_rows_of_each_rung(data: str, tmp_path: Path, run: Run) -> None:
    assert previewed(run, tmp_path, data)[1:] == [
        "9 trials, the longest of 1,827 rows (9 epochs), 1 worker each",
        "",
        "to           epochs  rows a trial  trials   rows",
        "rung 1 of 2  1                203       9  1,827",
        "rung 2 of 2  3                609       3  1,218",
        "end          9              1,827       1  1,218",
        "",
        "rows in all   4,263: 26% of all trials to their end",
        "worker-hours  not known: --rows-per-second N, or an earlier RUN or SWEEP to take it from",
    ]


def test_equal_generations_are_one_line(data: str, tmp_path: Path, run: Run) -> None:
    lines = previewed(run, tmp_path, data, kind="pbt")
    assert lines[4].split()[:9] == ["generation", "1", "to", "9", "of", "9", "9", "1,827", "9"]
    assert lines[5] == ""


def test_what_depends_on_luck_says_so(data: str, tmp_path: Path, run: Run) -> None:
    lines = previewed(run, tmp_path, data, kind="asha")
    assert any(line.startswith("rows in all   about ") for line in lines)
    assert lines[-1].strip().startswith("how many go on depends on the order")


def test_cost_follows_from_a_rate(data: str, tmp_path: Path, run: Run) -> None:
    price = ["sweep.budget.price_per_worker_hour=3", "sweep.budget.worker_hours=1"]
    lines = previewed(run, tmp_path, data, "--rows-per-second", "0.5", *price)
    assert lines[-3:] == [
        "worker-hours  2.37, at 0.5 rows/s a trial",
        "              sweep.budget.worker_hours=1 ends it before, to be resumed with more",
        "cost          7.10, at 3 a worker-hour",
    ]


def test_the_rate_is_that_of_an_earlier_run_or_sweep(data: str, tmp_path: Path, run: Run) -> None:
    earlier = WrittenRun(str(tmp_path / "runs" / "first"), name="first")
    earlier.start()
    earlier.join(workers=2)
    earlier.steps(50, data_s=0.1, step_s=0.7)
    lines = previewed(run, tmp_path, data, "--rows-per-second", "first")
    assert (
        f"worker-hours  {4263 * 1.6 / 32 / 3600:.3g}, as first took: its steps alone, no evaluations and starts"
        in lines
    )
    sweep = RecordedSweep(tmp_path)
    sweep.write(story()[:9])  # 13 seconds for 900 rows
    lines = previewed(run, tmp_path, data, "--rows-per-second", "asha")
    assert f"worker-hours  {4263 * 13 / 900 / 3600:.3g}, as asha took: its trials as they were" in lines


@pytest.mark.parametrize("speed", ["0", "-3", "nan", "empty"])
def test_a_rate_that_is_none(speed: str, data: str, tmp_path: Path, run: Run) -> None:
    RecordedSweep(tmp_path, "empty").write([])
    lines = previewed(run, tmp_path, data, "--rows-per-second", speed, code=2)
    assert lines[0].startswith("error[sweep.speed] ")


def test_a_rate_is_for_a_dry_run(tmp_path: Path, run: Run) -> None:
    shown = run("sweep", "digits", "--space", "digits_asha", "--rows-per-second", "3", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (2, "error[sweep.speed] --rows-per-second is for --dry-run\n")
