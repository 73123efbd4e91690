"""Writes docs/settings.md from the settings models: ``python docs/settings_reference.py``. A test compares them."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "platform"))

from pliant.config.schema import fields, leaves, section  # noqa: E402
from pliant.settings import RunConfig  # noqa: E402
from pliant.tune.settings import SpaceFile, SweepSettings  # noqa: E402

_HEAD = """# Settings

Generated from the models by `python docs/settings_reference.py`; do not edit. A pipeline's YAML file and
`key=value` on the command line (or `@FILE`, a file like it) set them; `pliant config show PIPELINE` prints all of
them with their origin, `pliant config explain KEY` what one means. The section `model` has, besides what stands here,
the pipeline's own.

A setting that says *only with* has no effect otherwise; giving it then another value than its default is an error.
*On resume*: **free** may change; **curve** may change, and with it the curve, which is recorded; **frozen** may not.
"""
_SWEEP = "They stand in the file of a search space (see [search-spaces.md](search-spaces.md)), not in a pipeline's."


def reference() -> str:
    """The whole document."""
    parts = [_HEAD]
    top = [leaf for leaf in leaves(RunConfig) if len(leaf.keys) == 1]
    parts.append(_table(top))
    for name, field in fields(RunConfig).items():
        inner = section(field)
        if inner is not None:
            own = [leaf for leaf in leaves(RunConfig) if leaf.keys[0] == name]
            parts.append(f"\n## {name}\n\n{(inner.__doc__ or '').strip()}\n\n{_table(own)}")
    own = [leaf for leaf in leaves(SpaceFile) if leaf.keys[0] == "sweep"]
    parts.append(f"\n## sweep\n\n{(SweepSettings.__doc__ or '').strip()} {_SWEEP}\n\n{_table(own)}")
    return "\n".join(parts).rstrip() + "\n"


def _table(settings: list) -> str:
    rows = ["| setting | allowed | on resume | meaning |", "|---|---|---|---|"]
    for leaf in settings:
        about = " ".join((leaf.field.description or "").replace("``", "`").split())
        if leaf.only_with:
            about += f" Only with {' and '.join(map(str, leaf.only_with))}."
        rows.append(f"| `{leaf.dotted}` | {leaf.describe()} | {leaf.on_resume} | {about} |".replace("\n", " "))
    return "\n".join(rows)


if __name__ == "__main__":
    (ROOT / "docs" / "settings.md").write_text(reference())
