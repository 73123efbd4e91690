"""What MLflow cannot take as it is, changed so that it can be seen: names, long values, lists of steps. Pure."""

from __future__ import annotations

import json
import math
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

NAME_LIMIT = 250
"""Characters of a metric's or parameter's name."""
TAG_LIMIT = 5000
"""Characters of a tag's value that every store takes."""
_PARAM_LIMIT = 6000
_NOT_ALLOWED = re.compile(r"[^\w.\- :/]")


def stored_name(name: str) -> str:
    """The name under which MLflow keeps a metric or parameter.

    A name that MLflow allows stays as it is; another gets ``_`` for what is not allowed, and four digits of its
    digest, so that no two names become one: ``val/acc@1`` → ``val/acc_1_9cbb``.
    """
    tidy = posixpath.normpath(_NOT_ALLOWED.sub("_", name)).lstrip("/.")
    if tidy == name and 0 < len(name) <= NAME_LIMIT:
        return name
    digest = blake2b(name.encode(), digest_size=2).hexdigest()
    return f"{tidy[: NAME_LIMIT - 5]}_{digest}"


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted key and text of every value; lists and other values as JSON."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)


def shortened(value: str, whole_in: str) -> str:
    """A parameter's value; one that MLflow would cut off silently is cut here, and says where it stands whole."""
    if len(value) <= _PARAM_LIMIT:
        return value
    digest = blake2b(value.encode(), digest_size=8).hexdigest()
    note = f" … {len(value):,} characters, blake2b {digest}, whole in {whole_in}"
    return value[: _PARAM_LIMIT - len(note)] + note


def numbers(entry: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The metrics of a log's entry, by name. ``null`` (a number that was not finite) becomes NaN."""
    return {
        f"{prefix}{key}": math.nan if value is None else float(value)
        for key, value in entry.items()
        if key not in ("step", "time") and (value is None or isinstance(value, (bool, int, float)))
    }


def ranges(steps: Iterable[int]) -> str:
    """``1, 2, 3, 7`` → ``1-3, 7``."""
    runs: list[list[int]] = []
    for step in sorted(set(steps)):
        if runs and step == runs[-1][1] + 1:
            runs[-1][1] = step
        else:
            runs.append([step, step])
    return ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in runs)


def tag_value(text: str) -> str:
    """A tag's value, cut visibly where it is too long."""
    return text if len(text) <= TAG_LIMIT else text[: TAG_LIMIT - 2] + " …"
