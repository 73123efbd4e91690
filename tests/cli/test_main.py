"""How commands end, and what goes where."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from pliant import __version__
from pliant.cli import main as cli
from pliant.errors import DamageError, FencedError, StorageError, UnschedulableError, UsageError, UserCodeError
from tests.command import pliant, python

HEAVY = ("torch", "ray", "mlflow", "pyarrow", "numpy", "pandas", "ruamel", "obstore", "sklearn")


def test_help_is_quick_and_lists_the_commands() -> None:
    def cpu_seconds() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = cpu_seconds()  # and not time on the clock, which other work on the machine shares in
    done = pliant("--help")
    assert cpu_seconds() - before < 0.5
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("prepare", "data", "config", "--debug", "Exit codes:"):
        assert command in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["prepare", "--help"], ["config", "show", "-h"], ["--version"]])
def test_nothing_heavy_is_imported_for_help(arguments: list[str]) -> None:
    code = (
        "import sys; from pliant.cli.main import main; "
        f"code = main({arguments!r}); "
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_nothing_heavy_is_imported_for_the_help_of_any_command() -> None:
    code = (
        "import sys, typer; from pliant.cli.main import app, main\n"
        "commands = typer.main.get_command(app).commands\n"
        "lines = [[name, *([below] if below else [])] for name, command in commands.items()"
        " for below in getattr(command, 'commands', [''])]\n"
        "codes = {main([*line, '--help']) for line in lines}\n"
        f"print(len(lines) > 20, codes, [m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = python("-c", code)
    assert done.stderr == "True {0} []\n"


@pytest.mark.parametrize("colour", [True, False])
def test_no_color_is_honoured_by_the_help(colour: bool) -> None:
    done = pliant("train", "--help", FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="" if colour else "1")
    assert ("\x1b[1;3" in done.stdout or "\x1b[3" in done.stdout) == colour


def test_importing_pliant_imports_nothing_heavy() -> None:
    done = python("-c", f"import sys, pliant; print([m for m in {HEAVY!r} if m in sys.modules]); print(dir(pliant))")
    first, second = done.stdout.splitlines()
    assert first == "[]"
    for name in ("load_config", "Pipeline", "RunConfig", "PliantError"):
        assert name in second


def test_the_public_names_exist() -> None:
    import pliant as package

    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'pliant' has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_version() -> None:
    done = pliant("--version")
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n")


def test_no_command_shows_the_help() -> None:
    done = pliant()
    assert done.returncode == 2
    assert "Commands" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["prepar"], "Did you mean 'prepare'"),
        (["prepare"], "Missing argument 'PIPELINE'"),
        (["prepare", "digits", "--overwrit"], "--overwrite"),
    ],
)
def test_bad_usage_exits_2_with_a_suggestion(arguments: list[str], says: str) -> None:
    done = pliant(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("argument", "written"), [("--optim.lr=3", "optim.lr=3"), ("--data.read.threads", "data.read.threads=VALUE")]
)
def test_a_setting_written_like_an_option_is_named(
    argument: str, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "digits", argument]) == 2
    assert capsys.readouterr().err == (
        f"error[usage.setting] {argument} is no option\n  settings have no dashes: {written}\n"
    )


def test_an_error_is_talk_without_a_traceback(tmp_path: Path) -> None:
    done = pliant("config", "show", "digitz", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("error[pipeline.unknown] there is no pipeline digitz; known: digits, ")
    assert second == "  did you mean digits?"


@pytest.mark.parametrize("line", [["--debug", "config", "show", "digitz"], ["config", "show", "digitz", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(line: list[str], tmp_path: Path) -> None:
    done = pliant(*line, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert done.stderr.endswith("  did you mean digits?\n")


def test_errors_as_json(tmp_path: Path) -> None:
    done = pliant("config", "check", "digitz", "--json", cwd=tmp_path)
    shown = json.loads(done.stderr)
    assert shown["exit_code"] == done.returncode == 2
    assert shown["error"]["code"] == "pipeline.unknown"
    assert shown["error"]["hint"] == "did you mean digits?"


def ends_with(monkeypatch: pytest.MonkeyPatch, error: BaseException, *arguments: str) -> int:
    """The exit code of a command that raises."""

    def app(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", app)
    return cli.main(list(arguments))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("a.b", "m"), 2),
        (UnschedulableError("a.b", "m"), 3),
        (DamageError("a.b", "m"), 4),
        (StorageError("a.b", "m"), 4),
        (FencedError("a.b", "m"), 75),
        (UserCodeError("a.b", "m"), 1),
        (ZeroDivisionError("m"), 4),
        (SystemExit(130), 130),
        (SystemExit(None), 0),
    ],
)
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    assert ends_with(monkeypatch, error) == code


def test_a_fault_of_pliant_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ends_with(monkeypatch, ZeroDivisionError("by nought"))
    assert capsys.readouterr().err == (
        "error[internal] ZeroDivisionError: by nought\n"
        "  this is a fault of Pliant or of its environment; --debug shows where it happened\n"
    )
    ends_with(monkeypatch, ZeroDivisionError("by nought"), "--debug")
    assert "Traceback" in capsys.readouterr().err


def test_the_users_own_error_is_shown_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = UserCodeError("a.b", "it failed")
    try:
        [][1]
    except IndexError as cause:
        error.__cause__ = cause
    ends_with(monkeypatch, error)
    shown = capsys.readouterr().err
    assert "in test_the_users_own_error_is_shown_with_its_traceback" in shown
    assert "IndexError: list index out of range\nerror[a.b] it failed\n" in shown


def test_a_users_file_that_fails_is_shown_with_the_users_lines_alone(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text("")
    (tmp_path / "toy_settings.py").write_text("def load():\n    return {}['x']\n\nload()\n")
    done = pliant("config", "check", "./toy.py", cwd=tmp_path)
    file = tmp_path / "toy_settings.py"
    assert (done.returncode, done.stdout) == (1, "")
    lines = [line for line in done.stderr.splitlines() if set(line.strip()) - set("~^")]
    assert lines == [
        "Traceback (most recent call last):",
        f'  File "{file}", line 4, in <module>',
        "    load()",
        f'  File "{file}", line 2, in load',
        "    return {}['x']",
        "KeyError: 'x'",
        f"error[pipeline.import] {file}  cannot be imported: KeyError: 'x'",
    ]


def test_an_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    from pliant.cli import config as config_command

    assert config_command is cli.config

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pliant.configure.load_config", interrupted)
    assert cli.main(["config", "show", "digits"]) == 130
