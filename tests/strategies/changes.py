"""Changes, and the tables they make, kept in plain dicts: the other half of the law.

    key not in the table:  insert, upsert             a bad row: insert of a present key,
    key in the table:      update, delete, upsert     update or delete of an absent one, ...

A key is drawn first and the operation from what the key allows, so every drawn change is valid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from tests.strategies.pick import Pick
from tests.strategies.schemas import ATTRIBUTES
from tests.strategies.values import Values
from tocsin.model.schema import Stream, Table, Type

__all__ = ["Change", "Model", "Step", "bad_change", "event", "steps", "to_arrow", "to_open_arrow"]

Row = dict[str, Any]


class Change(NamedTuple):
    """One change of a table: `op` is insert, update, delete or upsert."""

    op: str
    row: Row


@dataclass(frozen=True)
class Step:
    """Changes of one table that go together: one by a call of its own, or a batch."""

    table: Table
    changes: tuple[Change, ...]
    batch: bool = False
    net: bool = False


@dataclass
class Model:
    """Tables as dicts of rows by key; nothing shared with the engine."""

    tables: Sequence[Table]
    rows: dict[str, dict[tuple[Any, ...], Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = {table.name: {} for table in self.tables}

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        return {table.name: table.key for table in self.tables}

    def database(self) -> dict[str, list[Row]]:
        return {name: list(rows.values()) for name, rows in self.rows.items()}

    def apply(self, table: Table, change: Change) -> None:
        rows, key = self.rows[table.name], tuple(change.row[name] for name in table.key)
        if change.op == "delete":
            del rows[key]
        elif change.op == "update" or (change.op == "upsert" and key in rows):
            rows[key] = {**rows[key], **change.row}
        else:
            assert key not in rows, "drawn changes are valid"
            rows[key] = {**dict.fromkeys(table.names), **change.row}


def steps(pick: Pick, tables: Sequence[Table], values: Values, least: int, most: int) -> tuple[Step, ...]:
    """First some rows for each table, mostly; then changes of any kind, one by one and in batches."""
    model = Model(tables)
    out: list[Step] = []
    for table in tables:
        if pick.chance(60):
            rows = [{name: values.key(pick, type) for name, type in _key_types(table)} for _ in range(4)]
            keys = {tuple(row.values()): row for row in rows}
            others = [f for f in table.fields if f.name not in table.key]
            changes = [
                Change("insert", row | {f.name: values.cell(pick, f.type) for f in others})
                for row in keys.values()
            ]
            for change in changes:
                model.apply(table, change)
            out.append(Step(table, tuple(changes), batch=True))
    for _ in range(pick.between(least, most)):
        table = pick.one(tables)
        batch = pick.chance(30)
        names = tuple(pick.some(_rest(table), 0, 9)) if pick.chance(30) else _rest(table)
        made = []
        for _ in range(pick.between(1, 4) if batch else 1):
            made.append(_change(pick, model, table, values, names, whole=batch))
            model.apply(table, made[-1])
        out.append(Step(table, tuple(made), batch, batch and pick.chance(40)))
    return tuple(out)


def _key_types(table: Table) -> list[tuple[str, Type]]:
    types = {f.name: f.type for f in table.fields}
    return [(name, types[name]) for name in table.key]


def _rest(table: Table) -> tuple[str, ...]:
    return tuple(name for name in table.names if name not in table.key)


def _change(
    pick: Pick, model: Model, table: Table, values: Values, names: Sequence[str], *, whole: bool
) -> Change:
    """One valid change that sets the key and these columns; `whole`: a delete has the columns too."""
    rows = model.rows[table.name]
    types = {f.name: f.type for f in table.fields}
    if rows and pick.chance(55):  # go back to a row that is there
        key = dict(zip(table.key, pick.one(tuple(rows)), strict=True))
    else:
        key = {name: values.key(pick, types[name]) for name in table.key}
    present = tuple(key.values()) in rows
    op = pick.one(("update", "delete", "upsert", "update") if present else ("insert", "insert", "upsert"))
    row: Row = dict(key)
    if op != "delete" or whole:
        row |= {name: values.cell(pick, types[name]) for name in names}
    return Change(op, row)


def bad_change(pick: Pick, model: Model, table: Table, values: Values, names: Sequence[str]) -> Change:
    """A change that must be rejected, whatever the table holds."""
    rows = model.rows[table.name]
    types = {f.name: f.type for f in table.fields}
    key = {name: values.key(pick, types[name]) for name in table.key}
    row = key | {name: values.cell(pick, types[name]) for name in names}
    if tuple(key.values()) in rows and pick.chance(70):
        return Change("insert", row)
    if tuple(key.values()) not in rows and pick.chance(70):
        return Change(pick.one(("update", "delete")), row)
    doubles = [name for name in table.key if types[name] == "DOUBLE"]
    if doubles and pick.chance(50):
        return Change(pick.one(("insert", "upsert")), row | {doubles[0]: math.nan})
    return Change(pick.one(("insert", "update", "delete", "upsert")), row | {pick.one(table.key): None})


def event(pick: Pick, stream: Stream, values: Values) -> Row:
    """One event: of a typed stream any of its columns, of an open one any attribute of any type."""
    if not stream.open:
        return {f.name: values.cell(pick, f.type) for f in stream.fields if not pick.chance(10)}
    present = [name for name in ATTRIBUTES if not pick.chance(15)]
    return {name: None if pick.chance(5) else values.mixed(pick) for name in present}


def to_arrow(relation: Table | Stream, rows: Sequence[Row], ops: Sequence[str] | None = None) -> Any:
    """A batch: the columns that occur (all, of a stream), in the order declared, and `_op`."""
    types = {f.name: f.type for f in relation.fields}
    names = [name for name in types if not relation.key or any(name in row for row in rows)]
    columns = {name: pa.array([row.get(name) for row in rows], types[name].arrow) for name in names}
    if ops is not None:
        columns["_op"] = pa.array(list(ops), pa.string())
    return pa.table(columns)


def to_open_arrow(events: Sequence[Row]) -> Any:
    """Events of an open stream as two maps, of numbers and of texts."""
    numbers = [[(k, v) for k, v in row.items() if isinstance(v, float)] for row in events]
    texts = [[(k, v) for k, v in row.items() if isinstance(v, str)] for row in events]
    return pa.table(
        {
            "attributes": pa.array(numbers, pa.map_(pa.string(), pa.float64())),
            "texts": pa.array(texts, pa.map_(pa.string(), pa.string())),
        }
    )
