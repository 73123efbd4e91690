"""What happens to nulls: refused, masked or filled, per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from pliant.data.settings import NullPolicy
from pliant.errors import ConfigError, listed

VALID_SUFFIX = "__valid"


def check_policies(schema: pa.Schema, policies: Mapping[str, NullPolicy]) -> None:
    """Refuses policies that cannot be carried out.

    Raises:
        ConfigError: a policy names no column that is read, masks or fills lists or structs, or its value does not
            fit the column.
    """
    for name, policy in policies.items():
        if name not in schema.names:
            raise ConfigError(
                "data.null-column",
                f"a null policy is given for {name!r}, which is not among the columns read: {', '.join(schema.names)}",
                location=f"data.nulls.{name}",
            )
        if policy != "error":
            _fill_value(schema.field(name), policy)


def policy_schema(schema: pa.Schema, policies: Mapping[str, NullPolicy]) -> pa.Schema:
    """The schema after ``apply_policies``: a boolean ``NAME__valid`` for each masked column, at the end."""
    masks = [pa.field(name + VALID_SUFFIX, pa.bool_()) for name in schema.names if policies.get(name) == "mask"]
    return pa.schema([*schema, *masks])


def apply_policies(table: pa.Table, policies: Mapping[str, NullPolicy]) -> pa.Table:
    """Carries out the policies on a table of checked columns.

    Numeric columns, and lists of numbers, have the policy ``error`` unless given another; others are left alone.

    Raises:
        ConfigError: nulls where they are refused, with every such column and number; the caller knows the place.
    """
    masks, refused = [], []
    for index, field in enumerate(table.schema):
        policy = policies.get(field.name, "error" if _is_numeric(field.type) else None)
        column = table.column(index)
        if policy == "mask":
            masks.append((field.name + VALID_SUFFIX, column.is_valid()))
        if policy == "error":
            refused += _nulls(field, column)
        elif policy is not None and column.null_count:
            filled = column.fill_null(_fill_value(field, policy))
            table = table.set_column(index, field, filled.cast(field.type))  # narrow decimals come back as wide ones
    if refused:
        _refuse(refused)
    for name, mask in masks:
        table = table.append_column(pa.field(name, pa.bool_()), mask)
    return table


def _is_numeric(kind: pa.DataType) -> bool:
    while _is_list(kind):
        kind = kind.value_type
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _nulls(field: pa.Field, column: pa.ChunkedArray) -> list[tuple[pa.Field, int, int]]:
    """Column, its nulls and all its values, where it has nulls."""
    nulls = column.null_count
    while not nulls and _is_list(column.type):
        column = pc.list_flatten(column)
        nulls = column.null_count
    return [(field, nulls, len(column))] if nulls else []


def _refuse(found: Sequence[tuple[pa.Field, int, int]]) -> NoReturn:
    lines = [f"column {f.name!r} ({f.type}) has nulls ({nulls} of {values} values)" for f, nulls, values in found]
    first = found[0][0].name
    each = "" if len(found) == 1 else ", and so for the others"
    raise ConfigError(
        "data.nulls",
        lines[0] if len(lines) == 1 else f"{len(lines)} columns have nulls:{listed(lines, 50)}",
        hint=f"set data.nulls.{first} to mask (0 stands for a null, and {first}{VALID_SUFFIX} says where)"
        f" or to a value to fill in{each}",
    )


def _fill_value(field: pa.Field, policy: NullPolicy) -> pa.Scalar:
    if pa.types.is_nested(field.type):
        raise ConfigError(
            "data.null-policy",
            f"nulls of {field.type} can only be refused, found the policy {policy!r}",
            hint="use error, or give the lists a value when they are prepared",
            location=f"data.nulls.{field.name}",
        )
    try:
        if policy == "mask":
            # An int64 casts only to decimals that have room for all of its digits, a double to any.
            zero = 0.0 if pa.types.is_decimal(field.type) else 0
            return pa.scalar("" if pa.types.is_string(field.type) else zero).cast(field.type)
        return pa.scalar(policy).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(
            "data.null-policy",
            f"the policy {policy!r} does not fit a column of type {field.type}: {error}",
            hint="use error, mask or a value of that type",
            location=f"data.nulls.{field.name}",
        ) from error
