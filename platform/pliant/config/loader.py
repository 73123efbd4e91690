"""From a file's text and overrides to a validated settings model, with the origin of every value.

text ── parse ──▶ values ── overrides ──▶ values ── unknown keys? ── model ──▶ settings
                    │                                    │             │
                    └─ places: file:line:column          └── problems ─┴─▶ one ConfigError with all of them
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from pliant.config.base import RULES_APART
from pliant.config.overrides import Override, Overrides, as_overrides, lay_over
from pliant.config.problems import Problem, raise_all
from pliant.config.rules import broken_rules, without_effect
from pliant.config.schema import (
    Keys,
    allowed,
    choices,
    entries,
    fields,
    leaves,
    lookup,
    section,
    sections,
    show,
    takes_booleans,
    takes_none,
    valid_part,
)
from pliant.config.suggest import closest, closest_key
from pliant.config.yamlfile import Document, Path, parse_yaml
from pliant.config.yamlfile import read_text as read_text
from pliant.errors import ConfigError

M = TypeVar("M", bound=BaseModel)
Rule = Callable[[Any], Iterable[Problem]]
"""A rule over a whole configuration, marked with what it reads (``config.base.rule``)."""
DEFAULT = "default"
"""Origin of a value that neither file nor override names."""


@dataclass(frozen=True)
class Loaded(Generic[M]):
    """Validated settings and where each value came from.

    Attributes:
        settings: the model.
        origins: by dotted key: ``file:line:column``, ``override key=value``, or ``default``.
        source: what the file is called.
        places: where each key and list item stands, by path; what an override replaced is called as the override.
    """

    settings: M
    origins: dict[str, str]
    source: str
    places: Mapping[Path, str]

    def place(self, path: Path) -> str:
        """Where something inside a setting stands; else the setting, or the file."""
        within = [path[:end] for end in range(1, len(path) + 1) if path[:end] in self.places]
        overridden = [at for at in within if self.places[at].startswith("override ")]
        return self.places[(overridden or within)[-1]] if within else self.source


def load_settings(
    schema: type[M],
    *,
    text: str | Document,
    source: str,
    layer: Sequence[Override] = (),
    overrides: Overrides = (),
    rules: Sequence[Rule] = (),
) -> Loaded[M]:
    """Parses, overrides and validates.

    Args:
        schema: the model to validate into.
        text: the file's text, or what was parsed from it; empty for no file.
        source: the file's name in places and errors.
        layer: what another file lays over this one, below the overrides.
        overrides: ``key=value`` and ``@FILE`` texts, or a mapping from dotted keys to values.
        rules: what must hold between sections; what the sections declare is asked anyway.

    Raises:
        ConfigError: all problems at once, each with its place, what was found and what is allowed.
    """
    given, problems = as_overrides(overrides)
    try:
        document = text if isinstance(text, Document) else parse_yaml(text, source, problems=problems)
    except ConfigError as error:
        raise_all([error, *problems])
        raise
    if document.value is not None and not isinstance(document.value, dict):
        raise ConfigError("config.yaml", f"holds {show(document.value)}; needed: a mapping", location=f"{source}:1:1")
    values, layer_origins, misplaced = lay_over(schema, document.value or {}, layer)
    values, override_origins, more = lay_over(schema, values, given)
    misplaced += more
    checker = _Checker(schema, source, {**document.places, **layer_origins, **override_origins})
    known = checker.known_part(schema, values, ())
    settings: M | None = None
    try:
        settings = schema.model_validate(known, context={RULES_APART: True})
    except ValidationError as error:
        checker.add(error, known)
    checker.ask(rules, settings if settings is not None else valid_part(schema, known))
    by_hand = [] if isinstance(overrides, Mapping) else [f"override {text}" for text in overrides]
    in_order = by_hand or [override.origin for override in given]
    raise_all(_in_order([*problems, *misplaced, *checker.problems], in_order))
    if settings is None:  # every validation error became a problem, so this cannot be reached
        raise ConfigError("config.invalid", "the settings are not valid", location=source)
    origins = {leaf.dotted: checker.origin(leaf.keys) for leaf in leaves(type(settings))}
    return Loaded(settings, origins, source, checker.places)


def _not_finite(value: Any) -> bool:
    if isinstance(value, (list, Mapping)):
        return any(map(_not_finite, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, float) and not math.isfinite(value)


def _in_order(problems: Sequence[ConfigError], overrides: Sequence[str]) -> list[ConfigError]:
    """Problems as the places they name follow each other: in the file, then in the overrides."""

    def position(problem: ConfigError) -> tuple[int, int, int]:
        override, _, character = problem.location.partition(" at character ")
        if override in overrides:
            return 1, overrides.index(override), int(character or 0)
        match = re.search(r":(\d+):(\d+)$", problem.location)
        return (0, int(match[1]), int(match[2])) if match else (0, 0, 0)

    return sorted(problems, key=position)


class _Checker:
    """Collects problems of values against a schema, each with its place."""

    def __init__(self, schema: type[BaseModel], source: str, places: Mapping[Path, str]) -> None:
        self.schema = schema
        self.source = source
        self.places = places
        self.problems: list[ConfigError] = []
        self._settings = {leaf.keys: leaf for leaf in leaves(schema)}
        self._names: list[Keys] = [*self._settings, *sections(schema)]
        self._said: set[Keys] = set()  # keys whose problem is known, and sections that hold one: no second complaint
        self._unsound: set[Keys] = set()  # keys whose value is not known, so that no rule is asked about it

    def place(self, keys: Keys) -> str:
        """Where a key stands, or something below it, or the nearest section around it, or the file."""
        found = self.origin(keys)
        around = (self.places.get(keys[:end]) for end in range(len(keys) - 1, 0, -1))
        return found if found != DEFAULT else next(filter(None, around), self.source)

    def origin(self, keys: Keys) -> str:
        """Where a value came from: its own place, that of an entry of it, or ``default``."""
        below = (place for path, place in self.places.items() if path[: len(keys)] == keys)
        return self.places.get(keys) or next(below, DEFAULT)

    def ask(self, rules: Sequence[Rule], config: BaseModel) -> None:
        """Adds what breaks a rule, of a configuration that may lack everything unsound."""
        found: list[tuple[Keys, Problem]] = []
        for keys, reads, message in broken_rules(config, self._sound):
            self._unsound.update(reads)  # one complaint about them is enough
            name = ".".join(keys)
            self._problem("config.value", self._place_among(reads, keys), f"{name}: {message}" if name else message)
        for check in rules:
            if all(self._sound(tuple(key.split("."))) for key in vars(check)["reads"]):
                for problem in check(config):
                    keys = tuple(problem.key.split("."))
                    if self._sound(keys):
                        found.append((keys, problem))
                self._unsound.update(keys for keys, problem in found if problem.final)
        self._unsound.update(keys for keys, _ in found)
        found += [(tuple(problem.key.split(".")), problem) for problem in without_effect(config, self._sound)]
        for keys, problem in found:
            self._problem(problem.code, keys, problem.message, problem.hint)

    def _sound(self, keys: Keys) -> bool:
        return not any(keys[: len(other)] == other or other[: len(keys)] == keys for other in self._unsound)

    def _place_among(self, reads: Sequence[Keys], keys: Keys) -> Keys:
        """Where to look when a section breaks a rule: at what an override set, else at what the file says, else at
        the section."""
        given = [read for read in reads if self.origin(read) != DEFAULT]
        return next((r for r in given if self.origin(r).startswith("override ")), given[0] if given else keys)

    def known_part(self, schema: type[BaseModel], values: Mapping[str, Any], prefix: Keys) -> dict[str, Any]:
        """The values without unknown keys and misused booleans, each of which becomes a problem."""
        known: dict[str, Any] = {}
        for key, field in fields(schema).items():
            if key not in values and field.is_required() and section(field) is not None:
                known[key] = {}  # so that the keys it lacks are named, not the section
        for key, value in values.items():
            keys = (*prefix, key)
            found = fields(schema).get(key)
            inner = section(found) if found is not None else None
            if found is None:
                self._unknown(keys, schema)
            elif isinstance(value, bool) and inner is None and not takes_booleans(found.annotation):
                self._wrong_value(keys, value)
                self._said.update((keys, prefix))
                self._unsound.add(keys)
            elif inner is not None and isinstance(value, dict):
                known[key] = self.known_part(inner, value, keys)
            elif inner is not None and value is None and not takes_none(found.annotation):
                known[key] = {}  # a section with nothing in it but comments
            else:
                known[key] = value
        return known

    def add(self, error: ValidationError, values: Mapping[str, Any]) -> None:
        """Turns pydantic's errors into problems, one per setting."""
        for detail in error.errors(include_url=False):
            keys, field = lookup(self.schema, detail["loc"])
            absent = detail["type"] == "missing" and self.origin(keys[:1]) == DEFAULT and not self._sound(keys)
            entry = entries(field) if field is not None else None
            if entry is not None and len(detail["loc"]) > len(keys):
                self._entry(detail, keys, entry)
                self._unsound.add(keys)
                continue
            if keys in self._said or absent:  # a whole section that is absent because its name is misspelt
                continue
            self._said.add(keys)
            self._unsound.add(keys)
            if detail["type"] == "missing" and field is not None and len(detail["loc"]) == len(keys):
                self._problem("config.missing", keys, f"{'.'.join(keys)} is missing; needed: {allowed(field)}")
            elif detail["type"] in ("value_error", "assertion_error"):
                rule = str(detail["ctx"]["error"])
                self._problem("config.value", self._touched(keys), f"{'.'.join(keys)}: {rule}" if keys else rule)
            else:
                value: Any = values
                for key in keys:
                    value = value[key]
                self._wrong_value(keys, value)

    def _entry(self, detail: Any, keys: Keys, model: type[BaseModel]) -> None:
        """What is wrong with an item of a list of mappings."""
        index, *below = detail["loc"][len(keys) :]
        name = f"{'.'.join(keys)}[{index}]" + (f".{below[0]}" if below else "")
        field = fields(model).get(below[0]) if below else None
        path: Path = (*keys, index, *below[:1])
        while path not in self.places and len(path) > len(keys):
            path = path[:-1]
        if detail["type"] == "missing" and field is not None:
            message = f"{name} is missing; needed: {allowed(field)}"
        elif below and field is None:
            message = f"{name} is not a setting; there are {', '.join(fields(model))}"
        else:
            needed = allowed(field) if field is not None else f"a mapping with {', '.join(fields(model))}"
            message = f"{name} is {show(detail['input'])}; allowed: {needed}"
        location = self.place(keys)
        if not location.startswith("override "):
            location = self.places.get(path, location)
        self.problems.append(ConfigError("config.value", message, location=location))

    def _touched(self, keys: Keys) -> Keys:
        """Where to look when a section breaks its own rule: at what an override set in it, else at the section."""
        below = (p for p, place in self.places.items() if p[: len(keys)] == keys and place.startswith("override "))
        return next((tuple(map(str, path)) for path in below), keys)

    def _wrong_value(self, keys: Keys, value: Any) -> None:
        _, field = lookup(self.schema, keys)
        needed = allowed(field) if field is not None else "a mapping"
        if _not_finite(value):
            needed = needed.replace("a number", "a finite number")
        near = closest(str(value), choices(field.annotation), most=1) if field is not None else []
        hint = f"did you mean {near[0]}?" if near else ""
        self._problem("config.value", keys, f"{'.'.join(keys)} is {show(value)}; allowed: {needed}", hint)

    def _unknown(self, keys: Keys, parent: type[BaseModel]) -> None:
        meant, words = closest_key(keys, self._names)
        leaf = self._settings.get(meant) if meant is not None else None
        self._said.add(keys[:-1])
        if meant is not None:
            self._said.add(meant)
            self._unsound.add(meant)
        if "." in keys[-1]:
            hint = "dotted keys are for overrides; in a file, write a section with the key below it"
        elif meant is None:
            hint = f"{'.'.join(keys[:-1]) or 'the top level'} has {', '.join(fields(parent))}"
        else:
            hint = f"{words} ({leaf.describe()})?" if leaf is not None else f"{words}?"
        self._problem("config.unknown-key", keys, f"{'.'.join(keys)} is not a setting", hint)

    def _problem(self, code: str, keys: Keys, message: str, hint: str = "") -> None:
        self.problems.append(ConfigError(code, message, hint=hint, location=self.place(keys)))
