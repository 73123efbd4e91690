"""Which files a Python file consists of: itself and what it imports from its own folder. Reads, never imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path


def own_sources(file: Path, root: Path, *more: Path) -> dict[str, Path]:
    """A file and the modules that it imports, directly or not, from the folder it lies in or below it.

    Args:
        file: the Python file.
        root: folder that absolute imports start from.
        more: files that belong to it in any case, where they exist.

    Returns:
        The files by their path relative to the file's folder, sorted.
    """
    folder = file.parent
    found: dict[Path, None] = {}
    left = [file, *(other for other in more if other.is_file())]
    while left:
        module = left.pop()
        if module not in found:
            found[module] = None
            left += [m for m in _imports(module, root) if m.is_relative_to(folder)]
    return {name: path for name, path in sorted((m.relative_to(folder).as_posix(), m) for m in found)}


def _imports(file: Path, root: Path) -> Iterator[Path]:
    """The files that may be meant by the imports of a file: below ``root``, or relative to the file."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # who runs it will say so
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else root
            parts = node.module.split(".") if node.module else []
            yield from _files(base, parts)
            for alias in node.names:
                yield from _files(base, [*parts, alias.name])


def _files(base: Path, parts: Sequence[str]) -> Iterator[Path]:
    """A module's file, and those of the packages around it."""
    for end in range(1, len(parts) + 1):
        place = base.joinpath(*parts[:end])
        yield from (file for file in (place.with_name(f"{place.name}.py"), place / "__init__.py") if file.is_file())
