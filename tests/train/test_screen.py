"""The start screen: what is not left to its default, and where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.configure import load_config
from pliant.train.screen import chosen_settings, run_reference


def test_chosen_settings_with_their_origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.py").write_text("")
    (tmp_path / "toy.yaml").write_text(
        "data:\n  path: /a/very/very/long/path/to/the/dataset\ntrain:\n  micro_batch: 4\n"
    )
    overrides = [
        "train.global_batch=16",
        "train.steps=3",
        "elastic={max_workers: 3}",
        "tracking.uri=http://u:hush@host",
    ]
    config, origins = load_config("./toy.py", overrides)
    assert list(chosen_settings(config, origins)) == [
        "  data.path            …y/very/long/path/to/the/dataset  toy.yaml:2:3",
        "  data.lanes           4                                 derived",
        "  train.global_batch   16                                override",
        "  train.micro_batch    4                                 toy.yaml:4:3",
        "  train.steps          3                                 override",
        "  elastic.max_workers  3                                 override",
        '  tracking.uri         "http://u:***@host"               override',
    ]


def test_a_run_is_called_by_its_name_where_that_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_reference("q", str(tmp_path / "runs" / "q")) == "q"
    assert run_reference("q", "s3://bucket/runs/q") == "s3://bucket/runs/q"
