"""The values of expressions: over columns, row by row, and in Spark SQL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.strategies.expressions import FIELDS
from tocsin.language.algebra import Column, TableRef
from tocsin.language.dialect import read
from tocsin.language.expressions import ExpressionReader
from tocsin.language.literals import Constant, ConstantReader
from tocsin.language.scope import NameScope, ScopeEntry
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import stored
from tocsin.model.expressions.derived import expression_of
from tocsin.model.schema import Stream, Type

STREAM = Stream("r", FIELDS)
_TOGETHER = 100  # expressions of one query


def column_of(text: str) -> Column | Constant:
    """What an expression over the rows stands for."""
    trees, source = read(f"SELECT * FROM r WHERE {text}")
    scope = NameScope(source, [ScopeEntry(TableRef("r", "r"), STREAM, trees[0])])
    return ExpressionReader(scope, ConstantReader(source)).column(trees[0].args["where"].this)


def computed(texts: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[tuple[list[Any], list[Any]]]:
    """The values of each expression: over columns, and row by row."""
    batch, bad = ChangeBatch.from_dicts(STREAM, list(rows), "insert")
    assert not bad
    found = []
    for text in texts:
        column = column_of(text)
        if isinstance(column, Constant):
            found.append(([column.value] * len(rows),) * 2)
            continue
        own = expression_of(column.name)
        (vector,) = own.of_rows(batch.rows)
        found.append((vector.to_list(), [own.of_row(row) for row in rows]))
    return found


def in_spark(
    session: Any, texts: Sequence[tuple[Type, str]], rows: Sequence[dict[str, Any]]
) -> list[list[Any]]:
    """The values in Spark, with ANSI off; times as whole numbers."""
    table_of(session, rows).createOrReplaceTempView("r")
    shown = [_in_numbers(kind, text) for kind, text in texts]
    columns: list[list[Any]] = []
    for first in range(0, len(shown), _TOGETHER):
        part = shown[first : first + _TOGETHER]
        selected = ", ".join(f"{text} AS c{n}" for n, text in enumerate(part))
        collected = session.sql(f"SELECT {selected} FROM r").collect()
        columns += [[row[n] for row in collected] for n in range(len(part))]
    return columns


def table_of(session: Any, rows: Sequence[dict[str, Any]], more: Sequence[tuple[str, Type]] = ()) -> Any:
    """Rows of FIELDS, and of more columns before them, in Spark."""
    fields = [*more, *((f.name, f.type) for f in FIELDS)]
    given = [tuple(comparable(kind, row[name], stamps=True) for name, kind in fields) for row in rows]
    stamps = [name for name, kind in fields if kind is Type.TIMESTAMP]
    ddl = ", ".join(f"{name} {'BIGINT' if name in stamps else kind}" for name, kind in fields)
    names = [f"timestamp_micros({name}) AS {name}" if name in stamps else name for name, _ in fields]
    return session.createDataFrame(given, ddl).selectExpr(*names)


def stored_rows(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events as rows of columns: what is missing is NULL."""
    names = dict.fromkeys(name for event in events for name in event)
    return [{name: event.get(name) for name in names} for event in events]


def _in_numbers(kind: Type, text: str) -> str:
    function = {Type.TIMESTAMP: "unix_micros", Type.DATE: "unix_date"}.get(kind)
    return text if function is None else f"{function}({text})"


def comparable(kind: Type, value: Any, *, stamps: bool = False) -> Any:
    """A value in a form in which both can be compared: times as whole numbers; with `stamps` only these."""
    if value is None or kind.kind != "time" or (stamps and kind is Type.DATE):
        return value
    return stored(kind, value)


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same; doubles to the last digits."""
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other or math.isclose(one, other, rel_tol=1e-12)
    return one == other and isinstance(one, bool) == isinstance(other, bool)
