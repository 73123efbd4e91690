"""What a report shows of every kind of run, from its record alone."""

from __future__ import annotations

import json
import math
import uuid
from pathlib import Path
from typing import Any

import pytest

import pliant
from pliant.cli.main import main
from pliant.report.figures import PIECES
from tests.report.pages import Page
from tests.report.records import WrittenRun, decaying, eventful
from tests.s3 import S3Server


@pytest.fixture
def run(tmp_path: Path) -> WrittenRun:
    return WrittenRun(str(tmp_path / "runs" / "run"))


def report(run: WrittenRun) -> tuple[dict[str, Any], Page]:
    """The report in short, and its page."""
    written = pliant.Run.open(run.store.uri).report()
    return written, Page(Path(written["file"]))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Page]:
    return report(eventful(str(tmp_path_factory.mktemp("runs") / "run"), name="lm<script>alert(1)</script>&\"'"))


def test_nothing_is_loaded_from_elsewhere(everything: tuple[dict[str, Any], Page]) -> None:
    _, page = everything
    assert page.loaded() == []
    assert len(page.scripts) == 1


def test_what_a_run_is_called_cannot_become_markup(everything: tuple[dict[str, Any], Page]) -> None:
    written, page = everything
    assert "lm<script>alert(1)</script>&\"'" in page.text
    assert "<script>alert" not in page.source
    assert written["run"].startswith("lm<script>")


def test_every_attempt_is_marked_where_it_begins(everything: tuple[dict[str, Any], Page]) -> None:
    _, page = everything
    titles = [str(attributes["title"]) for tag, attributes in page.tags if tag == "span" and "title" in attributes]
    assert titles[:6] == [
        "attempt 2 from step 1, 2 workers",
        "attempt 4 from step 1,901, 4 workers",
        "attempt 6 from step 3,801, 4 workers",
        "attempt 8 from step 6,401, 1 workers",
        "attempt 10 from step 9,001, 3 workers",
        "attempt 12 from step 11,501, 2 workers",
    ]


def test_spikes_and_what_is_not_finite_stay_visible(everything: tuple[dict[str, Any], Page]) -> None:
    written, page = everything
    assert written["figures"] == ["loss", "accuracy", "bits_per_byte", "lr", "grad_norm", "rate", "world_size"]
    (loss,) = page.figures["loss"]["curves"]
    assert len(loss["first"]) <= PIECES
    assert max(v for v in loss["high"] if v is not None) == 19.0
    assert sum(loss["bad"]) == 2
    assert "15,000 values in 700 points" in page.text
    assert "2 not finite, marked in red: step 6,210, 6,211" in page.text
    assert [c["label"] for c in page.figures["accuracy"]["curves"]] == ["training", "validation"]


def test_the_time_is_split(everything: tuple[dict[str, Any], Page]) -> None:
    written, page = everything
    seconds = written["seconds"]
    assert seconds["step"] == pytest.approx(15_000 * 0.2)
    assert seconds["down"] == pytest.approx(40 + 300 + 1200 + 60 + 90)
    assert seconds["evaluation"] == pytest.approx(6 * 6)
    assert seconds["replayed"] > 300
    assert written["goodput"] == pytest.approx(seconds["step"] / (sum(seconds.values()) - seconds["down"]))
    assert "steps that were lost and had to be done again" in page.text


def test_what_must_not_be_missed_stands_first(everything: tuple[dict[str, Any], Page]) -> None:
    _, page = everything
    before = page.text[: page.text.index("Curves")]
    for words in (
        "step-00006450.a000006 is damaged",
        "Attempt 8 ran under other conditions",
        "The loss was not finite",
    ):
        assert words in before


def test_settings_have_their_origins(everything: tuple[dict[str, Any], Page]) -> None:
    _, page = everything
    words = " ".join(page.text.split())
    assert "train.steps 15000 pipelines/lm.yaml:12:3" in words
    assert "optim.lr 0.003 override optim.lr=3e-3" in words
    assert "At their defaults: 1 seed 0 default" in words
    assert "changed optim.lr 0.003 → 0.001" in page.text


def test_a_run_that_was_never_started(run: WrittenRun) -> None:
    written, page = report(run)
    assert (written["state"], written["steps"], written["figures"], written["goodput"]) == ("not started", 0, [], None)
    assert "The run has not recorded a step yet." in page.text


