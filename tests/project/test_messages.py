"""docs/troubleshooting.md lists every error that there is, and none that there is not."""

from __future__ import annotations

import ast
import re

from tests.command import ROOT

CODE = r"[a-z]+\.[a-z]+(?:-[a-z]+)*|internal"
RAISING = re.compile(r"\w*Error|_?[pP]roblem|problem_of")
"""Names of what is called with a code: the error types, ``Problem``, and what notes problems of settings and spaces."""
SOURCES = [f for f in sorted((ROOT / "platform" / "pliant").rglob("*.py")) if "starter" not in f.parts]


def raised() -> set[str]:
    """The codes that stand as text in a call that makes an error, and those that have a name of their own."""
    found = set()
    for file in SOURCES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        named = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call):
                continue
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            if RAISING.fullmatch(name):
                argument = next(iter(call.args[name == "Problem" :]), None)  # the key comes first there
                argument = named.get(argument.id, argument) if isinstance(argument, ast.Name) else argument
                if isinstance(argument, ast.Constant) and re.fullmatch(CODE, str(argument.value)):
                    found.add(argument.value)
    return found


def listed() -> list[str]:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| (`[^|]+) \|", text, flags=re.MULTILINE)
    return [code for cell in first_cells for code in re.findall(rf"`({CODE})`", cell)]


def test_every_code_is_listed_once_and_every_listed_one_exists() -> None:
    codes, known = listed(), raised()
    assert len(known) > 130
    assert sorted(known - set(codes)) == [], "say in docs/troubleshooting.md what these mean"
    assert sorted(set(codes) - known) == []
    assert len(codes) == len(set(codes))
