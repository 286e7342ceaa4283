"""Subscriptions of every shape: the SQL text, and beside it what it is meant to say.

The text goes to the engine. The meaning, a `Query` made without the parser, goes to the
reference; so a parser that misreads a text is found as well as an engine that errs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.strategies.composed import COMPOSED
from tests.strategies.pick import Pick
from tests.strategies.predicates import condition, write, write_name
from tests.strategies.schemas import ATTRIBUTES
from tests.strategies.sources import Source, band_source, joined_source, single_source
from tests.strategies.values import Values
from tests.strategies.written import WrittenQuery
from tocsin.language.algebra import (
    Aggregate,
    And,
    Band,
    Column,
    Compare,
    Item,
    Measure,
    OrderKey,
    Predicate,
    Query,
    Truth,
)
from tocsin.language.options import Options
from tocsin.model.schema import Stream, Table, Type

__all__ = [
    "COMPOSED",
    "DEFERRED",
    "SHAPES",
    "WrittenQuery",
    "enriched",
    "stream_filter",
    "stream_pair",
    "write_query",
]


def write_query(pick: Pick, shape: str, tables: Sequence[Table], values: Values) -> WrittenQuery:
    """A subscription of the shape over some of the tables."""
    return (DEFERRED | COMPOSED)[shape](pick, tables, values)


def _filter(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    source = single_source(pick, pick.one(tables))
    return _finish(pick, values, source, *_columns(pick, source))


def _join(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    source = joined_source(pick, [pick.one(tables), pick.one(tables)])
    return _finish(pick, values, source, *_columns(pick, source))


def _band(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    source = band_source(pick, [pick.one(tables), pick.one(tables)])
    return _finish(pick, values, source, *_columns(pick, source))


def _multiway(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    source = joined_source(pick, [pick.one(tables) for _ in range(pick.between(3, 4))])
    return _finish(pick, values, source, *_columns(pick, source))


def _extreme(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    source = single_source(pick, pick.one(tables))
    return _finish(pick, values, source, *_aggregates(pick, source, ("MIN", "MAX"), 2))


def _aggregate(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    source = single_source(pick, pick.one(tables))
    functions = ("COUNT", "SUM", "AVG", "MIN", "MAX")
    return _finish(pick, values, source, *_aggregates(pick, source, functions, 3))


def _distinct(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    source = single_source(pick, pick.one(tables))
    return _finish(pick, values, source, *_columns(pick, source), distinct=True)


def _topk(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    return _first_of(pick, single_source(pick, pick.one(tables)), values)


def _first_of(pick: Pick, source: Source, values: Values) -> WrittenQuery:
    text, items = _columns(pick, source)
    keys, texts = [], []
    for column in pick.some(source.columns, 1, 2):
        descending = pick.chance(50)
        written = source.name(pick, column) + (" DESC" if descending else pick.one(("", " ASC")))
        nulls_first = not descending
        if pick.chance(30):
            nulls_first = pick.chance(50)
            written += " NULLS FIRST" if nulls_first else " NULLS LAST"
        keys.append(OrderKey(column, descending, nulls_first))
        texts.append(written)
    limit = pick.between(1, 4)
    tail = f" ORDER BY {', '.join(texts)} LIMIT {limit}"
    return _finish(pick, values, source, text, items, tail=tail, order=tuple(keys), limit=limit)


def _any_join(pick: Pick, tables: Sequence[Table]) -> Source:
    if pick.chance(30):
        return band_source(pick, [pick.one(tables), pick.one(tables)])
    return joined_source(pick, [pick.one(tables) for _ in range(pick.between(2, 3))])


def _joined_aggregate(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    source = _any_join(pick, tables)
    functions = ("COUNT", "SUM", "AVG", "MIN", "MAX")
    return _finish(pick, values, source, *_aggregates(pick, source, functions, 3))


def _joined_distinct(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    source = _any_join(pick, tables)
    return _finish(pick, values, source, *_columns(pick, source), distinct=True)


def _joined_topk(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    return _first_of(pick, _any_join(pick, tables), values)


def _group(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    """GROUP BY with aggregates and HAVING, over one table or a join; or an aggregate that needs groups."""
    source = _any_source(pick, tables)
    keys = tuple(pick.some(source.columns, 1, 2)) if pick.chance(80) else ()
    chosen, aggregates = list(keys) if pick.chance(70) else [], []
    texts, items = [], []
    for i, column in enumerate(chosen):
        name = f"k{i}"
        texts.append(f"{source.name(pick, column)} AS {name}")
        items.append(Item(column, name))
    for i in range(pick.between(0 if items else 1, 3)):
        aggregate, text = _filtered_aggregate(pick, source, values)
        aggregates.append(aggregate)
        texts.append(f"{text} AS v{i}")
        items.append(Item(aggregate, f"v{i}"))
    having: Predicate = Truth(True)
    tail = f" GROUP BY {', '.join(source.name(pick, key) for key in keys)}" if keys else ""
    if aggregates and pick.chance(60):
        having, text = _having(pick, source, values, keys, aggregates)
        tail += f" HAVING {text}" if having != Truth(True) else ""
    grouped = keys or having != Truth(True) or any(not one.plain for one in aggregates)
    if not grouped and len(source.tables) < 2:  # or the rank room answers it
        aggregate = Aggregate("COUNT", pick.one(source.columns), distinct=True)
        texts.append(f"COUNT(DISTINCT {source.name(pick, aggregate.columns[0])}) AS d")
        items.append(Item(aggregate, "d"))
    made = _finish(pick, values, source, ", ".join(texts), tuple(items), tail=tail)
    return replace(made, query=replace(made.query, group=keys, having=having))


def _filtered_aggregate(pick: Pick, source: Source, values: Values) -> tuple[Aggregate, str]:
    aggregate = _one_aggregate(pick, source, ("COUNT", "COUNT", "SUM", "AVG", "MIN", "MAX"))
    distinct = aggregate.function == "COUNT" and aggregate.column is not None and pick.chance(60)
    where = None
    if pick.chance(20):
        where = condition(pick, values, source.columns)
        where = None if where == Truth(True) else where
    aggregate = replace(aggregate, distinct=distinct, where=where)
    argument = "*" if aggregate.column is None else source.name(pick, aggregate.column)
    text = f"{aggregate.function}({'DISTINCT ' if distinct else ''}{argument})"
    if where is not None:
        text += f" FILTER (WHERE {write(pick, where, lambda column: source.name(pick, column))})"
    return aggregate, text


def _having(
    pick: Pick, source: Source, values: Values, keys: Sequence[Column], aggregates: Sequence[Aggregate]
) -> tuple[Predicate, str]:
    """A condition on groups: mostly a threshold, as alerts have."""
    written: dict[Column, str] = {}
    for aggregate in aggregates:
        if aggregate.where is None:
            argument = "*" if aggregate.column is None else source.name(pick, aggregate.column)
            text = f"{aggregate.function}({'DISTINCT ' if aggregate.distinct else ''}{argument})"
            written[Measure.of(aggregate)] = text
    written[Measure.of(Aggregate("COUNT"))] = pick.one(("COUNT(*)", "count(1)"))
    measures = list(written)
    columns = [*measures, *keys]
    parts: list[Predicate] = []
    if pick.chance(60):
        count = next(c for c in measures if isinstance(c, Measure) and c.aggregate.function == "COUNT")
        parts.append(Compare(count, pick.one((">", ">=", "=", "<", "<=")), pick.between(0, 4)))
    if not parts or pick.chance(50):
        more = condition(pick, values, columns)
        parts += [] if more == Truth(True) else [more]
    if keys and pick.chance(30):
        key = pick.one(keys)
        parts.append(Compare(key, "=", values.known(pick, key.type or Type.BIGINT)))
    if not parts:
        return Truth(True), ""
    having = parts[0] if len(parts) == 1 else And(tuple(parts))
    return having, write(pick, having, lambda c: written[c] if c in written else source.name(pick, c))


def _ranked(pick: Pick, tables: Sequence[Table], values: Values) -> WrittenQuery:
    """The first rows of a join, after an OFFSET, or of each group."""
    source, what = _any_source(pick, tables), pick.between(0, 2)
    if what == 0 and len(source.tables) > 1:
        return _first_of(pick, source, values)
    made = _first_of(pick, source, values)
    if what < 2:
        offset = pick.between(1, 3)
        sql, query = f"{made.sql} OFFSET {offset}", replace(made.query, offset=offset)
        return replace(made, sql=sql, query=query)
    head, _, tail = made.sql.rpartition(" ORDER BY ")
    order = tail.rpartition(" LIMIT ")[0]
    partition = tuple(pick.some(source.columns, 1, 2))
    of = ", ".join(source.name(pick, column) for column in partition)
    number, limit = f"ROW_NUMBER() OVER (PARTITION BY {of} ORDER BY {order})", made.query.limit
    assert limit is not None
    bound = pick.one((f"{number} <= {limit}", f"{number} < {limit + 1}", f"{limit} >= {number}"))
    return replace(made, sql=f"{head} QUALIFY {bound}", query=replace(made.query, partition=partition))


def _any_source(pick: Pick, tables: Sequence[Table]) -> Source:
    return single_source(pick, pick.one(tables)) if pick.chance(60) else _any_join(pick, tables)


Shape = Callable[[Pick, Sequence[Table], Values], WrittenQuery]
SHAPES: dict[str, Shape] = {
    "filter": _filter,
    "join": _join,
    "band": _band,
    "multiway": _multiway,
    "extreme": _extreme,
    "aggregate": _aggregate,
    "distinct": _distinct,
    "topk": _topk,
    "group": _group,
    "ranked": _ranked,
    "joined aggregate": _joined_aggregate,
    "joined distinct": _joined_distinct,
    "joined topk": _joined_topk,
}

DEFERRED: dict[str, Shape] = {**SHAPES}
"""Shapes that a query can have if it is refreshed on demand."""


def stream_filter(pick: Pick, stream: Stream, values: Values) -> WrittenQuery:
    """A filter over a stream; over an open one, on attributes of types it cannot know."""
    if not stream.open:
        source = single_source(pick, stream)
        return _finish(pick, values, source, *_columns(pick, source))
    columns = tuple(Column(name) for name in ATTRIBUTES)
    source = single_source(pick, stream, columns)
    text, items = ("*", ()) if pick.chance(50) else _listed(pick, source)
    return _finish(pick, values, source, text, items)


def enriched(pick: Pick, stream: Stream, tables: Sequence[Table], values: Values) -> WrittenQuery:
    """A stream joined with one to three tables by equality."""
    chosen: list[Stream | Table] = [stream, *(pick.one(tables) for _ in range(pick.between(1, 3)))]
    joined = joined_source(pick, chosen if pick.chance(70) else [chosen[1], stream, *chosen[2:]])
    return _finish(pick, values, joined, *_columns(pick, joined))


def stream_pair(
    pick: Pick, streams: Sequence[Stream], values: Values, options: Options, banded: bool
) -> WrittenQuery:
    """Two streams joined by equality, or one with itself; with a band on their times, if `banded`."""
    first, second = pick.one(streams), pick.one(streams)
    source = joined_source(pick, (first, second))
    if banded:
        left, right = (Column("at", Type.TIMESTAMP, table.alias) for table in pick.some(source.tables, 2, 2))
        low, high = sorted((pick.between(-5, 5), pick.between(0, 9)))
        band = Band(left, right, low * 1_000_000, high * 1_000_000)
        text = f"{left} - {right} BETWEEN INTERVAL '{low}' SECOND AND INTERVAL '{high}' SECOND"
        source = replace(source, joins=(*source.joins, band), where=(*source.where, text))
    written = _finish(pick, values, source, *_columns(pick, source))
    return WrittenQuery(f"{written.sql} {options}", replace(written.query, options=options))


# -- the parts of a query --------------------------------------------------------------------------


def _finish(
    pick: Pick,
    values: Values,
    source: Source,
    select: str,
    items: tuple[Item, ...],
    *,
    tail: str = "",
    distinct: bool = False,
    order: tuple[OrderKey, ...] = (),
    limit: int | None = None,
) -> WrittenQuery:
    where = Truth(True) if source.joins and pick.chance(40) else condition(pick, values, source.columns)
    wanted = list(source.where)
    if where != Truth(True):
        text = write(pick, where, lambda column: source.name(pick, column))
        wanted.append(f"({text})" if wanted or pick.chance(15) else text)
    sql = f"SELECT {'DISTINCT ' if distinct else ''}{select} FROM {source.text}"
    sql += f" WHERE {' AND '.join(wanted)}" if wanted else ""
    return WrittenQuery(sql + tail, Query(items, source.tables, source.joins, where, distinct, order, limit))


def _columns(pick: Pick, source: Source) -> tuple[str, tuple[Item, ...]]:
    return ("*", source.star()) if pick.chance(50) else _listed(pick, source)


def _listed(pick: Pick, source: Source) -> tuple[str, tuple[Item, ...]]:
    columns = pick.some(source.columns, 1, 3)
    new = {c: pick.one((f"out{i}", f"My {i}")) for i, c in enumerate(columns) if pick.chance(20)}
    kept = [c.name for c in columns if c not in new]
    texts, items = [], []
    for column in columns:
        text = source.name(pick, column)
        if column in new:
            text += pick.one((" AS ", " ")) + write_name(pick, new[column], exact=True)
        twice = kept.count(column.name) > 1
        texts.append(text)
        items.append(Item(column, new.get(column) or (f"{column.relation}." if twice else "") + column.name))
    return ", ".join(texts), tuple(items)


def _aggregates(
    pick: Pick, source: Source, functions: Sequence[str], most: int
) -> tuple[str, tuple[Item, ...]]:
    texts: list[str] = []
    items: list[Item] = []
    for i in range(pick.between(1, most)):
        aggregate = _one_aggregate(pick, source, functions)
        argument = "*" if aggregate.column is None else source.name(pick, aggregate.column)
        text = f"{pick.one((aggregate.function, aggregate.function.lower()))}({argument})"
        name = f"{aggregate.function.lower()}({'1' if aggregate.column is None else aggregate.column.name})"
        if pick.chance(50) or any(item.name == name for item in items):
            name = f"v{i}"
            text += f" AS {name}"
        texts.append(text)
        items.append(Item(aggregate, name))
    return ", ".join(texts), tuple(items)


def _one_aggregate(pick: Pick, source: Source, functions: Sequence[str]) -> Aggregate:
    function = pick.one(functions)
    if function == "COUNT" and pick.chance(50):
        return Aggregate(function)
    numbers = [c for c in source.columns if c.type is not None and c.type.numeric]
    if function in ("SUM", "AVG"):
        return Aggregate(function, pick.one(numbers)) if numbers else Aggregate("COUNT")
    return Aggregate(function, pick.one(source.columns))
