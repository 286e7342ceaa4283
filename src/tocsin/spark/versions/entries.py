"""Sets of subscriptions as Arrow tables: what may be one, and what may follow one.

>>> as_table([(7, "SELECT * FROM s", "ann")]).column("subscriber").to_pylist()
['ann']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from tocsin.errors import SubscriptionError

if TYPE_CHECKING:
    from tocsin.engine import Engine

__all__ = ["SCHEMA", "Entry", "as_table", "definitions"]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("subscriber", pa.string()),
        pa.field("sql", pa.string(), nullable=False),
        pa.field("valid_from", pa.timestamp("us", tz="UTC")),
        pa.field("valid_to", pa.timestamp("us", tz="UTC")),
    ]
)


class Entry(NamedTuple):
    """One subscription of a version."""

    id: int
    sql: str
    subscriber: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None


def as_table(subscriptions: Any) -> pa.Table:
    """A set of subscriptions as an Arrow table: from one, an engine, or rows.

    Rows are mappings or tuples (id, sql, subscriber, valid_from, valid_to) of which only the
    first two must be there.
    """
    if isinstance(subscriptions, pa.Table):
        return _from_arrow(subscriptions)
    if hasattr(subscriptions, "subscriptions"):  # an engine
        subscriptions = [
            {name: getattr(s, name) for name in SCHEMA.names} for s in subscriptions.subscriptions()
        ]
    return pa.Table.from_pylist([_row(row) for row in _iterate(subscriptions)], schema=SCHEMA)


def definitions(engine: Engine) -> str:
    """The CREATE statements of an engine's streams and tables."""
    return ";\n".join(map(str, engine.schemas()))


def _iterate(subscriptions: Any) -> Iterable[Any]:
    if isinstance(subscriptions, str) or not isinstance(subscriptions, Iterable):
        raise SubscriptionError(
            f"a set of subscriptions cannot be made of {type(subscriptions).__name__}",
            hint="give an engine, an Arrow table, a list of (id, sql) or a directory of versions",
        )
    return subscriptions


def _from_arrow(table: pa.Table) -> pa.Table:
    columns = []
    for field in SCHEMA:
        there = field.name in table.column_names
        if not field.nullable and (not there or table[field.name].null_count):
            raise SubscriptionError(
                f"the subscriptions have {'a NULL in' if there else 'no'} column {field.name}",
                hint="an id (integer) and an sql (text) are needed",
            )
        column = table[field.name] if there else pa.nulls(len(table))
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise SubscriptionError(
                f"column {field.name} of the subscriptions is no {field.type}: {error}",
                hint=f"it is {column.type}",
            ) from None
    return pa.table(columns, schema=SCHEMA)


_KINDS: dict[str, tuple[type, ...]] = {
    "id": (int,),
    "sql": (str,),
    "subscriber": (str, type(None)),
    "valid_from": (datetime, type(None)),
    "valid_to": (datetime, type(None)),
}


def _row(row: Any) -> dict[str, Any]:
    hint = "an id (integer) and an sql (text) are needed; then subscriber, valid_from and valid_to may follow"
    try:
        values = dict(row) if isinstance(row, Mapping) else Entry(*row)._asdict()
    except TypeError:  # too few, too many, or nothing to count
        raise SubscriptionError(f"not a subscription: {row!r}", hint=hint) from None
    unknown = [name for name in values if name not in _KINDS]
    if unknown:
        raise SubscriptionError(f"a subscription has no {unknown[0]!r}: {row!r}", hint=hint)
    for name, kinds in _KINDS.items():
        if not isinstance(values.get(name), kinds) or isinstance(values.get(name), bool):
            raise SubscriptionError(
                f"not a subscription: {row!r}: {name} is {values.get(name)!r}",
                hint=hint
                if name in ("id", "sql")
                else f"{name} is {'text' if str in kinds else 'a datetime'}",
            )
    if not -(2**63) <= values["id"] < 2**63:
        raise SubscriptionError(f"subscription id {values['id']} is no BIGINT", hint="ids are below 2^63")
    return values
