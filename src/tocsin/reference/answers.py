"""The answer of a query over tables: every combination of rows, filtered, grouped, ordered."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tocsin.errors import TocsinError
from tocsin.language.algebra import (
    JOINT,
    Aggregate,
    Band,
    Column,
    Equal,
    Existence,
    Measure,
    OrderKey,
    Query,
    joint_name,
)
from tocsin.model.schema import Type
from tocsin.reference.conditions import Read, any_of, truth, value_in
from tocsin.reference.values import Row, compare, difference, plain, rank, row_key

__all__ = ["Rows", "evaluate", "joins", "projected", "reader"]

Rows = Mapping[str, Row]  # one row of each table, by alias


def evaluate(
    query: Query, database: Mapping[str, Sequence[Row]], keys: Mapping[str, tuple[str, ...]]
) -> list[dict[str, Any]]:
    """The answer over these tables: a bag of rows, and for ORDER BY and LIMIT a list in order.

    `database` maps each table (or stream: then its events) to its rows, `keys` to its primary key.
    """
    if query.branches:
        names = [item.name for item in query.items]
        parts = [row for branch in query.branches for row in evaluate(branch, database, keys)]
        return [dict(zip(names, row.values(), strict=True)) for row in parts]
    joined = _joined(query, database) if query.outer is None else _outer_joined(query, database)
    found = [rows for rows in joined if truth(query.where, reader(query, rows)) is True]
    found = [rows for rows in found if all(_exists(one, query, rows, database) for one in query.exists)]
    if query.aggregates or query.grouped:
        return _grouped(query, found)
    if query.order or query.limit is not None:
        found = _first(query, _ordered(query, found, keys))
    answer = [projected(query, rows) for rows in found]
    return _distinct(answer) if query.distinct else answer


def _joined(query: Query, database: Mapping[str, Sequence[Row]]) -> Iterator[Rows]:
    """Every combination of rows that joins; a condition is tested once all of its tables are bound."""

    def extend(rows: dict[str, Row]) -> Iterator[Rows]:
        if len(rows) == len(query.from_tables):
            yield rows
            return
        table = query.tables[len(rows)]
        due = [j for j in query.joins if {j.left.relation, j.right.relation} <= {*rows, table.alias}]
        for row in database[table.name]:
            longer = {**rows, table.alias: row}
            if all(joins(join, reader(query, longer)) for join in due):
                yield from extend(longer)

    return extend({})


def _outer_joined(query: Query, database: Mapping[str, Sequence[Row]]) -> Iterator[Rows]:
    """Pairs for which ON is true, and rows without a partner beside a row of NULLs.

    >>> from tocsin.language.algebra import Item, OuterJoin, TableRef
    >>> k, l = Column("k", Type.BIGINT, "a"), Column("k", Type.BIGINT, "b")
    >>> two = Query((Item(k, "k"), Item(l, "l")), (TableRef("s", "a"), TableRef("t", "b")), (Equal(k, l),))
    >>> full, rows = OuterJoin("FULL"), {"s": [{"k": 1}, {"k": None}], "t": [{"k": 1}, {"k": 2}]}
    >>> from dataclasses import replace
    >>> evaluate(replace(two, outer=full), rows, {})
    [{'k': 1, 'l': 1}, {'k': None, 'l': None}, {'k': None, 'l': 2}]
    """
    assert query.outer is not None
    first, second = query.tables
    left, right = database[first.name], database[second.name]
    joined = set()
    for a, one in enumerate(left):
        for b, other in enumerate(right):
            rows = {first.alias: one, second.alias: other}
            read = reader(query, rows)
            if all(joins(join, read) for join in query.joins) and truth(query.outer.on, read) is True:
                joined |= {(0, a), (1, b)}
                yield rows
    if query.outer.keeps(0):
        yield from ({first.alias: r, second.alias: {}} for n, r in enumerate(left) if (0, n) not in joined)
    if query.outer.keeps(1):
        yield from ({first.alias: {}, second.alias: r} for n, r in enumerate(right) if (1, n) not in joined)


def _exists(one: Existence, query: Query, rows: Rows, database: Mapping[str, Sequence[Row]]) -> bool:
    """Whether EXISTS or IN, or NOT of it, is true beside these rows: not false, not unknown."""
    table = query.alias(one.alias)
    found = []
    for row in database[table.name]:
        read = reader(query, {**rows, one.alias: row})
        if all(joins(join, read) for join in one.joins) and truth(one.where, read) is True:
            found.append(True if one.member is None else _equals(read(one.member[0]), read(one.member[1])))
    return any_of(found) is (not one.negated)


def _equals(left: Any, right: Any) -> bool | None:
    order = compare(left, right)
    return None if order is None else order == 0


def reader(query: Query, rows: Rows) -> Read:
    """How a condition reads its columns; a query over one table need not name it."""
    only = query.tables[0].alias

    def read(column: Column) -> Any:
        if column.relation != JOINT:
            return value_in(column.name, rows[column.relation or only])
        own = {joint_name(part): rows[part.relation].get(part.name) for part in column.parts}
        return value_in(column.name, own)

    return read


def joins(join: Equal | Band, read: Read) -> bool:
    left, right = read(join.left), read(join.right)
    if isinstance(join, Equal):
        return compare(left, right) == 0
    if left is None or right is None:
        return False
    apart = difference(left, right)
    above_low = join.low is None or apart > rank(join.low) or (apart == rank(join.low) and not join.low_open)
    below_high = (
        join.high is None or apart < rank(join.high) or (apart == rank(join.high) and not join.high_open)
    )
    return above_low and below_high


def projected(query: Query, rows: Rows) -> dict[str, Any]:
    """The selected columns; without any, the attributes an event of an open stream carries."""
    read = reader(query, rows)
    if not query.items:
        return {name: value for name, value in rows[query.tables[0].alias].items() if value is not None}
    return {i.name: read(i.expression) for i in query.items if isinstance(i.expression, Column)}


def _grouped(query: Query, found: list[Rows]) -> list[dict[str, Any]]:
    """One row for each group of equal keys that passes HAVING; without keys, all rows are one group."""
    groups: dict[Hashable, list[Rows]] = {} if query.group else {(): []}
    for rows in found:
        groups.setdefault(tuple(plain(reader(query, rows)(key)) for key in query.group), []).append(rows)
    answer = []
    for members in groups.values():

        def read(column: Column | Aggregate, members: list[Rows] = members) -> Any:
            if isinstance(column, Measure):
                return _answer(column.aggregate, query, members)
            return _answer(column, query, members)

        row = {item.name: read(item.expression) for item in query.items}
        if truth(query.having, read) is True:
            answer.append(row)
    return answer


def _first(query: Query, ordered: list[Rows]) -> list[Rows]:
    """The first rows after `offset` others; with a partition, those of each group of equal values there."""
    if not query.partition:
        return ordered[query.offset :][: query.limit]
    seen: Counter[Hashable] = Counter()
    kept = []
    for rows in ordered:
        group = tuple(plain(reader(query, rows)(column)) for column in query.partition)
        seen[group] += 1
        if query.limit is None or seen[group] <= query.limit:
            kept.append(rows)
    return kept


def _distinct(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row once: NULL equals NULL here, and NaN equals NaN."""
    first: dict[Hashable, dict[str, Any]] = {}
    for row in rows:
        first.setdefault(row_key(row), row)
    return list(first.values())


