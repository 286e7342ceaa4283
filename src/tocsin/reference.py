"""What every query means, by brute force: the specification the rooms are tested against.

Nothing here is clever. A query over tables is read as it was parsed:

    FROM    every combination of rows, one of each table (nested loops)
    JOIN    keep those for which each `Equal` and `Band` holds; an outer join adds rows without partner
    WHERE   keep those for which the condition is true: not false, not unknown
    GROUP   rows of equal keys, one row of aggregates for each group that HAVING is true for
    SELECT  aggregate to one row, or project; then DISTINCT, or ORDER BY, LIMIT and OFFSET, or QUALIFY

The cost is the product of the table sizes; use it on small ones.

>>> from dataclasses import replace
>>> from tocsin.language.algebra import Aggregate, Compare, Item, Not, OrderKey, TableRef
>>> from tocsin.model.schema import Type, read_time
>>> symbol, per = Column("symbol", Type.STRING), Column("per", Type.DOUBLE)
>>> row, tables = (Item(symbol, "symbol"), Item(per, "per")), (TableRef("stocks", "stocks"),)
>>> database = {"stocks": [
...     {"symbol": "A", "per": 50.0}, {"symbol": "B", "per": None},
...     {"symbol": "C", "per": math.nan}, {"symbol": "D", "per": 50.0}]}
>>> keys = {"stocks": ("symbol",)}

A filter keeps what is true. NaN is above all numbers, and NULL is not 50 but not unlike 50 either:

>>> evaluate(Query(row, tables, where=Not(Compare(per, "=", 50.0))), database, keys)
[{'symbol': 'C', 'per': nan}]

Top-k is in order, ties by primary key; an aggregate is one row; DISTINCT is a set:

>>> evaluate(Query(row[:1], tables, order=(OrderKey(per),), limit=3), database, keys)
[{'symbol': 'B'}, {'symbol': 'A'}, {'symbol': 'D'}]
>>> values = (Item(Aggregate("COUNT"), "n"), Item(Aggregate("MIN", per), "low"))
>>> evaluate(Query(values, tables), database, keys)
[{'n': 4, 'low': 50.0}]
>>> evaluate(Query(row[1:], tables, distinct=True), database, keys)
[{'per': 50.0}, {'per': None}, {'per': nan}]

Groups are of equal keys, NULL equal to NULL; one row for each that passes HAVING:

>>> from tocsin.language.algebra import Measure
>>> many = Compare(Measure.of(Aggregate("COUNT")), ">", 1)
>>> evaluate(Query((row[1], values[0]), tables, group=(per,), having=many), database, keys)
[{'per': 50.0, 'n': 2}]

A join pairs rows; here each row with those at most 5 above it, in a table joined with itself:

>>> twice = (TableRef("stocks", "l"), TableRef("stocks", "h"))
>>> near = Band(replace(per, relation="h"), replace(per, relation="l"), low=0, high=5)
>>> pair = tuple(Item(replace(symbol, relation=alias), alias) for alias in "lh")
>>> evaluate(Query(pair, twice, (near,), Compare(pair[0].expression, "=", "A")), database, keys)
[{'l': 'A', 'h': 'A'}, {'l': 'A', 'h': 'D'}]
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any

import re2

from tocsin.errors import TocsinError
from tocsin.language.algebra import (
    Aggregate,
    And,
    Band,
    Between,
    Column,
    Compare,
    Equal,
    Existence,
    Exists,
    Ilike,
    In,
    IsNull,
    IsTrue,
    Like,
    Measure,
    Not,
    Or,
    OrderKey,
    Predicate,
    Query,
    Rlike,
    Truth,
    exists_of,
)
from tocsin.model.folding import fold
from tocsin.model.paths import ALL_VALUES, MISSING, is_exists, is_inside, leaves, read_path, value_of
from tocsin.model.schema import Type, read_time

__all__ = ["as_bag", "compare", "difference", "evaluate", "events_in", "holds", "join_streams", "row_key"]

Row = Mapping[str, Any]
Rows = Mapping[str, Row]  # one row of each table, by alias
Read = Callable[[Column], Any]


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
    found = [rows for rows in joined if _truth(query.where, _reader(query, rows)) is True]
    found = [rows for rows in found if all(_exists(one, query, rows, database) for one in query.exists)]
    if query.aggregates or query.grouped:
        return _grouped(query, found)
    if query.order or query.limit is not None:
        found = _first(query, _ordered(query, found, keys))
    answer = [_projected(query, rows) for rows in found]
    return _distinct(answer) if query.distinct else answer


# -- windows ---------------------------------------------------------------------------------------


def events_in(
    moments: Iterable[tuple[int, Row | None]], span: int, time: str | None = None, late: int = 0
) -> list[Row]:
    """The events of a stream that are in a window after all these moments, in order of arrival.

    A moment is the engine's clock in microseconds, and an event that arrives then, or None.

    By arrival, an event that arrived at t is in the window for t <= now < t + span; out is out, even if
    the clock is set back:

    >>> events_in([(0, {"n": 1}), (4, {"n": 2}), (9, None)], span=10)
    [{'n': 1}, {'n': 2}]
    >>> events_in([(0, {"n": 1}), (4, {"n": 2}), (10, None), (9, None)], span=10)
    [{'n': 2}]

    With `time`, the column of event time, the clock of the window is the largest time seen minus `late`.
    Events above clock - span are in the window; one that is outside when it comes, or has no time, changes
    nothing:

    >>> at = [datetime.fromtimestamp(0, UTC) + timedelta(microseconds=n) for n in (100, 92, 103, 91, 93)]
    >>> kept = events_in([(0, {"at": t}) for t in [*at, None]], span=10, time="at", late=2)
    >>> [event["at"].microsecond for event in kept]
    [100, 92, 103, 93]
    """
    kept: list[tuple[int, Row]] = []
    latest: int | None = None
    for now, event in moments:
        if time is None:
            kept = [(t, e) for t, e in kept if now < t + span]
            kept += [] if event is None else [(now, event)]
        elif event is not None and event.get(time) is not None:
            own = _microseconds(event[time])
            latest = own if latest is None else max(latest, own)
            kept = [(t, e) for t, e in [*kept, (own, event)] if t > latest - late - span]
    return [event for _, event in kept]


# -- conditions ------------------------------------------------------------------------------------


def holds(predicate: Predicate, row: Row) -> bool | None:
    """Whether a row satisfies a condition: True, False, or None where that is unknown.

    A column that is missing is NULL. In a query over several tables, `row` maps aliases to rows.

    >>> price = Column("price")
    >>> holds(Compare(price, "<", 5), {"price": 4.5}), holds(IsNull(price), {})
    (True, True)
    >>> holds(Not(Compare(price, "<", 5)), {"price": "cheap"}) is None  # text against a number
    True
    """
    return _truth(predicate, lambda c: _value(c.name, row.get(c.relation, {}) if c.relation else row))


# -- inside events ---------------------------------------------------------------------------------


def _value(name: str, row: Row) -> Any:
    """The value of a column, or of an attribute that stands for something inside an event.

    An object or a list is no value; what `exists` says of the elements of a list is one:

    >>> event = {"tags": ["a", None], "item": {"brand": "acme", "sizes": [3]}}
    >>> _value("\x1fitem.brand", event), _value("\x1fitem.sizes", event), _value("tags", event)
    ('acme', None, None)
    >>> old = Exists("tags", Compare(Column("e1"), "=", "old"), "e1")
    >>> _value(old.column.name, event), _value(old.column.name, {"tags": 5}) is None
    (False, True)
    """
    if not is_inside(name):
        found = row.get(name)
    elif is_exists(name):
        return _has_element(exists_of(name), row)
    else:
        found = value_of(name, row)
    return None if found is MISSING or isinstance(found, Mapping | list | tuple) else found


def _has_element(exists: Exists, row: Row) -> bool | None:
    """Whether one element meets the condition: for which it is true; unknown where there is no list."""
    if exists.items == ALL_VALUES:
        elements: Iterable[Any] | None = leaves(row)
    else:
        elements = read_path(exists.items).elements(row)
    if elements is None:
        return None
    return any(holds(exists.where, {exists.variable: element}) is True for element in elements)


def _truth(predicate: Predicate, read: Read) -> bool | None:
    match predicate:
        case Truth(value):
            return value
        case Not(arg):
            inner = _truth(arg, read)
            return None if inner is None else not inner
        case And(args):
            return _all([_truth(arg, read) for arg in args])
        case Or(args):
            return _any([_truth(arg, read) for arg in args])
        case IsNull(column):
            return read(column) is None
        case IsTrue(arg):
            return _truth(arg, read) is True
        case Compare(column, op, value):
            return _compares(read(column), op, value)
        case Between(column, low, high):
            return _all([_compares(read(column), ">=", low), _compares(read(column), "<=", high)])
        case In(column, values):
            return _any([_compares(read(column), "=", value) for value in values])
        case Like(column, pattern):
            text = read(column)
            return _like(text, pattern) if isinstance(text, str) else None
        case Ilike(column, pattern):
            text = read(column)
            return _like(fold(text), fold(pattern)) if isinstance(text, str) else None
        case Rlike(column, pattern):
            text = read(column)
            return bool(re2.search(pattern, text)) if isinstance(text, str) else None
    raise TocsinError(f"not a condition: {predicate!r}")


def _all(truths: Iterable[bool | None]) -> bool | None:
    """AND of three-valued truths: one false decides; then one unknown leaves it unknown."""
    known = list(truths)
    return False if False in known else None if None in known else True


def _any(truths: Iterable[bool | None]) -> bool | None:
    known = list(truths)
    return True if True in known else None if None in known else False


_OPS: dict[str, Callable[[int, int], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compares(left: Any, op: str, right: Any) -> bool | None:
    if isinstance(left, str) and isinstance(right, date):  # an attribute of an open stream
        left = _time_in(left)
    order = compare(left, right)
    return None if order is None else _OPS[op](order, 0)


def compare(left: Any, right: Any) -> int | None:
    """-1, 0 or 1 as left is below, equal to or above right; None for NULL and for different kinds.

    >>> compare(math.nan, math.inf), compare(math.nan, math.nan), compare(2**53 + 1, 2.0**53)
    (1, 0, 1)
    >>> compare(True, 1) is None, compare(date(2013, 1, 31), datetime(2013, 1, 31, tzinfo=UTC))
    (True, 0)
    """
    if left is None or right is None or _kind(left) != _kind(right):
        return None
    a, b = _rank(left), _rank(right)
    return (a > b) - (a < b)


def _time_in(text: str) -> date | None:
    """The timestamp, or the date, that a text holds; None if it holds none.

    >>> at = Column("at")
    >>> holds(Compare(at, ">", date(2024, 1, 1)), {"at": "2024-05-01T10:00:00Z"})
    True
    >>> holds(Compare(at, ">", date(2024, 1, 1)), {"at": "soon"}) is None
    True
    """
    try:
        return read_time(Type.TIMESTAMP, text)
    except ValueError:
        return None


def _kind(value: Any) -> str:
    if isinstance(value, bool):  # a bool is an int too, and a datetime a date: the order of tests matters
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "time"


def _rank(value: Any) -> tuple[bool, Any]:
    """A value that Python orders as SQL does among values of one kind (but NULL, which has no place)."""
    if isinstance(value, float) and math.isnan(value):
        return True, 0
    return False, _microseconds(value) if isinstance(value, date) else value


def _microseconds(value: date) -> int:
    """Microseconds since 1970 in UTC; a date is its midnight."""
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    elif value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _like(text: str, pattern: str) -> bool:
    """LIKE: `ends` are the places in the text where some reading of the pattern so far can end."""
    ends, plain = {0}, False
    for p in pattern:
        if plain or p not in "%_\\":
            ends, plain = {e + 1 for e in ends if text[e : e + 1] == p}, False
        elif p == "\\":
            plain = True
        elif p == "_":
            ends = {e + 1 for e in ends if e < len(text)}
        else:
            ends = set(range(min(ends), len(text) + 1)) if ends else ends
    return len(text) in ends


# -- joins -----------------------------------------------------------------------------------------


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
            if all(_joins(join, _reader(query, longer)) for join in due):
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
            read = _reader(query, rows)
            if all(_joins(join, read) for join in query.joins) and _truth(query.outer.on, read) is True:
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
        read = _reader(query, {**rows, one.alias: row})
        if all(_joins(join, read) for join in one.joins) and _truth(one.where, read) is True:
            found.append(True if one.member is None else _equals(read(one.member[0]), read(one.member[1])))
    truth = _any(found)
    return truth is (not one.negated)


def _equals(left: Any, right: Any) -> bool | None:
    order = compare(left, right)
    return None if order is None else order == 0


def _reader(query: Query, rows: Rows) -> Read:
    """How a condition reads its columns; a query over one table need not name it."""
    only = query.tables[0].alias
    return lambda column: _value(column.name, rows[column.relation or only])


def _joins(join: Equal | Band, read: Read) -> bool:
    left, right = read(join.left), read(join.right)
    if isinstance(join, Equal):
        return compare(left, right) == 0
    if left is None or right is None:
        return False
    apart = difference(left, right)
    above_low = (
        join.low is None or apart > _rank(join.low) or (apart == _rank(join.low) and not join.low_open)
    )
    below_high = (
        join.high is None or apart < _rank(join.high) or (apart == _rank(join.high) and not join.high_open)
    )
    return above_low and below_high


def difference(left: Any, right: Any) -> tuple[int, Any]:
    """left - right for a band, as (0, number); (1, 0) is above every number and (-1, 0) below.

    Two BIGINT differ by an exact integer; with a DOUBLE, both are doubles; times differ by
    microseconds. Equal values differ by 0, infinities and NaN too; a NaN is above the rest.

    >>> difference(2**63 - 1, -1), difference(0.3, 0.1), difference(date(2013, 1, 2), date(2013, 1, 1))
    ((0, 9223372036854775808), (0, 0.19999999999999998), (0, 86400000000))
    >>> difference(math.inf, math.inf), difference(math.nan, 1.0), difference(1.0, math.nan)
    ((0, 0), (1, 0), (-1, 0))
    """
    if isinstance(left, date):
        left, right = _microseconds(left), _microseconds(right)
    elif isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    if compare(left, right) == 0:
        return 0, 0
    if math.isnan(left):
        return 1, 0
    return (-1, 0) if math.isnan(right) else (0, left - right)


# -- joins of streams ------------------------------------------------------------------------------

_Event = tuple[int, datetime, Row]  # seq, time, row


def join_streams(
    query: Query,
    steps: Iterable[tuple[datetime, Sequence[tuple[int, str, Row]]]],
    times: tuple[str, str] | None = None,
) -> list[list[tuple[int, dict[str, Any]]]]:
    """What a join of two streams emits without a budget: (seq, row) by step.

    A step is the engine's clock and the events (seq, stream, row) that come together. `times`: the columns
    of event time, for a window over event time; a band on times names them itself.

    >>> from tocsin.language.algebra import Item, TableRef
    >>> k, l = Column("k", Type.BIGINT, "a"), Column("k", Type.BIGINT, "b")
    >>> two = Query((Item(k, "k"),), (TableRef("s", "a", True), TableRef("t", "b", True)), (Equal(k, l),))
    >>> noon = datetime(2013, 1, 31, 12, tzinfo=UTC)
    >>> join_streams(two, [(noon, [(1, "s", {"k": 5}), (2, "t", {"k": 6})]), (noon, [(3, "t", {"k": 5})])])
    [[], [(3, {'k': 5})]]
    """
    window, late = query.options.window, timedelta(microseconds=query.options.late or 0)
    span = None if window is None else timedelta(microseconds=window)
    if times is None and (bound := _time_bound(query)) is not None:
        times = bound[0]
    kept: tuple[list[_Event], list[_Event]] = [], []
    clock = latest = None
    found = []
    for now, events in steps:
        clock = now if clock is None else max(clock, now)
        fresh: tuple[list[_Event], list[_Event]] = [], []
        for seq, name, row in events:
            for place, table in enumerate(query.tables):
                at = clock if times is None else _moment(row.get(times[place]))
                if name == table.name and at is not None:
                    fresh[place].append((seq, at, row))
                    latest = at if latest is None else max(latest, at)
        pairs = [(a, b) for a in kept[0] for b in fresh[1]]
        pairs += [(a, b) for a in fresh[0] for b in [*kept[1], *fresh[1]]]
        found.append([(max(a[0], b[0]), row) for a, b in pairs for row in _pair(query, a, b, span)])
        for place in range(2):
            kept[place].extend(fresh[place])
            if times is not None and latest is not None:
                kept[place][:] = [e for e in kept[place] if not _is_over(query, place, e, latest - late)]
    return found


def _pair(query: Query, a: _Event, b: _Event, span: timedelta | None) -> list[dict[str, Any]]:
    """The answer over two events alone."""
    if span is not None and abs(a[1] - b[1]) > span:
        return []
    rows = {table.alias: event[2] for table, event in zip(query.tables, (a, b), strict=True)}
    read = _reader(query, rows)
    joined = all(_joins(join, read) for join in query.joins) and _truth(query.where, read) is True
    return [_projected(query, rows)] if joined else []


def _is_over(query: Query, place: int, event: _Event, clock: datetime) -> bool:
    """Whether no event from this moment of event time on joins the event."""
    reach: float | None = query.options.window
    if reach is None:
        bound = _time_bound(query)
        assert bound is not None
        low, high = bound[1:]
        reach = high if place == 0 else None if low is None else -low
    return reach is not None and _microseconds(clock) - _microseconds(event[1]) > reach


def _time_bound(query: Query) -> tuple[tuple[str, str], float | None, float | None] | None:
    """The band on times that has both ends, or any: (columns by place, low, high) of second - first."""
    timed = [join for join in query.joins if isinstance(join, Band) and join.timed]
    if not timed or query.options.window is not None:
        return None
    band = next((b for b in timed if b.low is not None and b.high is not None), timed[0])
    low = None if band.low is None else math.floor(band.low) + 1 if band.low_open else math.ceil(band.low)
    high = (
        None if band.high is None else math.ceil(band.high) - 1 if band.high_open else math.floor(band.high)
    )
    if band.left.relation == query.tables[1].alias:
        return (band.right.name, band.left.name), low, high
    columns = band.left.name, band.right.name
    return columns, None if high is None else -high, None if low is None else -low


def _moment(value: Any) -> datetime | None:
    """A moment of event time; a date is its midnight."""
    if value is None or isinstance(value, datetime):
        return value
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


# -- answers ---------------------------------------------------------------------------------------


def _projected(query: Query, rows: Rows) -> dict[str, Any]:
    """The selected columns; without any, the attributes an event of an open stream carries."""
    read = _reader(query, rows)
    if not query.items:
        return {name: value for name, value in rows[query.tables[0].alias].items() if value is not None}
    return {i.name: read(i.expression) for i in query.items if isinstance(i.expression, Column)}


def _grouped(query: Query, found: list[Rows]) -> list[dict[str, Any]]:
    """One row for each group of equal keys that passes HAVING; without keys, all rows are one group."""
    groups: dict[Hashable, list[Rows]] = {} if query.group else {(): []}
    for rows in found:
        groups.setdefault(tuple(_plain(_reader(query, rows)(key)) for key in query.group), []).append(rows)
    answer = []
    for members in groups.values():

        def read(column: Column | Aggregate, members: list[Rows] = members) -> Any:
            if isinstance(column, Measure):
                return _answer(column.aggregate, query, members)
            return _answer(column, query, members)

        row = {item.name: read(item.expression) for item in query.items}
        if _truth(query.having, read) is True:
            answer.append(row)
    return answer


def _first(query: Query, ordered: list[Rows]) -> list[Rows]:
    """The first rows after `offset` others; with a partition, those of each group of equal values there."""
    if not query.partition:
        return ordered[query.offset :][: query.limit]
    seen: Counter[Hashable] = Counter()
    kept = []
    for rows in ordered:
        group = tuple(_plain(_reader(query, rows)(column)) for column in query.partition)
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
        found = _sorted(found, key, lambda rows: _reader(query, rows))
    return found


def _sorted(found: list[Rows], key: OrderKey, reader: Callable[[Rows], Read]) -> list[Rows]:
    nulls = [rows for rows in found if reader(rows)(key.column) is None]
    known = [rows for rows in found if reader(rows)(key.column) is not None]
    known.sort(key=lambda rows: _rank(reader(rows)(key.column)), reverse=key.descending)
    return nulls + known if key.nulls_first else known + nulls


def _answer(expression: Column | Aggregate, query: Query, found: list[Rows]) -> Any:
    if isinstance(expression, Column):
        if expression not in query.group:
            raise TocsinError(f"{expression} stands beside an aggregate")
        return _reader(query, found[0])(expression)
    column, where = expression.column, expression.where
    if where is not None:
        found = [rows for rows in found if _truth(where, _reader(query, rows)) is True]
    if column is None:
        return len(found)
    values = [_reader(query, rows)(column) for rows in found]
    if expression.distinct:
        values = list({_plain(value): value for value in values}.values())
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
        return (min if function == "MIN" else max)(known, key=_rank)
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


# -- comparing answers -----------------------------------------------------------------------------


def row_key(row: Row) -> Hashable:
    """A row as a value to compare and count by: NaN equals NaN, 0.0 equals -0.0, True is not 1.

    >>> row_key({"a": math.nan, "b": -0.0}) == row_key({"b": 0.0, "a": math.nan})
    True
    >>> row_key({"a": 1}) == row_key({"a": True})
    False
    """
    return tuple(sorted((name, type(value).__name__, _plain(value)) for name, value in row.items()))


def _plain(value: Any) -> Hashable:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def as_bag(rows: Iterable[Row]) -> Counter[Hashable]:
    """How often each row occurs.

    >>> as_bag([{"a": 1}, {"a": 1}]) == as_bag([{"a": 1}])
    False
    """
    return Counter(map(row_key, rows))
