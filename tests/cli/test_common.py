"""Output, and which run a name means."""

from __future__ import annotations

import json

import pytest

from pliant.cli.common import (
    apart,
    check_run_name,
    emit,
    emit_lines,
    resolve_run,
    say,
    table,
    unknown_run,
    write_result,
)
from pliant.errors import ConfigError, UsageError


@pytest.mark.parametrize(
    ("reference", "overrides", "uri"),
    [
        ("q1", [], "runs/q1"),
        ("q1", ["run.storage=s3://bucket/all/"], "s3://bucket/all/q1"),
        ("runs/q1/", [], "runs/q1"),
        ("./q1", [], "./q1"),
        ("/data/runs/q1", ["run.storage=elsewhere"], "/data/runs/q1"),
        ("s3://bucket/q1", [], "s3://bucket/q1"),
        ("asha/trials/t0003.g1", [], "runs/asha/trials/t0003.g1"),
        ("asha/trials/t0003", ["run.storage=s3://b/all"], "s3://b/all/asha/trials/t0003"),
        ("runs/asha/trials/t0003", [], "runs/asha/trials/t0003"),
    ],
)
def test_a_run_is_a_name_or_a_full_path(reference: str, overrides: list[str], uri: str) -> None:
    assert resolve_run(reference, overrides).uri == uri


def test_storage_settings_come_along() -> None:
    assert resolve_run("q1", ["run.store.retry_for=5s"]).settings.store.retry_for == 5.0
    assert resolve_run("q1", None).settings.store.retry_for == 600.0


def test_other_overrides_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"optim is not a setting"):
        resolve_run("q1", ["optim.lr=3"])


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 101, "ä", "a:b"])
def test_names_that_no_run_may_have(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_run_name(name)
    assert str(caught.value) == (
        f"error[run.name] {name!r} cannot name a run; allowed: letters, digits, '.', '_' and '-', 100 at most"
    )


def test_names_that_a_run_may_have() -> None:
    for name in ("quickstart", "lm-0412.b_2", "9"):
        assert check_run_name(name) == name


@pytest.mark.parametrize(
    ("known", "hint"),
    [
        (["quickstart", "other"], "did you mean quickstart?"),
        (["b", "a"], "runs there: a, b"),
        ([f"r{i:02}" for i in range(12)], "runs there: r00, r01, r02, r03, r04, r05, r06, r07, r08, r09 …"),
        ([], "there are no runs there"),
    ],
)
def test_an_unknown_run_gets_the_closest(known: list[str], hint: str) -> None:
    error = unknown_run("quikstart", "runs/quikstart", known)
    assert str(error) == f"error[run.unknown] runs/quikstart  there is no run quikstart\n  {hint}"
    assert error.exit_code == 2


def test_results_go_to_stdout_and_talk_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"a": "ü"}, as_json=True, text="text")
    emit({"a": 1}, as_json=False, text="text")
    emit_lines({"step": n} for n in (1, 2))
    say("talk")
    shown = capsys.readouterr()
    assert shown.out == '{"a": "ü"}\ntext\n{"step": 1}\n{"step": 2}\n'
    assert shown.err == "talk\n"
    assert json.loads(shown.out.splitlines()[0]) == {"a": "ü"}


def test_tables_are_aligned() -> None:
    assert table(("split", "rows"), [("train", 122880), ("validation", 7)]).splitlines() == [
        "split          rows",
        "train       122,880",
        "validation        7",
    ]
    assert table(("split", "rows"), []) == "split  rows"


def test_what_user_code_prints_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    @apart
    def command() -> None:
        print("from a pipeline")
        emit({"a": 1}, as_json=True, text="")
        write_result("and more")

    command()
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ('{"a": 1}\nand more\n', "from a pipeline\n")