def _ordered(query: Query, found: list[Rows], keys: Mapping[str, tuple[str, ...]]) -> list[Rows]:
    """Sorted by the last key first, as sorting keeps the order of equals: the primary key, then ORDER BY."""
    several = len(query.tables) > 1
    ties = [
        OrderKey(Column(name, relation=table.alias if several else ""))
        for table in query.tables
        for name in keys.get(table.name, ())
    ]
    for key in reversed([*query.order, *ties]):
        found = _sorted(found, key, lambda rows: reader(query, rows))
    return found


def _sorted(found: list[Rows], key: OrderKey, reader: Callable[[Rows], Read]) -> list[Rows]:
    nulls = [rows for rows in found if reader(rows)(key.column) is None]
    known = [rows for rows in found if reader(rows)(key.column) is not None]
    known.sort(key=lambda rows: rank(reader(rows)(key.column)), reverse=key.descending)
    return nulls + known if key.nulls_first else known + nulls


def _answer(expression: Column | Aggregate, query: Query, found: list[Rows]) -> Any:
    if isinstance(expression, Column):
        if expression not in query.group:
            raise TocsinError(f"{expression} stands beside an aggregate")
        return reader(query, found[0])(expression)
    column, where = expression.column, expression.where
    if where is not None:
        found = [rows for rows in found if truth(where, reader(query, rows)) is True]
    if column is None:
        return len(found)
    values = [reader(query, rows)(column) for rows in found]
    if expression.distinct:
        values = list({plain(value): value for value in values}.values())
    return _aggregate(expression.function, column.type, values)


def _aggregate(function: str, kind: Type | None, values: Sequence[Any]) -> Any:
    """One value of a column: NULL is skipped, and nothing left is NULL (0 for COUNT).

    >>> _aggregate("SUM", Type.DOUBLE, [1e16, 1.0, None, -1e16]), _aggregate("AVG", Type.BIGINT, [1, 2])
    (1.0, 1.5)
    """
    known = [value for value in values if value is not None]
    if function == "COUNT":
        return len(known)
    if not known:
        return None
    if function in ("MIN", "MAX"):
        return (min if function == "MIN" else max)(known, key=rank)
    if kind is not None and kind.is_decimal:
        return _of_decimals(function, kind, known)
    total = _double_sum(known) if kind is Type.DOUBLE else sum(known)
    if function == "AVG":
        return total / len(known)
    if function == "SUM":
        if isinstance(total, int) and not -(2**63) <= total < 2**63:
            raise TocsinError(
                "BIGINT overflow", hint="the sum is outside -2^63 .. 2^63 - 1; make the column a DOUBLE"
            )
        return total
    raise TocsinError(f"there is no aggregate {function}")


def _of_decimals(function: str, kind: Type, values: Sequence[Decimal]) -> Decimal:
    """SUM or AVG of a DECIMAL; an average has up to four more digits, 18 in all, halves away from zero.

    >>> _of_decimals("AVG", Type("DECIMAL(4,2)"), [Decimal("0.01"), Decimal("0.02"), Decimal("0.02")])
    Decimal('0.016667')
    """
    exact = sum(map(Fraction, values), Fraction(0))
    scale = kind.scale
    if function == "AVG":
        exact /= len(values)
        scale += min(4, 18 - kind.precision) if kind.precision < 18 else 0
    units = math.floor(abs(exact) * 10**scale + Fraction(1, 2))
    if function == "SUM" and not -(2**63) <= (-units if exact < 0 else units) < 2**63:
        raise TocsinError("DECIMAL overflow", hint="the sum has more than 64 bits of its unit")
    return Decimal((int(exact < 0), tuple(map(int, str(units))), -scale))


def _double_sum(values: Iterable[float]) -> float:
    """The sum of all as if with endless digits, rounded once; so it does not depend on the order."""
    endless = {float(v) for v in values if not math.isfinite(v)}
    if endless:
        return endless.pop() if len(endless) == 1 else math.nan
    exact = sum((Fraction(v) for v in values), Fraction(0))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
