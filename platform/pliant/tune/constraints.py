"""Constraints between the dimensions of a space: ``train.global_batch >= 2 * train.micro_batch``. Pure.

A tiny language, read with ``ast`` and evaluated by hand: names of dimensions and settings, numbers and texts,
``+ - * /``, comparisons (chained ones too), ``and``, ``or``, ``not``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
ALLOWED = "names, numbers, texts, + - * / and comparisons, joined by and, or, not"


@dataclass(frozen=True)
class Constraint:
    """What must hold of a point. It holds by itself where a dimension that it names does not count.

    Attributes:
        text: as the file has it.
        fixed: values of the names in it that are settings and no dimensions.
    """

    text: str
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names in it, in their order."""
        return tuple(dict.fromkeys(_names(self._tree)))

    @cached_property
    def _tree(self) -> ast.expr:
        return parse(self.text)

    def holds(self, params: Mapping[str, Any]) -> bool:
        """Whether a point meets it.

        Raises:
            TypeError: texts and numbers are mixed.
        """
        known = {**self.fixed, **params}
        if any(name not in known for name in self.names):
            return True
        try:
            return bool(_value(self._tree, known))
        except ZeroDivisionError:
            return False


def parse(text: str) -> ast.expr:
    """The expression in a text.

    Raises:
        ValueError: it is none, or has something that is not allowed; the message says what.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("it is not an expression") from None
    _check(tree, text.strip())
    if not isinstance(tree, (ast.Compare, ast.BoolOp)) and not _is_not(tree):
        raise ValueError("it compares nothing")
    return tree


def _check(node: ast.expr, text: str) -> None:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        parts = [node.left, node.right]
    elif isinstance(node, ast.Compare) and all(type(op) in _COMPARISONS for op in node.ops):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.BoolOp):
        parts = node.values
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        parts = [node.operand]
    elif _name(node) is not None or (isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str))):
        parts = []
    else:
        raise ValueError(f"{ast.get_source_segment(text, node) or 'a part'} is not allowed")
    for part in parts:
        _check(part, text)


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _name(node: ast.expr) -> str | None:
    """The dotted name that a chain of attributes spells."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _name(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None


def _names(node: ast.expr) -> Iterator[str]:
    name = _name(node)
    if name is not None:
        yield name
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _names(child)


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)](_value(node.left, known), _value(node.right, known))
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, known)
        return not operand if isinstance(node.op, ast.Not) else -operand
    if isinstance(node, ast.BoolOp):
        join = all if isinstance(node.op, ast.And) else any
        return join([bool(_value(part, known)) for part in node.values])
    if isinstance(node, ast.Compare):
        sides = [_value(side, known) for side in (node.left, *node.comparators)]
        return all(_COMPARISONS[type(op)](a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False))
    return known[_name(node) or ""]
