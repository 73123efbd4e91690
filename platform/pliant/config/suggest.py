"""Did you mean: the closest of known names. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

Keys = tuple[str, ...]


def closest(name: str, known: Iterable[str], *, most: int = 3, cutoff: float = 0.6) -> list[str]:
    """Known names that look like ``name``, best first; case and ``-`` for ``_`` do not count."""
    by_plain = {_plain(k): k for k in known}
    return [by_plain[m] for m in difflib.get_close_matches(_plain(name), by_plain, n=most, cutoff=cutoff)]


def closest_key(keys: Sequence[str], known: Sequence[Keys]) -> tuple[Keys | None, str]:
    """The setting that an unknown key may have meant.

    Looks for the same name in the key's own section, then for the same name elsewhere, nearest first, then for a
    similar name in its own section, then anywhere.

    Args:
        keys: the unknown key, in parts.
        known: all settings and sections, in parts.

    Returns:
        The setting, or None, and the words for it: ``did you mean optim.lr?`` or ``steps belongs under train: …``.
    """
    *parent, name = keys
    siblings = {k[-1]: k for k in known if k[:-1] == tuple(parent)}
    same = [k for k in known if _plain(k[-1]) == _plain(name)]
    own = {name: k for name, k in siblings.items() if k in same or not same}
    if near := closest(name, own, most=1):
        return siblings[near[0]], f"did you mean {'.'.join(siblings[near[0]])}"
    if same:
        found = max(same, key=lambda k: _shared(k, parent))
        if len(found) == 1:
            return found, f"{found[0]} belongs at the top level: {found[0]}"
        return found, f"{found[-1]} belongs under {'.'.join(found[:-1])}: {'.'.join(found)}"
    by_name = {k[-1]: k for k in reversed(known)}
    if near := closest(name, by_name, most=1, cutoff=0.75):
        return by_name[near[0]], f"did you mean {'.'.join(by_name[near[0]])}"
    return None, ""


def _shared(key: Keys, parent: Sequence[str]) -> int:
    """How many parts of a key are those of a section."""
    return next((i for i, (a, b) in enumerate(zip(key, parent, strict=False)) if a != b), min(len(key), len(parent)))


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
