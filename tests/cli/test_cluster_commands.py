"""``pliant cluster``: what it refuses, and what it does without."""

from __future__ import annotations

import pytest

from tests.command import pliant, python


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--", "sleep", "1"],
            "error[cluster.command] what follows is no `ray start`: sleep 1\n"
            "  pliant cluster notice-agent -- ray start --address=HOST:PORT\n",
        ),
        (
            ["--grace", "soon", "--", "ray", "start"],
            "error[cluster.duration] --grace: 'soon' is not a duration; write a number with one of ms, s, min, h, d\n",
        ),
    ],
)
def test_an_agent_that_cannot_be(arguments: list[str], expected: str) -> None:
    done = pliant("cluster", "notice-agent", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


def test_an_agent_is_light() -> None:
    code = """
import sys
import pliant.cli.main, pliant.cluster.notice_agent, pliant.cluster.notices.detect
print(sorted({"ray", "torch", "mlflow", "numpy", "pyarrow"} & set(sys.modules)))
"""
    done = python("-c", code)
    assert (done.stdout, done.stderr) == ("[]\n", "")
