"""YAML 1.2 (core schema) to plain Python values, with the place of every key.

What the core schema reads as a number is one (``2e-5``, ``1.e-4``, ``0x1F``); everything else is text, ``no``, ``on``
and dates too. Duplicate keys, tags and documents after the first are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pliant.config.problems import raise_all
from pliant.errors import ConfigError

Path = tuple[str | int, ...]
"""Keys and list indices from the document's root."""
Place = Callable[[int, int], str]
"""How a line and a column, both from 1, are called."""

_YAML = "tag:yaml.org,2002:"
_TAGS = {"null", "bool", "int", "float", "str", "seq", "map", "timestamp", "merge", "value"}
"""The core schema's, and what else plain text may look like to the parser."""
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"(true|True|TRUE)|false|False|FALSE")
_LONGEST_INT = 1000  # Python refuses to convert some thousand digits
_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(?:(inf|Inf|INF)|nan|NaN|NAN)")


@dataclass(frozen=True)
class Document:
    """A parsed document.

    Attributes:
        value: dicts with text keys, lists, and scalars; None for an empty document.
        places: ``source:line:column`` of every key and list item.
    """

    value: Any
    places: dict[Path, str]


def read_text(path: FilePath, source: str) -> str:
    """Reads a settings file.

    Raises:
        ConfigError: ``config.file`` if it cannot be read or is not UTF-8; it calls the file ``source``.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("config.file", f"cannot be read: {error.strerror}", location=source) from None
    except UnicodeDecodeError as error:
        raise ConfigError("config.file", f"is not UTF-8 at byte {error.start}", location=source) from None


def parse_yaml(
    text: str,
    source: str,
    *,
    root: Path = (),
    place: Place | None = None,
    problems: list[ConfigError] | None = None,
) -> Document:
    """Parses one document.

    Args:
        text: the document.
        source: what errors and places call it, usually the file's path.
        root: the key that the document is the value of.
        place: how a place in it is called; default: ``source:line:column``.
        problems: takes duplicate keys and the like, which do not keep the rest from being read; default: raised.

    Raises:
        ConfigError: ``config.yaml`` for what is not YAML, with line and column.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    reader = _Reader(source, place or (lambda line, column: f"{source}:{line}:{column}"))
    try:
        document = YAML(typ="safe", pure=True).compose(text)
        value = None if document is None else reader.value(document, root)
    except RecursionError:
        raise _not_yaml("it is nested too deeply", source) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "cannot be read"
        if problem.startswith("but ") and error.context:
            problem = f"{error.context} {problem}"
        hint = "indent with spaces" if "'\\t'" in problem else ""
        raise _not_yaml(problem, reader.place(mark), hint) from None
    except YAMLError as error:
        raise _not_yaml(str(error).splitlines()[0], source) from None
    if problems is None:
        raise_all(reader.problems)
    else:
        problems += reader.problems
    return Document(value, reader.places)


def scalar(text: str) -> Any:
    """What a plain scalar means in the core schema."""
    if _NULL.fullmatch(text):
        return None
    if match := _BOOL.fullmatch(text):
        return match.group(1) is not None
    if _INT.fullmatch(text):
        return int(text) if len(text) < _LONGEST_INT else float(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if match := _SPECIAL.fullmatch(text):
        return float(match.group(1) + ("inf" if match.group(2) else "nan"))
    return text


class _Reader:
    """Turns composed nodes into values and notes where each of them stands."""

    def __init__(self, source: str, place: Place) -> None:
        self._source, self._place = source, place
        self.places: dict[Path, str] = {}
        self.problems: list[ConfigError] = []
        self._open: set[int] = set()

    def place(self, mark: Any) -> str:
        return self._place(mark.line + 1, mark.column + 1) if mark is not None else self._source

    def value(self, node: Any, path: Path) -> Any:
        place = self.place(node.start_mark)
        if id(node) in self._open:
            raise _not_yaml("an alias refers to the value that holds it", place)
        self._open.add(id(node))
        tag = str(node.tag)
        if tag.removeprefix(_YAML) not in _TAGS:
            shown = tag.replace(_YAML, "!!")
            self.problems.append(_not_yaml(f"the tag {shown} has no meaning here; write plain values", place))
        try:
            if node.id == "mapping":
                return self._mapping(node, path)
            if node.id == "sequence":
                return [self._item(item, (*path, index)) for index, item in enumerate(node.value)]
            return self._scalar(node)
        finally:
            self._open.discard(id(node))

    def _item(self, node: Any, path: Path) -> Any:
        self.places[path] = self.place(node.start_mark)
        return self.value(node, path)

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = self.place(key_node.start_mark)
            if key_node.id != "scalar":
                self.problems.append(_not_yaml("a key must be plain text", place))
                continue
            key = str(key_node.value)
            if key in result:
                self.problems.append(
                    ConfigError(
                        "config.duplicate-key",
                        f"{_dotted((*path, key))} stands here a second time; the first is at"
                        f" {self.places[(*path, key)]}",
                        hint="keep one of them",
                        location=place,
                    )
                )
                continue
            self.places[(*path, key)] = place
            result[key] = self.value(value_node, (*path, key))
        return result

    def _scalar(self, node: Any) -> Any:
        tag = str(node.tag)
        plain = node.style is None and not tag.endswith(":str")
        return scalar(node.value) if plain else str(node.value)


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


def _not_yaml(problem: str, place: str, hint: str = "") -> ConfigError:
    return ConfigError("config.yaml", f"not YAML: {problem}", hint=hint, location=place)
