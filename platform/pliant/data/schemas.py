"""Schemas of foreign shards: one form to compare and store them in, and words for how two differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

Columns = dict[str, pa.DataType]
_INT64 = range(-(2**63), 2**63)


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """The type in the form that all writers share: no dictionaries, no large or view types, no nullability."""
    if pa.types.is_dictionary(kind):
        return canonical_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(canonical_type(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(canonical_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, canonical_type(field.type)) for field in kind])
    return kind


def canonical_columns(schema: pa.Schema) -> Columns:
    """Columns by name, in the order of the schema. Raises ValueError when a name appears twice."""
    columns = {field.name: canonical_type(field.type) for field in schema}
    if len(columns) != len(schema):
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        raise ValueError(f"has the column {', '.join(map(repr, twice))} more than once")
    return columns


def fingerprint(columns: Mapping[str, pa.DataType]) -> tuple[tuple[str, str], ...]:
    """A hashable form in which the order of columns does not count."""
    return tuple(sorted((name, str(kind)) for name, kind in columns.items()))


def drift(columns: Mapping[str, pa.DataType], reference: Mapping[str, pa.DataType]) -> str:
    """How the columns of one file differ from the reference, in words; empty when they do not."""
    words = [f"lacks the column {name!r}" for name in reference if name not in columns]
    words += [f"has a further column {name!r}" for name in columns if name not in reference]
    words += [
        f"has {name!r} as {columns[name]}, not {kind}"
        for name, kind in reference.items()
        if name in columns and columns[name] != kind
    ]
    return "; ".join(words)


def partition_type(values: Iterable[str | None]) -> pa.DataType:
    """int64 when every value is a whole number that fits, else string; None (null) says nothing."""
    known = [value for value in values if value is not None]
    return pa.int64() if known and all(map(_is_int64, known)) else pa.string()


def _is_int64(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and int(text) in _INT64
