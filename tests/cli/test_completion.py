"""What a shell completes, through the scripts that ``--show-completion`` gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import pliant, python


def completed(words: str, cwd: Path) -> list[str]:
    """What bash would offer for the last word."""
    done = pliant(cwd=cwd, _PLIANT_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("first", "second", "no-run"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    for name in ("first", "second"):
        (tmp_path / "runs" / name / "run.json").write_text(json.dumps({"version": 1}))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("pliant pre", ["prepare", "preflight"]),
        ("pliant train dig", ["digits"]),
        ("pliant logs ", ["first", "second"]),
        ("pliant config show s", ["second", "stdlib_lm"]),
        ("pliant train digits optim.be", ["optim.betas="]),
        ("pliant train digits optim.lr=", []),
        ("pliant config explain schedule.k", ["schedule.kind"]),
        ("pliant config explain sweep.tri", ["sweep.trials"]),
        ("pliant sweep digits sweep.sl", ["sweep.slots="]),
        ("pliant sweep digits optim.be", ["optim.betas="]),
        ("pliant sweep digits --space digits_p", ["digits_pbt"]),
        ("pliant status --w", ["--watch"]),
    ],
)
def test_what_is_offered(words: str, offered: list[str], folder: Path) -> None:
    assert completed(words, folder) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(shell: str, tmp_path: Path) -> None:
    done = pliant(cwd=tmp_path, _PLIANT_COMPLETE=f"source_{shell}")
    assert done.returncode == 0
    assert "_PLIANT_COMPLETE=complete_" in done.stdout


def test_completing_a_pipeline_or_a_setting_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from pliant.cli.complete import complete_pipeline, complete_setting; "
        "print(len(complete_pipeline('')) > 1, len(complete_setting('')) > 60, "
        "[m for m in ('torch', 'ray', 'mlflow', 'pyarrow') if m in sys.modules])"
    )
    assert python("-c", code, cwd=tmp_path).stdout == "True True []\n"
