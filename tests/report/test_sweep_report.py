"""What a report shows of every kind of sweep, from its record alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pliant
from pliant.cli.main import main
from pliant.report.sweep import write_sweep_report
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.tune.results import read_results
from tests.report.pages import Page
from tests.report.sweeps import ASHA, MARKUP, PBT, RANDOM, faults, recorded, strange
from tests.tune.recording import RecordedSweep


def report(sweep: RecordedSweep) -> tuple[dict[str, Any], Page]:
    """The report in short, and its page."""
    written = pliant.Sweep.open(sweep.store.uri).report()
    return written, Page(Path(written["file"]))


def trials_of(page: Page, look: str, figure: str) -> set[int]:
    """Numbers of the trials that are drawn so in a figure."""
    inside, found = "", set()
    for tag, attributes in page.tags:
        inside = str(attributes["id"]) if tag == "figure" else inside
        if tag == "path" and inside == f"figure-{figure}" and look in str(attributes["class"]).split():
            found.add(int(attributes["data-t"] or -1) if "data-t" in attributes else -1)
    return found


def words(page: Page) -> str:
    return " ".join(page.text.split())


@pytest.fixture(scope="module")
def asha(tmp_path_factory: pytest.TempPathFactory) -> RecordedSweep:
    return recorded(tmp_path_factory.mktemp("asha"), "asha", ASHA, faults=faults)


@pytest.fixture(scope="module")
def pbt(tmp_path_factory: pytest.TempPathFactory) -> RecordedSweep:
    return recorded(tmp_path_factory.mktemp("pbt"), "pbt", PBT)


def test_it_needs_nothing_else_and_is_the_same_each_time(asha: RecordedSweep) -> None:
    written, page = report(asha)
    assert page.loaded() == []
    assert len(page.scripts) == 1
    assert written["bytes"] == len(page.source.encode()) < 100_000
    assert report(asha)[1].source == page.source


def test_the_head_says_what_came_out(asha: RecordedSweep) -> None:
    written, page = report(asha)
    facts = pliant.Sweep.open(asha.store.uri).status()
    assert {key: written[key] for key in ("state", "counts", "decisions", "cost")} == {
        key: facts[key] for key in ("state", "counts", "decisions", "cost")
    }
    best = facts["best"]
    head = words(page)[: words(page).index("The best configuration")]
    assert f"best accuracy {best['value']:.5g} {best['trial']}, at {best['samples']} rows" in head
    assert f"cost {facts['cost']:,.2f} at 36 for a worker-hour" in head


def test_every_trial_is_drawn_as_it_stands(asha: RecordedSweep) -> None:
    _, page = report(asha)
    facts = pliant.Sweep.open(asha.store.uri).status()["trials"]
    best = {int(pliant.Sweep.open(asha.store.uri).status()["best"]["trial"][1:])}
    reported = {n: row["status"] for n, row in enumerate(facts) if row["best"] is not None}
    assert trials_of(page, "best", "values") == best
    assert trials_of(page, "completed", "values") | best == {n for n, how in reported.items() if how == "completed"}
    assert trials_of(page, "stopped", "values") == {n for n, how in reported.items() if how == "stopped"}
    assert trials_of(page, "bad", "values") == {-1}
    assert "reports without a finite value, marked in red" in page.text
    assert trials_of(page, "none", "parallel") == set(range(len(facts))) - set(reported)
    shades = [trials_of(page, f"q{k}", "parallel") for k in range(5)]
    worst = min(reported, key=lambda n: facts[n]["best"])
    assert worst in shades[4]
    assert set.union(best, *shades) == set(reported)


def test_rungs_count_who_went_on(asha: RecordedSweep) -> None:
    _, page = report(asha)
    trials = read_results(RunRecord.open(asha.store)).trials
    first = [t for t in trials if t.reports]
    beyond = [t for t in first if t.samples >= 300]
    stopped = [t for t in first if t.samples == 100 and t.end is not None and t.end.how == "stopped"]
    label = f"{len(beyond)} went on, 0 wait, {len(stopped)} stopped, {len(first) - len(beyond) - len(stopped)} without"
    labels = [
        str(a["aria-label"]) for tag, a in page.tags if tag == "div" and a.get("class") == "bar" and a.get("role")
    ]
    assert labels[0].startswith(label)
    assert f"rung 1 100 1 {len(first)} {len(beyond)}" in words(page)
    assert words(page).count("the end 900 9") == 1


def test_what_mattered_is_the_learning_rate(asha: RecordedSweep) -> None:
    _, page = report(asha)
    part = words(page).split("What mattered")[1]
    assert part.startswith(" optim.lr 9")
    assert "Shares by PED-ANOVA" in part


def test_failures_are_told_once_with_their_trials(asha: RecordedSweep) -> None:
    _, page = report(asha)
    part = words(page).split("What went wrong")[1]
    assert "failed: 2 trials t0007, t0011 user before 100 samples" in part
    assert "diverged: 2 trials" in part
    lost = part.split("Lost on the way, and gone on")[1]
    assert "preemption" in lost
    assert "t0007" not in lost


def test_a_population_shows_who_went_on_from_whom(pbt: RecordedSweep) -> None:
    _, page = report(pbt)
    results = read_results(RunRecord.open(pbt.store))
    clones = sum(trial.generation for trial in results.trials)
    assert clones
    assert f"{clones} times a trial went on from another one's state" in page.text
    exploit = next(d for t in results.trials for d in t.decisions if d.action == "exploit")
    assert f"{exploit.trial} 1 {exploit.samples} {exploit.donor} {exploit.donor_samples}" in words(page)
    assert trials_of(page, "bar", "lineage") == set(range(6))
    for name in ("optim.lr", "train.global_batch"):
        assert trials_of(page, "line", f"course-{name}") == {-1}
    assert "Who went on" not in page.text
    assert "it takes 20 to tell what mattered" in page.text


def test_the_best_of_a_population_comes_with_its_schedule(tmp_path: Path) -> None:
    sweep = recorded(tmp_path, "pbt", PBT)
    best = read_results(sweep.record).best
    assert best is not None
    assert best.generation, "with this seed the best is a clone"
    phases = "[{from_samples: 150, settings: {optim.lr: 0.0307946}}]"
    sweep.trial_run(best.run, chosen={"optim.lr": 0.052427, "train.steps": 40, "phases": phases})
    _, page = report(sweep)
    assert "its schedule in phases, one run trains all of that again" in words(page)
    assert f"phases: {phases} optim: lr: 0.052427 train: steps: 40" in words(page)
    command = f"pliant train {sweep.record.identity['pipeline']} optim.lr=0.052427 'phases={phases}' train.steps=40"
    assert command in words(page)


def test_learning_rates_are_those_that_were_trained_with(tmp_path: Path) -> None:
    sweep = recorded(tmp_path, "pbt", PBT)
    best = read_results(sweep.record).best
    assert best is not None
    _, page = report(sweep)
    assert "figure-learning-rate" not in page.source, "no run has recorded any"
    run = sweep.trial_run(best.run, chosen={"optim.lr": 0.05}, alive=True)
    log = LogWriter(run.store, run.attempt(1), "metrics", every_s=600.0)
    for step in range(1, 40):
        log.append({"step": step, "samples": 150 + 20 * step, "lr": 0.05 / step})
    log.close()
    _, page = report(sweep)
    assert trials_of(page, "line", "learning-rate") == {-1}
    assert trials_of(page, "member", "learning-rate") == {int(best.trial[1:])}
    assert f"pliant train {sweep.record.identity['pipeline']} optim.lr=0.05" in words(page)
    assert "one run trains all of that again" not in page.text, "its run has no phases"


@pytest.mark.parametrize("entries", [0, 1, 2, 3])
def test_a_sweep_that_has_hardly_begun(entries: int, tmp_path: Path) -> None:
    sweep = RecordedSweep(tmp_path)
    if entries:
        sweep.drive(entries=entries)
    written, page = report(sweep)
    assert written["state"] == ("died, resumable" if entries else "not started")
    assert written["trials"] == (entries > 1)
    assert written["best"] is None or entries > 2
    assert ("No trial has reported" in page.text) == (entries <= 2)


def test_texts_cannot_become_markup(tmp_path: Path) -> None:
    sweep = strange(tmp_path)
    results = read_results(sweep.record)
    out = tmp_path / "page.html"
    written = write_sweep_report(results, out)
    page = Page(out)
    assert written["sweep"] == results.name
    assert MARKUP in page.text
    assert "<script>alert" not in page.source
    assert "<i>model" not in page.source
    assert page.classes("h1") == [""]


def test_five_hundred_trials_fit(tmp_path: Path) -> None:
    sweep = recorded(tmp_path, "many", {**RANDOM, "trials": 500, "scheduler": {"kind": "none", "every_epochs": 1.5}})
    written, page = report(sweep)
    assert written["trials"] >= 500
    assert written["bytes"] < 2_000_000
    assert len(page.classes("tr")) > 500


def test_the_command_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = RecordedSweep(tmp_path)
    sweep.drive()
    monkeypatch.chdir(tmp_path)
    assert main(["report", "asha", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert Path(written["file"]) == Path(sweep.store.uri, "report.html").absolute()
    assert main(["report", "asha", "--out", "nowhere/report.html"]) != 0
    assert "the report cannot be written" in capsys.readouterr().err
