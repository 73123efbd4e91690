"""What must hold between settings: the rules that sections declare, and that every setting has an effect. Pure.

Both take a predicate that says which settings are known: rules are asked of a configuration that is invalid elsewhere
too, so that everything wrong is said at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic import BaseModel

from pliant.config.base import Condition, rules_of
from pliant.config.problems import Problem
from pliant.config.schema import Keys, Leaf, leaves, lookup, show, value_of

Sound = Callable[[Keys], bool]


def broken_rules(config: BaseModel, sound: Sound, prefix: Keys = ()) -> Iterator[tuple[Keys, tuple[Keys, ...], str]]:
    """The rules that sections break: (section, the settings that the rule reads, what it says)."""
    for check in rules_of(type(config)):
        reads = tuple((*prefix, name) for name in vars(check)["reads"])
        if all(map(sound, reads)):
            try:
                check(config)
            except ValueError as error:
                yield prefix, reads, str(error)
    for name, field in type(config).model_fields.items():
        inner = getattr(config, name, None)
        if isinstance(inner, BaseModel):
            yield from broken_rules(inner, sound, (*prefix, field.alias or name))


def without_effect(config: BaseModel, sound: Sound = lambda keys: True) -> Iterator[Problem]:
    """Settings that have no effect with what other settings are.

    A value equal to the default is none: it says nothing that would be lost, and a configuration that is written out
    whole stays valid.
    """
    for leaf in leaves(type(config)):
        if not leaf.only_with or not sound(leaf.keys) or value_of(config, leaf.keys) == leaf.default:
            continue
        for condition in leaf.only_with:
            keys = tuple(condition.key.split("."))
            if lookup(type(config), keys)[0] == keys and sound(keys):
                found = value_of(config, keys)
                if not condition.holds(found):
                    yield _no_effect(leaf, condition, "null" if found is None else found)
                    break


def _no_effect(leaf: Leaf, condition: Condition, found: object) -> Problem:
    other = "another " + condition.key
    if not condition.negated:
        other = " or ".join(f"{condition.key}={'null' if v is None else v}" for v in condition.values)
    return Problem(
        leaf.dotted,
        "config.no-effect",
        f"{leaf.dotted} has no effect with {condition.key} {found}",
        f"leave it at its default {show(leaf.default)}, or use {other}",
    )