def test_what_did_not_train_has_its_causes(run: WrittenRun) -> None:
    run.start()
    run.join(workers=3)
    run.steps(20, workers=3)
    saved = run.save()
    run.event("preemption", "node <ab12> goes away in 28 s: saving, then leaving", log="driver")
    run.leave("preemption")
    run.wait(4)
    run.event("waiting", "waiting for machines: 1 worker fits, elastic.min_workers is 2", log="driver")
    run.wait(30)
    run.join(saved, startup_s=6)
    run.steps(40)
    run.end()
    written, page = report(run)
    assert written["causes"] == {
        "replayed": {}, "recovery": {"preemption": pytest.approx(10)}, "waiting": {"preemption": pytest.approx(30)},
        "down": {},
    }  # fmt: skip
    words = " ".join(page.text.split())
    assert "from the end of one start to the first step of the next: preemption 10" in words
    assert "preemption: node <ab12> goes away in 28 s: saving, then leaving" in words
    assert written["goodput"] == pytest.approx(40 * 0.2 / (sum(written["seconds"].values()) - 30))


def test_a_run_that_died_before_its_first_step(run: WrittenRun) -> None:
    run.start()
    run.wait(20)
    run.die()
    written, page = report(run)
    assert written["state"] == "died, resumable"
    assert written["seconds"]["init"] == pytest.approx(23)
    assert "The run has not recorded a step yet." in page.text


def test_a_run_that_crashed(run: WrittenRun) -> None:
    run.start()
    run.join()
    run.steps(30)
    run.end("user", "error[user.loss] lm.py:12  ValueError: <b>bad</b> & worse\nwith http://ada:secret@host/ in it")
    written, page = report(run)
    assert written["state"] == "failed (pipeline or settings)"
    assert "ValueError: <b>bad</b> & worse" in page.text
    assert "secret" not in page.source


def test_a_run_that_is_training(run: WrittenRun) -> None:
    run.start()
    driver = run.record.claim_driver()  # this process, which lives
    run.record.claim_group(driver.number, {"world_size": 1}).restore(None)
    written, page = report(run)
    assert written["state"] == "running"
    assert "state running" in page.classes("span")


def test_a_single_step_and_values_that_are_never_finite(run: WrittenRun) -> None:
    run.start()
    run.join()
    run.steps(1, grad_norm=lambda step: None, odd=lambda step: math.inf, far=lambda step: 1.7e308)
    run.evaluate(far=-1.7e308)
    written, page = report(run)
    assert written["steps"] == 1
    assert "No value of it is finite." in page.text
    assert {"odd", "far", "grad_norm"} <= page.figures.keys()


def test_a_hundred_thousand_steps_are_under_5_mb(run: WrittenRun) -> None:
    run.start()
    run.join()
    own = {f"metric_{i}": (lambda step, i=i: decaying(step) * i) for i in range(8)}
    own |= {"loss": lambda step: 40.0 if step == 77_777 else 2.0 + step % 7 / 10}
    run.steps(100_000, data_s=0.001, step_s=0.01, **own)
    written, page = report(run)
    assert written["steps"] == 100_000
    assert written["bytes"] < 5_000_000
    (loss,) = page.figures["loss"]["curves"]
    assert max(loss["high"]) == 40.0
    assert len(written["figures"]) == 12


def test_more_metrics_and_events_than_anyone_reads(run: WrittenRun) -> None:
    run.start()
    run.join()
    run.steps(3, **{f"m{i}": float for i in range(40)})
    for i in range(600):
        run.event("note", f"event {i}")
    written, page = report(run)
    assert "16 more metrics are not shown: m24, m25" in page.text
    assert "201 older ones are not shown" in page.text
    assert "event 599" in page.text
    assert written["events"] == 601


def test_a_run_on_object_storage_is_reported_here(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = WrittenRun(f"{s3_server.uri(f'r-{uuid.uuid4().hex}')}/far", name="far")
    run.start()
    run.join()
    run.steps(20)
    saved = run.save()
    run.steps(25)
    run.die()
    run.start()
    run.join(saved)
    run.steps(30)
    run.end()
    monkeypatch.chdir(tmp_path)
    written, _ = report(run)
    assert Path(written["file"]) == tmp_path / "far-report.html"
    assert (written["steps"], written["attempts"]) == (30, 4)
    assert written["seconds"]["replayed"] > 0


def test_the_command(run: WrittenRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.start()
    run.join()
    run.steps(5)
    run.end()
    assert main(["report", run.store.uri]) == 0
    said = capsys.readouterr()
    assert said.out == f"{run.store.uri}/report.html\n"
    assert said.err.startswith("run: done, step 5, ")

    out = tmp_path / "elsewhere.html"
    assert main(["report", "run", f"run.storage={tmp_path / 'runs'}", "--out", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["file"] == str(out)
    assert shown["bytes"] == out.stat().st_size
    assert not list(tmp_path.glob(".*"))


def test_a_place_that_cannot_be_written(run: WrittenRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", run.store.uri, "--out", str(tmp_path / "none" / "report.html")]) == 4
    said = capsys.readouterr().err
    assert said == (
        f"error[report.write] {tmp_path}/none/report.html  the report cannot be written: No such file or directory\n"
        "  write it elsewhere with --out FILE\n"
    )
