"""Random conditions and rows over a few columns of every type, with many ties."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from hypothesis import strategies as st

from tocsin.language.algebra import (
    And,
    Between,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    Rlike,
    Truth,
    is_true,
)
from tocsin.model.schema import Field, Stream, Table, Type

BIG = 2**53
NUMBERS: list[Any] = [
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    0.5,
    2.5,
    3.0,
    math.nan,
    math.inf,
    -math.inf,
    BIG,
    BIG + 1,
    float(BIG),
    2**63,
]
TEXTS: list[Any] = ["", "a", "ab", "abc", "b", "B", "it's", "50%", "a\\b", "é", "x_y", "\U0001f514", "a\nb"]
TIMES: list[Any] = [
    *(date(2013, 1, day) for day in (1, 2, 3)),
    *(datetime(2013, 1, day, hour, tzinfo=UTC) for day, hour in ((1, 0), (1, 12), (3, 0))),
    datetime(2013, 1, 2, 0, 0, 0, 1, tzinfo=UTC),
]
BOOLEANS: list[Any] = [True, False]
PATTERNS = ["", "%", "a", "a%", "%b", "%b%", "a_c", "50\\%", "x\\_y", "a\\\\b", "_", "%%", "é%", "a%b"]
REGEXES = ["a", "^a", "b$", "[ab]+c?", "(?i)B", "^$", "."]

COLUMNS = {
    "n": Column("n", Type.BIGINT),
    "x": Column("x", Type.DOUBLE),
    "s": Column("s", Type.STRING),
    "b": Column("b", Type.BOOLEAN),
    "d": Column("d", Type.DATE),
    "t": Column("t", Type.TIMESTAMP),
}
TYPED = Stream("typed", tuple(Field(name, column.type) for name, column in COLUMNS.items() if column.type))
KEPT = Table("kept", TYPED.fields, ("n",))
OPEN = Stream("open")
OPEN_COLUMNS = {"p": Column("p"), "q": Column("q")}


def values_of(column: Column) -> list[Any]:
    """The constants to compare a column with."""
    if column.type is None:
        return NUMBERS[:11] + TEXTS[:6] + BOOLEANS
    return {"number": NUMBERS, "text": TEXTS, "time": TIMES, "boolean": BOOLEANS}[column.type.kind]


def row_values_of(column: Column) -> list[Any]:
    """The values a row may have there."""
    if column.type is Type.BIGINT:
        return [v for v in NUMBERS if isinstance(v, int) and v < 2**63]
    if column.type is Type.DOUBLE:
        return [float(v) for v in NUMBERS]
    if column.type is Type.DATE:
        return [v for v in TIMES if not isinstance(v, datetime)]
    if column.type is Type.TIMESTAMP:
        return [v for v in TIMES if isinstance(v, datetime)]
    return values_of(column)


@dataclass(frozen=True)
class World:
    """Some columns, and for each a few constants and a few values of rows: few, so that they meet."""

    columns: dict[str, Column]
    constants: dict[str, list[Any]]
    values: dict[str, list[Any]]

    def rows(self) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries({n: st.sampled_from([None, *self.values[n]]) for n in self.columns})


@st.composite
def worlds(draw: st.DrawFn, choices: list[dict[str, Column]]) -> World:
    columns = draw(st.sampled_from(choices))
    constants = {n: draw(_some(values_of(c))) for n, c in columns.items()}
    values = {}
    for name, column in columns.items():
        met = [v for v in constants[name] if v in row_values_of(column)]
        values[name] = draw(_some(row_values_of(column))) + met
    return World(columns, constants, values)


def _some(values: list[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=4)


@st.composite
def atoms(draw: st.DrawFn, world: World, nulls: bool = True) -> Predicate:
    name = draw(st.sampled_from(sorted(world.columns)))
    column = world.columns[name]
    values = st.sampled_from(world.constants[name] * 2 + ([None] if nulls else []))
    kinds = ["compare"] * 4 + ["between"] * 2 + ["in"] * 2 + ["null"]
    if column.type in (Type.STRING, None):
        kinds += ["like", "rlike"]
    kind = draw(st.sampled_from(kinds))
    if kind == "compare":
        return Compare(column, draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), draw(values))
    if kind == "between":
        return Between(column, draw(values), draw(values))
    if kind == "in":
        return In(column, tuple(draw(st.lists(values, min_size=1, max_size=4))))
    if kind == "null":
        return IsNull(column)
    if kind == "like":
        return Like(column, draw(st.sampled_from(PATTERNS)))
    return Rlike(column, draw(st.sampled_from(REGEXES)))


@st.composite
def predicates(draw: st.DrawFn, world: World, depth: int = 3) -> Predicate:
    """Conditions of any nesting; AND in AND and OR in OR are written flat, as the parser does."""
    shape = draw(st.sampled_from(["atom", "not", "true", "and", "or", "and", "or"])) if depth else "atom"
    if shape == "not":
        return Not(draw(predicates(world, depth - 1)))
    if shape == "true":
        return is_true(draw(predicates(world, depth - 1)))
    if shape == "atom":
        constant = draw(st.integers(0, 12)) == 0
        return Truth(draw(st.sampled_from([True, False, None]))) if constant else draw(atoms(world))
    kind: type[And] | type[Or] = And if shape == "and" else Or
    args = [draw(predicates(world, depth - 1)) for _ in range(draw(st.integers(2, 3)))]
    return kind(tuple(part for arg in args for part in (arg.args if isinstance(arg, kind) else (arg,))))
