"""Sets of subscriptions as Arrow tables: what may be one, and what may follow one.

>>> as_table([(7, "SELECT * FROM s", "ann")]).column("subscriber").to_pylist()
['ann']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tocsin.engine import Engine
from tocsin.errors import SubscriptionError

__all__ = ["SCHEMA", "Entry", "as_table", "checked", "definitions", "refuse_changed_ids"]

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
    if isinstance(subscriptions, Engine):
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


def checked(table: pa.Table) -> pa.Table:
    """The table in order of id; duplicate ids are refused."""
    table = as_table(table).combine_chunks().sort_by("id")
    counts = pc.value_counts(table["id"])
    for item in counts:
        if item["counts"].as_py() > 1:
            raise SubscriptionError(f"subscription {item['values']} is there {item['counts']} times")
    return table


def refuse_changed_ids(old: pa.Table, new: pa.Table) -> None:
    """An id keeps its meaning for life: whoever keeps contents by id could not tell the two apart."""
    fixed = ["sql", "valid_from", "valid_to"]
    both = (
        old.join(new, "id", join_type="inner", left_suffix="", right_suffix="_new")
        if len(old) and len(new)
        else None
    )
    if both is None:
        return
    for name in fixed:
        was, now = both[name], both[f"{name}_new"]
        same = pc.or_kleene(pc.equal(was, now), pc.and_(pc.is_null(was), pc.is_null(now)))
        changed = both.filter(pc.invert(pc.fill_null(same, False)))
        if len(changed):
            row = changed.slice(0, 1).to_pylist()[0]
            raise SubscriptionError(
                f"subscription {row['id']} has another {name} than before: "
                f"{row[name]!r} became {row[f'{name}_new']!r}",
                hint="give the new one a new id",
            )
