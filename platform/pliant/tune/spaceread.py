"""The sections ``space`` and ``constraints`` of a space file: from their values to a ``Space``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pliant.config.base import Condition
from pliant.config.schema import leaves, sections, show, value_of
from pliant.config.suggest import closest_key
from pliant.config.yamlfile import Path
from pliant.settings import RunConfig
from pliant.tune.constraints import ALLOWED, Constraint, parse
from pliant.tune.domainfile import Entry, Problems, read_entry
from pliant.tune.domains import Dimension, Value
from pliant.tune.point import BATCH, LR, PEAK
from pliant.tune.searchable import SCHEDULE, SCHEDULE_KEYS, Searchable, searchables, why_not
from pliant.tune.space import Space


def read_space(
    entries: Any, constraints: Any, schema: type[RunConfig], base: RunConfig | None, problems: Problems
) -> Space | None:
    """The space; None with at least one problem more, or where there is none.

    Args:
        entries, constraints: the sections as parsed. What is no mapping, or no list, is left to others to complain of.
        schema: the configuration's, with the pipeline's own section.
        base: what all trials have; None where it is not valid.
    """
    before = len(problems.found)
    found = searchables(schema)
    read: dict[str, Entry | None] = {}
    for name, value, path in _flat(entries, problems):
        target = found.get(name)
        if target is None:
            _refuse(name, value, schema, found, path, problems)
        else:
            read[name] = read_entry(target, value, path, problems)
    if PEAK in read and LR in read:
        entry = read[LR]
        path = entry.path if entry is not None else ("space", LR)
        message = f"{LR} is searched twice: {PEAK} is the same"
        problems.problem("space.domain", path, message, "keep one of them")
    good = {name: entry for name, entry in read.items() if entry is not None}
    conditions = _Conditions(good, read, found, base, problems)
    ordered = _parents_first([conditions.resolved(entry) for entry in good.values()], good, problems)
    texts = constraints if isinstance(constraints, list) else []
    read_constraints = [_constraint(t, ("constraints", i), read, base, problems) for i, t in enumerate(texts)]
    if len(problems.found) > before or not ordered:
        return None
    coupling = good[BATCH].coupling if BATCH in good else "none"
    space = Space(tuple(ordered), tuple(c for c in read_constraints if c is not None), coupling)
    return space if _comparable(space, problems) else None


def _flat(entries: Any, problems: Problems) -> Iterator[tuple[str, Any, Path]]:
    """Name, value and place of each entry; those below ``schedule`` by their whole names."""
    for key, value in entries.items() if isinstance(entries, Mapping) else ():
        if key != SCHEDULE:
            yield key, value, ("space", key)
        elif not isinstance(value, Mapping):
            message = f"schedule is {show(value)}; needed: a mapping with some of {', '.join(SCHEDULE_KEYS)}"
            problems.problem("space.domain", ("space", key), message)
        else:
            for name, inner in value.items():
                yield f"{SCHEDULE}.{name}", inner, ("space", key, name)


def _refuse(
    name: str,
    value: Any,
    schema: type[RunConfig],
    found: Mapping[str, Searchable],
    path: Path,
    problems: Problems,
) -> None:
    """Says why a name cannot be searched."""
    keys = tuple(name.split("."))
    known = {leaf.keys: leaf for leaf in leaves(schema)}
    if keys[0] == SCHEDULE and len(keys) == 2:
        meant, words = closest_key(keys, [(SCHEDULE, key) for key in SCHEDULE_KEYS])
        words = f"{words}?" if meant is not None else f"{SCHEDULE} has {', '.join(SCHEDULE_KEYS)}"
        message = f"{name} is not searched: a space speaks of the schedule's shape" if keys in known else ""
        problems.problem("config.unknown-key", path, message or f"{name} is nothing that a space knows", words)
    elif keys in known or keys in set(sections(schema)):
        inner = [other for other in found if other.startswith(f"{name}.")]
        inner = [key for key in inner if isinstance(value, Mapping) and key.rpartition(".")[2] in value] or inner
        reason = why_not(name)
        if keys not in known and inner:
            problems.problem(
                "config.unknown-key", path, f"{name} is a section", f"write whole keys: {', '.join(inner[:4])}"
            )
        else:
            problems.problem("space.key", path, f"{name} cannot be searched: {reason}", "leave it out of the space")
    else:
        meant, words = closest_key(keys, [tuple(other.split(".")) for other in found])
        target = found.get(".".join(meant)) if meant is not None else None
        if target is not None:
            hint = f"{words} ({target.allowed})?"
        else:
            train = ", ".join(other for other in found if other.startswith("train."))
            hint = f"a space may name settings of model and optim, schedule, {train}"
        problems.problem("config.unknown-key", path, f"{name} is not a setting", hint)


class _Conditions:
    """Checks ``when``, and adds what follows from the settings themselves: ``decay`` counts with ``wsd`` alone."""

    def __init__(
        self,
        entries: Mapping[str, Entry],
        named: Mapping[str, Entry | None],
        found: Mapping[str, Searchable],
        base: RunConfig | None,
        problems: Problems,
    ) -> None:
        self._entries, self._named, self._found = entries, named, found
        self._base, self._problems = base, problems

    def resolved(self, entry: Entry) -> Dimension:
        """The dimension with its conditions."""
        name = entry.dimension.name
        when: dict[str, tuple[Value, ...]] = {}
        for other, wanted in entry.when.items():
            values = self._written(name, other, wanted, (*entry.path, "when", other))
            if values:
                when[other] = values
        for condition in self._found[name].only_with:
            values = self._implied(entry, condition)
            if values:
                both = tuple(v for v in values if v in when.get(condition.key, values))
                if not both:
                    message = f"{name} has no effect where its condition holds: it counts with {condition}"
                    self._problems.problem("space.condition", (*entry.path, "when", condition.key), message)
                when[condition.key] = both
        return replace(entry.dimension, when=when)

    def _written(self, name: str, other: str, wanted: Any, path: Path) -> tuple[Value, ...]:
        """The values of a condition in the file; none where it is wrong."""

        def problem(message: str, hint: str = "") -> tuple[Value, ...]:
            self._problems.problem("space.condition", path, f"{name} depends on {message}", hint)
            return ()

        if other not in self._named:
            others = [tuple(key.split(".")) for key in self._named if key != name]
            meant, words = closest_key(other.split("."), others)
            hint = f"{words}?" if meant is not None else f"those searched are {', '.join(self._named)}"
            return problem(f"{other}, which is not searched", hint)
        if other == name:
            return problem("itself")
        entry = self._entries.get(other)
        if entry is None:
            return ()  # has a problem of its own
        domain = entry.dimension
        if domain.kind == "float":
            return problem(f"{other}, which is no choice", "conditions are on choices and whole numbers")
        values = wanted if isinstance(wanted, list) else [wanted]
        if not values:
            return problem(f"no value of {other}", f"list some of {_some(domain.values)}")
        for value in values:
            if not domain.contains(value):
                takes = f"its values are {_some(domain.values)}"
                return problem(f"{other} {show(value)}, a value that it never takes", takes)
        return tuple(values)

    def _implied(self, entry: Entry, condition: Condition) -> tuple[Value, ...]:
        """The values of a searched setting with which another one has an effect; none where it is not searched."""
        name = entry.dimension.name
        if condition.key not in self._named:
            found = value_of(self._base, condition.key.split(".")) if self._base is not None else None
            if self._base is not None and not condition.holds(found):
                message = f"{name} has no effect with {condition.key} {'null' if found is None else found}"
                self._problems.problem(
                    "config.no-effect", entry.path, message, f"it counts with {condition}: search that too"
                )
            return ()
        other = self._entries.get(condition.key)
        if other is None:
            return ()
        values = tuple(value for value in other.dimension.values if condition.holds(value))
        if len(values) == len(other.dimension.values):
            return ()  # always
        if not values:
            choices = _some(other.dimension.values)
            message = f"{name} has no effect: {condition.key} is one of {choices}"
            self._problems.problem("config.no-effect", entry.path, message, f"it counts with {condition}")
        return values


def _parents_first(
    dimensions: Sequence[Dimension], entries: Mapping[str, Entry], problems: Problems
) -> list[Dimension]:
    """Each dimension after those that it depends on, otherwise in the order of the file."""
    ordered: dict[str, Dimension] = {}
    left = list(dimensions)
    while left:
        ready = next((d for d in left if all(other in ordered for other in d.when)), None)
        if ready is None:
            circle = ", ".join(d.name for d in left)
            message = f"the conditions of {circle} depend on each other"
            problems.problem("space.condition", (*entries[left[0].name].path, "when"), message, "take one of them out")
            break
        ordered[ready.name] = ready
        left.remove(ready)
    return list(ordered.values())


def _constraint(
    text: Any, path: Path, named: Mapping[str, Any], base: RunConfig | None, problems: Problems
) -> Constraint | None:
    """A constraint, with the values of what it names besides dimensions."""
    if not isinstance(text, str):
        return None  # the file's own model complains
    try:
        parse(text)
    except ValueError as error:
        hint = f"allowed are {ALLOWED}; equality is ==, as in train.global_batch >= 2 * train.micro_batch"
        problems.problem("space.constraints", path, f"the constraint {text!r} cannot be read: {error}", hint)
        return None
    names = Constraint(text).names
    if not any(name in named for name in names):
        problems.problem(
            "space.constraints", path, f"the constraint {text!r} names nothing that is searched", "take it out"
        )
        return None
    fixed: dict[str, Any] = {}
    for name in names:
        if name in named or base is None:
            continue
        value = value_of(base, name.split("."))
        if not isinstance(value, (bool, int, float, str)):
            known = [tuple(key.split(".")) for key in named] + [leaf.keys for leaf in leaves(type(base))]
            meant, words = closest_key(name.split("."), known)
            hint = f"{words}?" if meant is not None and ".".join(meant) != name else ""
            hint = hint or ("" if "." in name else f"texts stand in quotes: '{name}'")
            problems.problem(
                "space.constraints", path, f"the constraint {text!r} names {name}, which has no value", hint
            )
            return None
        fixed[name] = value
    return Constraint(text, fixed)


def _comparable(space: Space, problems: Problems) -> bool:
    """Whether no constraint compares texts with numbers."""
    good = True
    for index, constraint in enumerate(space.constraints):
        whole = {name: dimension.value(0.5) for name, dimension in space.by_name.items()}
        try:
            constraint.holds(whole)
        except TypeError:
            message = f"the constraint {constraint.text!r} mixes texts and numbers"
            problems.problem(
                "space.constraints", ("constraints", index), message, "texts can be compared by == and != alone"
            )
            good = False
    return good


def _some(values: Sequence[Value]) -> str:
    """The first values, for a message."""
    shown = [str(show(value)) for value in values[:8]]
    return ", ".join(shown) + (" …" if len(values) > 8 else "")
