"""docs/tutorial.md, as it stands there: its files are written, its commands run, in its order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command import ROOT, python
from tests.e2e.commands import Command, store_of

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
FILES = {m[2]: m[3] for m in re.finditer(r"```(python|yaml)\n# (\S+)\n(.*?)```", TUTORIAL, flags=re.DOTALL)}
COMMANDS = [
    "pliant prepare weather",
    "pliant train weather --name first --in-process",
    "pliant stop first",
    "pliant status first",
    "pliant resume first --in-process",
    "pliant metrics first --eval",
    "mlflow ui --backend-store-uri sqlite:///runs/mlflow.db",
    "pliant report first",
]


def test_the_pipeline_is_twenty_lines_and_the_commands_are_those_that_are_run_here() -> None:
    assert list(FILES) == ["weather_data.py", "pipelines/weather.py", "pipelines/weather.yaml", "use.py"]
    assert len([line for line in FILES["pipelines/weather.py"].splitlines() if line]) <= 20
    assert re.findall(r"^\$ (.+)$", TUTORIAL, flags=re.MULTILINE) == COMMANDS
    assert TUTORIAL.count("```python") + TUTORIAL.count("```yaml") == len(FILES)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tutorial_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    prepare, train, stop, status, resume, metrics, _, report = (line.split()[1:] for line in COMMANDS)
    assert python("weather_data.py", cwd=tmp_path).returncode == 0
    Command(*prepare, cwd=tmp_path).finish()

    # As many steps as it takes until the stop has arrived; the resume then has twenty more to go.
    training = Command(*train, "train.steps=1000000", cwd=tmp_path)
    training.wait_for_output("step ")
    Command(*stop, cwd=tmp_path).finish()
    output = training.finish(75)
    assert "resume with: pliant resume first" in output
    stopped = int(re.findall(r"stopped: step (\d+) of", output)[-1])
    assert "stopped" in Command(*status, cwd=tmp_path).finish()
    last = stopped + 20
    assert f"done: step {last} of {last}" in Command(*resume, f"train.steps={last}", cwd=tmp_path).finish()

    evaluations = [line for line in Command(*metrics, cwd=tmp_path).finish().splitlines() if line.strip()]
    assert len(evaluations) >= 2
    used = python("use.py", cwd=tmp_path)
    assert used.returncode == 0, used.stderr
    assert -30 < float(used.stdout) < 50
    Command(*report, cwd=tmp_path).finish()
    page = (tmp_path / "runs" / "first" / "report.html").read_text(encoding="utf-8")
    assert "first" in page
    steps = [entry["step"] for entry in _metrics(tmp_path)]
    assert steps == list(range(1, last + 1))


def _metrics(folder: Path) -> list[dict[str, object]]:
    from pliant.storage.logs import read_log
    from pliant.storage.record import RunRecord

    store = store_of(str(folder / "runs"), "first")
    return list(read_log(store, RunRecord.open(store).view(), "metrics"))
