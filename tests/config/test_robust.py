"""Whatever is written into a settings file or an override: it loads, or it is refused as a user's mistake."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from pliant.config.loader import load_settings
from pliant.config.schema import leaves
from pliant.errors import ConfigError
from pliant.rules import RULES
from pliant.settings import RunConfig
from tests.config.conftest import LM

TEXT = LM.replace("model:\n  width: 64\n", "")
KEYS = [leaf.dotted for leaf in leaves(RunConfig)]
PARTS = sorted({part for key in KEYS for part in key.split(".")})
VALUES = st.sampled_from(
    [
        "0", "-1", "1", "1e400", ".nan", "-.inf", "9" * 30, "1e-320", "null", "true", "no", "''", "'x'", "[]", "{}",
        "[1, 2]", "[[1]]", "{a: 1}", "{CPU: {a: 1}}", "{1: 2}", "{null: 1}", "{a: .nan}", "2026-11-29", "0x1F", "1_0",
        "!!binary aGk=", "!!set {a}", "&a [*a]", "? ", "- ", "%", "@x", "`", "\"\\u0000\"", "\"\\ud800\"",
        "10min", "1.2.3s", "a: b: c", "|", "<<", "{<<: {a: 1}}", "sqlite://", "http://", "a:b", "..", "é",
    ]
)  # fmt: skip
OVERRIDES = st.one_of(
    st.builds("{}={}".format, st.sampled_from(KEYS), VALUES),
    st.builds("{}={}".format, st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map(".".join), VALUES),
    st.builds("{}={{{}: {}}}".format, st.sampled_from(PARTS), st.sampled_from(PARTS), VALUES),
    st.text(max_size=12),
)
EDITS = st.lists(st.tuples(st.integers(0, len(TEXT) - 1), st.integers(0, 6), st.text(max_size=3) | VALUES), max_size=3)


@given(EDITS, st.lists(OVERRIDES, max_size=3))
@example([], ["seed=" + "9" * 5000, "optim.betas=" + "[" * 1500 + "]" * 1500])
@example([(0, len(TEXT), "? [a]\n: &b {c: *b}\n")], [])
def test_it_loads_or_is_a_users_mistake(edits: list[tuple[int, int, str]], overrides: list[str]) -> None:
    text = TEXT
    for start, length, new in edits:
        text = text[:start] + new + text[start + length :]
    try:
        loaded = load_settings(RunConfig, text=text, source="x.yaml", overrides=overrides, rules=RULES)
    except ConfigError:
        return
    assert set(loaded.origins) == set(KEYS)
